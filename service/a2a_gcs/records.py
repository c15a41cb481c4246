"""The JSON records of DESIGN 4 and the custom metadata of task.json; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """A snapshot by the very bytes that were written.

    Attributes:
        generation: Version of the workspace.tar.gz object.
        crc32c: Its checksum, as in `ObjectInfo.crc32c`.
    """

    generation: int
    crc32c: str
