"""Writes a tar as parts: gzip members of their own, compressed by a few threads and handed on in their order."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import google_crc32c
from isal import isal_zlib

from a2a_gcs.workspaces.bridge import CHUNK
from a2a_gcs.workspaces.index import GZIP, LEVEL
from a2a_gcs.workspaces.limits import Meter
from a2a_gcs.workspaces.manifest import Part
from a2a_gcs.workspaces.members import Member, encode, padding

_THREADS = 4
_AHEAD = 16 << 20  # bytes of the tar that may wait for a thread, or for those before them


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What comes next: a part that is being packed, or parts that were there already."""

    unpacked: int
    packed: Future[tuple[Part, bytes]] | None = None
    kept: Sequence[Part] = ()


class PartWriter:
    """Writes a tar as gzip members, each handed to `sink` with its name, in the order of the tar.

    A file over `size` bytes is cut off from what is before and after it, after its header, and after every
    `size` bytes: what is appended to it, or changed in place, leaves most of its parts as they were.

    The bytes of a part depend on what is in it alone: runs of CHUNK bytes, compressed one after the other by
    one thread. Threads only decide when it is ready. To be left as a context manager, which ends them.

    Attributes:
        parts: All that `sink` has had so far, also those that were kept; complete after `finish`.
        count: How many parts `parts` will hold once what is under way is done.
    """

    def __init__(self, size: int, sink: Callable[[Part, bytes], None], meter: Meter) -> None:
        self._size = size
        self._sink = sink
        self._meter = meter
        self._large = False
        self._total = 0
        self._total_packed = 0
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS), thread_name_prefix="workspace-gzip")
        self._waiting: deque[_Waiting] = deque()
        self._ahead = 0
        self._fresh()
        self.parts: list[Part] = []
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def member(self, member: Member) -> None:
        self._large = member.size > self._size
        if self._large:
            self.cut()
        self._write(encode(member))
        if self._large:
            self.cut()

    def content(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            left = self._size - self._unpacked if self._large else CHUNK
            run = data[start : start + min(left, CHUNK)]
            self._write(run)
            start += len(run)
            if len(run) == left and self._large:
                self.cut()

    def end_of_file(self, size: int) -> None:
        self._write(bytes(padding(size)))
        if self._large:
            self.cut()

    def cut(self) -> None:
        """Ends a part, if there is anything in it."""
        if not self._unpacked:
            return
        runs, unpacked = deque([*self._runs, bytes(self._run)]), self._unpacked
        self._fresh()
        while self._ahead and self._ahead + unpacked > _AHEAD:
            self._hand_on()
        self._enqueue(_Waiting(unpacked, packed=self._pool.submit(_pack, runs, unpacked)), 1)

    def keep(self, parts: Sequence[Part]) -> None:
        """Puts parts here that are there already."""
        self._enqueue(_Waiting(0, kept=parts), len(parts))

    def finish(self) -> None:
        """Waits until `sink` has had everything."""
        while self._waiting:
            self._hand_on()

    def _enqueue(self, waiting: _Waiting, count: int) -> None:
        self._waiting.append(waiting)
        self._ahead += waiting.unpacked
        self.count += count
        while self._waiting and ((first := self._waiting[0]).packed is None or first.packed.done()):
            self._hand_on()

    def _hand_on(self) -> None:
        first = self._waiting.popleft()
        self._ahead -= first.unpacked
        if first.packed is None:
            self._count(first.kept)
            return
        part, data = first.packed.result()
        self._count([part])
        self._sink(part, data)

    def _count(self, parts: Sequence[Part]) -> None:
        self.parts += parts
        self._total += sum(part.unpacked for part in parts)
        self._total_packed += sum(part.packed for part in parts)
        self._meter.stream(self._total, self._total_packed)

    def _fresh(self) -> None:
        self._runs: list[bytes] = []
        self._run = bytearray()
        self._unpacked = 0

    def _write(self, data: bytes) -> None:
        self._run += data
        self._unpacked += len(data)
        if len(self._run) >= CHUNK:
            self._runs.append(bytes(self._run))
            self._run.clear()


def _pack(runs: deque[bytes], unpacked: int) -> tuple[Part, bytes]:
    """Compresses a part; what is compressed is let go of at once."""
    gzip = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, GZIP)
    packed = bytearray()
    while runs:
        packed += gzip.compress(runs.popleft())
    packed += gzip.flush()
    data = bytes(packed)
    return Part(hashlib.sha256(data).hexdigest(), len(data), unpacked, google_crc32c.value(data)), data
