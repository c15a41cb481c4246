"""What the requests cost: counts by class, verb and key pattern, bytes, list price, round trips.

Classes and prices (cloud.google.com/storage/pricing, us-central1, standard): class A (writes, lists, and
what changes buckets) $5 per million, class B (reads of one object or bucket) $0.40 per million, deletes and
the later requests of a resumable upload free. A request that fails with 4xx or 5xx costs nothing, but a 404
of a read counts as class B.
"""

from __future__ import annotations

import collections
import fnmatch
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Json = dict[str, Any]

KEPT = 200_000
DOLLARS_PER_REQUEST = {"A": 5 / 1e6, "B": 0.4 / 1e6, "free": 0.0}

_CLASS_B = {
    "objects.get", "objects.media", "buckets.get", "buckets.getStorageLayout", "buckets.getIamPolicy",
    "buckets.testIamPermissions", "projects.serviceAccount",
}  # fmt: skip
_FREE = {"objects.delete", "buckets.delete", "objects.resume", "objects.cancelUpload", "batch", ""}
_VARIES = re.compile(r"[0-9a-fA-F]{8}[0-9a-fA-F-]*|\d+")


def billing_class(operation: str) -> str:
    """Answers `A`, `B` or `free`."""
    if operation in _CLASS_B:
        return "B"
    return "free" if operation in _FREE else "A"


def is_billed(operation: str, status: int) -> bool:
    return status < 400 or (status == 404 and billing_class(operation) == "B")  # noqa: PLR2004


def key_pattern(key: str) -> str:
    """Answers a key with what varies replaced by `*`: the last segment's numbers and ids, and all before it."""
    head, slash, last = key.rpartition("/")
    return ("*/" if head or slash else "") + _VARIES.sub("*", last)


class Meter:
    """Counts since the last reset, and the last KEPT requests."""

    def __init__(self) -> None:
        self._requests: collections.deque[Json] = collections.deque(maxlen=KEPT)
        self._seq = 0
        self._dropped = 0

    def note(self, request: Json) -> None:
        """Takes in one answered request: operation, bucket, key, status, started, ended, bytes_in, bytes_out."""
        self._seq += 1
        self._dropped += len(self._requests) == KEPT
        request["seq"] = self._seq
        self._requests.append(request)

    def requests(self, *, bucket: str = "", after: int = 0) -> list[Json]:
        """Answers requests with a seq above `after`, in the order in which they ended."""
        return [request for request in self._requests if request["seq"] > after and bucket in {"", request["bucket"]}]

    def stats(self, *, bucket: str = "", patterns: Iterable[str] = ()) -> Json:
        """Answers the totals, of one bucket or of all.

        Args:
            bucket: The bucket, or "" for all.
            patterns: Globs to group keys by, the first that matches; without any, key_pattern does it.
        """
        return {**summary(self.requests(bucket=bucket), list(patterns)), "requests_dropped": self._dropped}

    def reset(self) -> None:
        """Forgets the requests; seq goes on growing."""
        self._requests.clear()
        self._dropped = 0


def summary(requests: list[Json], patterns: list[str] | None = None) -> Json:
    """Adds requests up."""
    classes = collections.Counter({"A": 0, "B": 0, "free": 0})
    operations: collections.Counter[str] = collections.Counter()
    statuses: collections.Counter[str] = collections.Counter()
    keys: dict[str, collections.Counter[str]] = {}
    dollars = 0.0
    for request in requests:
        operation, status = request["operation"], request["status"]
        kind = billing_class(operation)
        classes[kind] += 1
        operations[operation] += 1
        statuses[str(status)] += 1
        keys.setdefault(_group(request["key"], patterns), collections.Counter())[operation] += 1
        dollars += DOLLARS_PER_REQUEST[kind] if is_billed(operation, status) else 0.0
    return {
        "requests": len(requests),
        "classes": dict(classes),
        "operations": dict(operations),
        "statuses": dict(statuses),
        "keys": {pattern: dict(counts) for pattern, counts in keys.items()},
        "bytes_in": sum(request["bytes_in"] for request in requests),
        "bytes_out": sum(request["bytes_out"] for request in requests),
        "dollars": round(dollars, 9),
        "round_trips": round_trips(requests),
    }


def round_trips(requests: Iterable[Mapping[str, Any]]) -> int:
    """Answers how many requests followed one another: the most of which no two overlap in time.

    Requests in flight together are one round trip.
    """
    count, free_from = 0, float("-inf")
    for request in sorted(requests, key=lambda request: request["ended"]):
        if request["started"] >= free_from:
            count += 1
            free_from = request["ended"]
    return count


def _group(key: str, patterns: list[str] | None) -> str:
    if not patterns:
        return key_pattern(key)
    return next((pattern for pattern in patterns if fnmatch.fnmatchcase(key, pattern)), "other")
