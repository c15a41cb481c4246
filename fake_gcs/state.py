"""What the handlers share: one emulator's parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fake_gcs.commits import Commits
from fake_gcs.faults import Faults
from fake_gcs.history import History
from fake_gcs.latency import Latency, profile
from fake_gcs.meter import Meter
from fake_gcs.rules import RuleSet
from fake_gcs.rules.write_limit import DEFAULT_BURST, WriteLimit
from fake_gcs.sessions import Sessions

if TYPE_CHECKING:
    from pathlib import Path

    from fake_gcs.blobs import Blobs
    from fake_gcs.catalogue import Catalogue


@dataclass
class State:
    """Everything of one emulator but its sockets.

    Attributes:
        folder: Where bodies on their way lie.
        location: Location of buckets that name none.
        default_latency, default_burst, default_refill: What a reset goes back to.
    """

    catalogue: Catalogue
    blobs: Blobs
    folder: Path
    location: str = "US-CENTRAL1"
    default_latency: str = "none"
    default_burst: float = DEFAULT_BURST
    default_refill: float = 1.0
    latency: Latency = field(init=False)
    rules: RuleSet = field(default_factory=RuleSet)
    limit: WriteLimit = field(init=False)
    history: History = field(default_factory=History)
    meter: Meter = field(default_factory=Meter)
    faults: Faults = field(default_factory=Faults)
    sessions: Sessions = field(default_factory=Sessions)
    commits: Commits = field(init=False)

    def __post_init__(self) -> None:
        self.latency = profile(self.default_latency)
        self.limit = WriteLimit(self.default_burst, self.default_refill)
        self.commits = Commits(self.catalogue, self.rules, self.limit, self.history)
