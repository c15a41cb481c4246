"""What the host page shows of this process and of its neighbours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from a2a_gcs.layout import TaskRef

Sample = tuple[str, Mapping[str, str], float]
"""One series of the metrics: its name as Prometheus has it, its labels, its value."""

CLASS_A_DOLLARS, CLASS_B_DOLLARS = 5e-6, 4e-7
"""A request of Standard storage in one region (service/docs/costs.md)."""


@dataclass(frozen=True)
class LivingHost:
    """A host, by its heartbeat.

    Attributes:
        name: Its id.
        age: Seconds since its last renewal, by the store's clock.
        lease: Age in seconds at which it is taken for dead.
        running: Turns that it holds, of all roots.
        tasks: Those of them that the visitor may see.
        here: It is the one that answers.
    """

    name: str
    age: float
    lease: float
    running: int
    tasks: Sequence[TaskRef]
    here: bool

    @property
    def alive(self) -> bool:
        return self.age <= self.lease


@dataclass(frozen=True)
class Measures:
    """What this process has counted and measured since it started.

    Attributes:
        requests: Requests to the store, by the class that they are billed as.
        failures: Calls of the store that failed, by the name of the error.
        latency: How many calls took how long: upper bounds in seconds, the last one infinite.
        bytes_in: Bytes of bodies written.
        bytes_out: Bytes of bodies read.
        states: States that tasks have come to here, by name.
    """

    requests: Mapping[str, int]
    failures: Mapping[str, int]
    latency: Sequence[tuple[float, int]]
    bytes_in: int
    bytes_out: int
    states: Mapping[str, int]

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Measures:
        """What `/metrics` says, added up. Pure."""
        requests: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        below: Counter[float] = Counter()
        moved: Counter[str] = Counter()
        states: Counter[str] = Counter()
        for name, labels, value in samples:
            match name:
                case "a2a_gcs_storage_requests_total":
                    requests[labels["class"]] += int(value)
                    if labels["outcome"] != "ok":
                        failures[labels["outcome"]] += int(value)
                case "a2a_gcs_storage_duration_seconds_bucket":
                    below[float(labels["le"])] += int(value)
                case "a2a_gcs_storage_transferred_bytes_total":
                    moved[labels["direction"]] += int(value)
                case "a2a_gcs_task_transitions_total":
                    states[labels["state"]] += int(value)
        return cls(requests, failures, _each(below), moved["in"], moved["out"], states)

    @property
    def dollars(self) -> float:
        """What the requests cost."""
        return self.requests.get("A", 0) * CLASS_A_DOLLARS + self.requests.get("B", 0) * CLASS_B_DOLLARS


def _each(below: Mapping[float, int]) -> list[tuple[float, int]]:
    """Buckets that each count what lies above the one before, without the empty ones at both ends."""
    marks = [(-math.inf, 0), *sorted(below.items())]
    buckets = [(bound, count - before) for (_, before), (bound, count) in pairwise(marks)]
    full = [n for n, (_, count) in enumerate(buckets) if count]
    return buckets[full[0] : full[-1] + 1] if full else []


@dataclass(frozen=True)
class HostFacts:
    """What one look at a host found.

    Attributes:
        hosts: Every host of the bucket that has a heartbeat.
        uptime: Seconds since this process began to serve.
        measures: What it has counted; None where metrics are turned off.
    """

    hosts: Sequence[LivingHost]
    uptime: float
    measures: Measures | None
