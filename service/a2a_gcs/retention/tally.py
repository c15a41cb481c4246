"""What was removed, or would be, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Tally:
    """Counts of one run.

    Attributes:
        contexts: Removed as a whole.
        tasks: Removed, those of such contexts included.
        orphans: Objects that belonged to no task.
        batches: Left of journals.
        parts: That no archive refers to.
        heartbeats: Of hosts that are gone.
        objects: All of them together.
        bytes: Of all of them.
        changed: Objects that somebody wrote meanwhile, and contexts that somebody used: they stay.
    """

    contexts: int = 0
    tasks: int = 0
    orphans: int = 0
    batches: int = 0
    parts: int = 0
    heartbeats: int = 0
    objects: int = 0
    bytes: int = 0
    changed: int = 0

    def as_json(self) -> dict[str, int]:
        return asdict(self)
