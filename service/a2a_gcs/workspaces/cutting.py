"""Where an archive is cut into parts; pure.

Each cut depends on the entry before it alone, so a change moves no cuts but
its own, and equal trees that are cut for one size are cut alike whatever their
history.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from a2a_gcs.workspaces.members import BLOCK

MIN_PART = 1 << 20
MAX_PART = 8 << 20
_PARTS = 256
_MIX = 0x9E3779B1  # spreads a checksum over its 32 bits
_SPACE = 1 << 32


@dataclass(frozen=True, slots=True)
class Unit:
    """Entries that are packed, or kept, together.

    Attributes:
        first: Index of the first.
        stop: Index after the last.
    """

    first: int
    stop: int


def part_size(total: int, smallest: int = MIN_PART, *, known: int = 0) -> int:
    """The size to cut for, in bytes: about 256 parts, `smallest` doubled as often as that takes, 8 MiB at most.

    Args:
        total: Bytes of content.
        smallest: Bytes to cut for at least.
        known: What the archive before was cut for; 0 if there is none. It is kept while 64 to 512 parts
            come out: another size moves all cuts, and uploads everything.
    """
    size = smallest
    while size < MAX_PART and total > size * _PARTS:
        size *= 2
    near = known in {size // 2, size * 2} and smallest <= known <= MAX_PART
    return known if near and known * _PARTS // 4 < total <= known * _PARTS * 2 else size


def cut(entries: Iterable[tuple[bytes, int]], size: int) -> list[Unit]:
    """Cuts entries, given as path and bytes of content, into units of about `size`, never over twice that.

    An entry ends a unit by the luck of its name, which is better the larger it is. Files of more than
    `size` are units of their own.
    """
    units: list[Unit] = []
    first = held = index = 0
    for index, (path, content) in enumerate(entries):
        weight = BLOCK + content
        if held and (content > size or held + weight > 2 * size):
            units.append(Unit(first, index))
            first, held = index, 0
        held += weight
        if content > size or _luck(path) * size < weight * _SPACE:
            units.append(Unit(first, index + 1))
            first, held = index + 1, 0
    if held:
        units.append(Unit(first, index + 1))
    return units


def _luck(path: bytes) -> int:
    return zlib.crc32(path) * _MIX % _SPACE
