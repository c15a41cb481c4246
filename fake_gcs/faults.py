"""Faults on request: which answer goes wrong, how, and whether it did.

The same model on both sides of the control API. Everything is decided by the order of matching
requests and a seed, so that a run can be repeated.
"""

from __future__ import annotations

import fnmatch
import random
from dataclasses import asdict, dataclass, field, fields
from typing import Any

Json = dict[str, Any]

ACTIONS = {
    "status": "answer `status` (429, 500, 503, ...) with its real body; nothing is done",
    "delay": "wait `seconds`, then go on as usual",
    "drop": "close the connection before anything is done",
    "commit_and_drop": "do it, then close the connection without an answer",
    "cut": "close the connection after `after_bytes` of the answer's body",
    "cut_request": "close the connection after `after_bytes` of the request's body; nothing is done",
    "stall": "send `after_bytes` of the answer's body (none: nothing is done either), then nothing for `seconds`",
}


@dataclass(frozen=True)
class Fault:
    """One scripted fault.

    Attributes:
        action: One of ACTIONS.
        operation: Glob of operations, as `objects.insert`, `objects.*`.
        key: Glob of object names; `*` crosses slashes.
        bucket: Glob of buckets.
        nth: The first match that is hit, counted from 1.
        times: How many matches are hit from there on; None for all.
        probability: Chance of a match to be hit, drawn from seed.
        seed: Seed of the draws.
        status: HTTP status of action status.
        seconds: Duration of delay and stall; None stalls until the client leaves.
        after_bytes: Bytes let through by cut, cut_request and stall; a stall without it does nothing at all.
    """

    action: str
    operation: str = "*"
    key: str = "*"
    bucket: str = "*"
    nth: int = 1
    times: int | None = 1
    probability: float = 1.0
    seed: int = 0
    status: int = 503
    seconds: float | None = None
    after_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"no fault action {self.action!r}; choose from {', '.join(ACTIONS)}")
        if self.nth < 1 or not 0 <= self.probability <= 1:
            raise ValueError("nth counts from 1, and probability lies between 0 and 1")

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Json) -> Fault:
        """Raises ValueError for what is no fault."""
        unknown = set(document) - {known.name for known in fields(cls)}
        if unknown or "action" not in document:
            raise ValueError(f"a fault has an action and none of {sorted(unknown)}")
        return cls(**document)


@dataclass
class Scripted:
    """A fault in force, and what became of it.

    Attributes:
        matched: Requests that it saw.
        hit: Requests that it chose.
        served: Requests that it did go wrong for; fewer than hit when a body was too short to be cut.
    """

    id: int
    fault: Fault
    matched: int = 0
    hit: int = 0
    served: int = 0
    draws: random.Random = field(default_factory=random.Random)

    def hits(self, operation: str, bucket: str, key: str) -> bool:
        """Counts a request, and answers whether it is to go wrong."""
        fault = self.fault
        matches = (
            fnmatch.fnmatchcase(operation, fault.operation)
            and fnmatch.fnmatchcase(bucket, fault.bucket)
            and fnmatch.fnmatchcase(key, fault.key)
        )
        if not matches:
            return False
        self.matched += 1
        drawn = self.draws.random() < fault.probability
        chosen = drawn and self.matched >= fault.nth and (fault.times is None or self.hit < fault.times)
        self.hit += chosen
        return chosen

    def to_json(self) -> Json:
        counts = {"matched": self.matched, "hit": self.hit, "served": self.served}
        return {"id": self.id, **counts, "fault": self.fault.to_json()}


class Faults:
    """The faults in force, in the order in which they were added. What one hits, the later ones do not see."""

    def __init__(self) -> None:
        self._scripted: dict[int, Scripted] = {}
        self._last = 0

    def add(self, fault: Fault) -> Scripted:
        self._last += 1
        scripted = Scripted(self._last, fault, draws=random.Random(fault.seed))
        self._scripted[scripted.id] = scripted
        return scripted

    def remove(self, number: int) -> None:
        self._scripted.pop(number, None)

    def clear(self) -> None:
        self._scripted.clear()

    def get(self, number: int) -> Scripted | None:
        return self._scripted.get(number)

    def all(self) -> list[Scripted]:
        return list(self._scripted.values())

    def decide(self, operation: str, bucket: str, key: str) -> Scripted | None:
        """Answers the fault that this request is to meet."""
        return next((one for one in self._scripted.values() if one.hits(operation, bucket, key)), None)
