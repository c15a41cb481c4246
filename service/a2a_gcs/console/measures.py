"""What the host page shows of this process and of its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LivingHost:
    """A host, by its heartbeat.

    Attributes:
        name: Its id.
        age: Seconds since its last renewal, by the store's clock.
        lease: Age in seconds at which it is taken for dead.
        running: Turns that it holds, of all roots.
        here: It is the one that answers.
    """

    name: str
    age: float
    lease: float
    running: int
    here: bool

    @property
    def alive(self) -> bool:
        return self.age <= self.lease


@dataclass(frozen=True)
class Histogram:
    """How long calls took: upper bounds in seconds, and how many calls lie below each and above the one before."""

    bounds: Sequence[float]
    counts: Sequence[int]

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True)
class HostFacts:
    """What one look at a host found.

    Attributes:
        hosts: Every host of the bucket that has a heartbeat.
        uptime: Seconds since this process began to serve.
        requests: Requests to the store since then, by the class that they are billed as.
        errors: Those that failed, by the name of the error.
        latency: How long they took; None where nothing measures it.
        bytes_in: Bytes of bodies written.
        bytes_out: Bytes of bodies read.
    """

    hosts: Sequence[LivingHost] = ()
    uptime: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    latency: Histogram | None = None
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def cost(self) -> float:
        """What the requests cost in US dollars, at the prices of Standard storage in one region (FACTS 1)."""
        return self.requests.get("A", 0) * 5e-6 + self.requests.get("B", 0) * 4e-7
