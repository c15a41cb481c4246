"""The log of committed writes, in the order in which they took effect."""

from __future__ import annotations

import collections
import time
from typing import Any

Json = dict[str, Any]
KEPT = 100_000


class History:
    """The last KEPT writes. Each has a seq that grows by one, so that a gap shows what was dropped."""

    def __init__(self) -> None:
        self._writes: collections.deque[Json] = collections.deque(maxlen=KEPT)
        self._seq = 0

    def note(self, verb: str, resource: Json, *, deleted: bool = False) -> None:
        self._seq += 1
        self._writes.append(
            {
                "seq": self._seq,
                "time": time.time(),
                "operation": verb,
                "bucket": resource["bucket"],
                "key": resource["name"],
                "generation": int(resource["generation"]),
                "metageneration": int(resource["metageneration"]),
                "size": int(resource["size"]),
                "metadata": resource.get("metadata", {}),
                "deleted": deleted,
            }
        )

    def writes(self, *, bucket: str = "", prefix: str = "", after: int = 0) -> list[Json]:
        """Answers writes with a seq above `after`, oldest first, of one bucket and below one prefix."""
        return [
            write
            for write in self._writes
            if write["seq"] > after and bucket in {"", write["bucket"]} and write["key"].startswith(prefix)
        ]

    def reset(self) -> None:
        """Forgets the writes; seq goes on growing."""
        self._writes.clear()
