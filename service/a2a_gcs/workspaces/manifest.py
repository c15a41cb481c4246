"""What a directory looked like when its archive was made or unpacked, and what of it is still so; pure.

Two looks at a file tell the same if nobody touched it in between: whoever
writes to a file, or puts its times back, moves its ctime. That fails only for
a write within the same tick of the kernel's clock as the first look, so
entries that were young then are kept as `recent` and are read again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from a2a_gcs.records import Pin

TICK = 50_000_000
"""Nanoseconds that a stamp must be old to be trusted; the kernel's clock ticks every 1 to 10 ms."""


class Stamp(NamedTuple):
    """One look at an entry.

    Attributes:
        mode: With the type bits.
        size: Bytes of a file or of a link's text; 0 for directories.
        mtime: Nanoseconds since 1970.
        ctime: The same.
        device: Of the file system.
        inode: Number there.
        link: Path of an earlier entry that is the same file; empty if there is none.
    """

    mode: int
    size: int
    mtime: int
    ctime: int
    device: int
    inode: int
    link: bytes = b""

    @classmethod
    def of(cls, status: os.stat_result, *, mode: int | None = None, link: bytes = b"") -> Stamp:
        directory = stat.S_ISDIR(status.st_mode)
        return cls(
            status.st_mode if mode is None else stat.S_IFMT(status.st_mode) | mode,
            0 if directory else status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_dev,
            status.st_ino,
            link,
        )


class Part(NamedTuple):
    """One gzip member of an archive, kept as an object of its own.

    Attributes:
        name: SHA-256 of its bytes in hexadecimal.
        packed: Bytes.
        unpacked: Bytes of the tar stream in it.
        crc32c: Of its bytes.
    """

    name: str
    packed: int
    unpacked: int
    crc32c: int


class Span(NamedTuple):
    """Consecutive entries of an archive, by the first, the last, and how many they are."""

    first: bytes
    last: bytes
    length: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is known of a directory that held exactly the tree of one archive.

    Attributes:
        key: The archive's object.
        pin: Its generation and crc32c.
        size: Its bytes.
        name: SHA-256 of an archive that is one piece; empty if it is not known.
        tail: Name of the last part of a composed archive; empty if it is not composed, or not known.
        part_size: What its parts were cut for, in bytes.
        stamps: Every entry of the archive.
        recent: Entries that were too young to be trusted, with a digest of their content, empty if unknown.
        units: The parts that hold runs of entries.
        whole: The directory held nothing but what is in the archive, and would come back as it is.
    """

    key: str
    pin: Pin
    size: int
    name: str = ""
    tail: str = ""
    part_size: int = 0
    stamps: Mapping[bytes, Stamp] = field(default_factory=dict)
    recent: Mapping[bytes, bytes] = field(default_factory=dict)
    units: Mapping[Span, tuple[Part, ...]] = field(default_factory=dict)
    whole: bool = False

    @property
    def known(self) -> frozenset[str]:
        """Names of the parts that the archive was composed of."""
        names = {part.name for parts in self.units.values() for part in parts}
        return frozenset(names | ({self.tail} if self.tail else set()))


def young(ctime: int, seen: int) -> bool:
    """Whether a stamp seen at that moment (Unix nanoseconds) could miss a change made right after."""
    return ctime + TICK > seen


def kept(old: Stamp | None, new: Stamp) -> bool:
    """Whether an archive would hold the same of an entry: of a directory that is its mode and mtime."""
    if old is None or not stat.S_ISDIR(new.mode):
        return old == new
    return (old.mode, old.mtime) == (new.mode, new.mtime)


def unchanged(base: Baseline, stamps: Mapping[bytes, Stamp]) -> bool:
    """Whether the tree is the archive's as far as stamps can tell; `base.recent` may have changed all the same."""
    if len(stamps) != len(base.stamps):
        return False
    return all(kept(base.stamps.get(path), stamp) for path, stamp in stamps.items())


def reusable(
    base: Baseline | None, part_size: int, runs: Sequence[Sequence[bytes]], stamps: Mapping[bytes, Stamp]
) -> list[tuple[Part, ...] | None]:
    """For each run of paths, the parts of the old archive that hold exactly these entries unchanged, or None.

    The runs are in the archive's order. A run of as many entries between the same two paths, each of
    them in the old archive, is the same run: nothing can have been left out or have come in between.
    """
    if base is None or base.part_size != part_size:
        return [None] * len(runs)
    return [_reusable(base, run, stamps) for run in runs]


def _reusable(base: Baseline, run: Sequence[bytes], stamps: Mapping[bytes, Stamp]) -> tuple[Part, ...] | None:
    parts = base.units.get(Span(run[0], run[-1], len(run)))
    if parts is None:
        return None
    same = all(path not in base.recent and kept(base.stamps.get(path), stamps[path]) for path in run)
    return parts if same else None
