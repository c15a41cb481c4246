"""One restore on the store's side: the archive as one stream, or its parts, fetched and unpacked ahead."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from functools import partial

import google_crc32c
from isal import isal_zlib

from a2a_gcs.errors import NotFound, StoreError, Unavailable
from a2a_gcs.layout import part_key
from a2a_gcs.objectstore.checksums import encoded_crc32c, join_crc32c
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.archive import UNDECODABLE
from a2a_gcs.workspaces.bridge import Inflow, in_thread, outlast
from a2a_gcs.workspaces.cutting import MAX_PART, cut
from a2a_gcs.workspaces.errors import SnapshotCorrupt, SnapshotMissing, WorkspaceError
from a2a_gcs.workspaces.index import GZIP, Index, decode_tail, end_size
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.manifest import Baseline, Part, Span
from a2a_gcs.workspaces.unpack import Unpacked, unpack, unpack_plain
from a2a_gcs.workspaces.upload import TAIL

_AHEAD = 24 << 20  # bytes of the tar that may be under way
_LARGEST = 3 * MAX_PART  # what a part can unpack to
_NAMED = 16 << 20  # bytes of an archive up to which it gets a name


class PartsUnusable(Exception):
    """The archive has to be read as a whole: a part is gone or is not what the archive was joined from."""


class Download:
    """One restore into an open, empty directory."""

    def __init__(self, store: ObjectStore, key: str, pin: Pin, limits: Limits) -> None:
        self._store = store
        self._key = key
        self._pin = pin
        self._limits = limits
        self._digest = hashlib.sha256()
        self._inflow = Inflow()

    async def find(self) -> ObjectInfo:
        """The archive as it was pinned. Raises SnapshotMissing, StoreError."""
        try:
            info = await self._store.head(self._key)
        except NotFound as error:
            raise SnapshotMissing(self._key, f"there is no generation {self._pin.generation}") from error
        if (problem := self._problem(info)) is not None:
            raise problem
        return info

    # ------------------------------------------------------------------ in parts

    async def parts(self, root: int, info: ObjectInfo) -> Baseline:
        """Raises PartsUnusable, WorkspaceTooLarge, WorkspaceError, StoreError; part of the directory may be filled."""
        tail = info.metadata.get(TAIL, "")
        index = await self._index(info, tail)
        worker = in_thread(partial(unpack_plain, root, self._inflow, self._limits, info.size))
        try:
            async with contextlib.aclosing(self._ahead(index)) as chunks:
                await self._inflow.feed(chunks, worker)
            await asyncio.wait([worker])
            unpacked = worker.result()
        except (NotFound, SnapshotCorrupt) as error:
            raise PartsUnusable from error
        finally:
            self._inflow.stop()
            await outlast(worker)
        units = _units(index, unpacked)
        return self._baseline(info, unpacked, tail=tail, part_size=index.part_size, units=units)

    async def _index(self, info: ObjectInfo, name: str) -> Index:
        """The table of parts, if it describes exactly the pinned archive."""
        if not name:
            raise PartsUnusable
        try:
            tail = (await self._store.get(part_key(self._key, name))).body
            index = decode_tail(tail)
        except (NotFound, SnapshotCorrupt) as error:
            raise PartsUnusable from error
        last = Part(name, len(tail), 0, google_crc32c.value(tail))
        sizes = [part.packed for part in (*index.parts, last)]
        joined = join_crc32c([(part.crc32c, part.packed) for part in (*index.parts, last)])
        largest = max(part.unpacked for part in index.parts)
        if sum(sizes) != info.size or encoded_crc32c(joined) != self._pin.crc32c or largest > _LARGEST:
            raise PartsUnusable
        return index

    async def _ahead(self, index: Index) -> AsyncGenerator[bytes, None]:
        """The tar, from parts that are fetched and unpacked a few at once, in their order."""
        waiting = deque(index.parts)
        under_way: deque[tuple[asyncio.Task[bytes], int]] = deque()
        try:
            while waiting or under_way:
                while waiting and sum(size for _, size in under_way) + waiting[0].unpacked <= _AHEAD:
                    part = waiting.popleft()
                    under_way.append((asyncio.create_task(self._part(part)), part.unpacked))
                yield await under_way[0][0]
                under_way.popleft()
            yield bytes(end_size(index.parts))
        finally:
            for task, _ in under_way:
                task.cancel()
            await asyncio.gather(*(task for task, _ in under_way), return_exceptions=True)

    async def _part(self, part: Part) -> bytes:
        blob = await self._store.get(part_key(self._key, part.name))
        return await asyncio.to_thread(_plain, blob.body, part)

    # ------------------------------------------------------------------ as a whole

    async def whole(self, root: int, info: ObjectInfo) -> Baseline:
        """Raises as Snapshots.restore; part of the directory may be filled."""
        worker = in_thread(partial(unpack, root, self._inflow, self._limits))
        try:
            await self._feed(worker, named=info.size <= _NAMED)
            await asyncio.wait([worker])
            unpacked = worker.result()
        except NotFound as error:
            raise SnapshotMissing(self._key, f"there is no generation {self._pin.generation}") from error
        except (WorkspaceError, Unavailable) as error:
            diagnosis = await self._diagnosis(error)
            if diagnosis is error:
                raise
            raise diagnosis from error
        finally:
            self._inflow.stop()
            await outlast(worker)
        if self._inflow.crc32c != self._pin.crc32c:
            raise await self._diagnosis(self._mismatch())
        return self._baseline(info, unpacked, name=self._digest.hexdigest() if info.size <= _NAMED else "")

    async def _feed(self, worker: asyncio.Future[Unpacked], *, named: bool) -> None:
        async def digested(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
            async for chunk in chunks:
                if named:
                    self._digest.update(chunk)
                yield chunk

        chunks = self._store.stream(self._key, version=self._pin.generation)
        try:
            async with contextlib.aclosing(digested(chunks)) as through:
                await self._inflow.feed(through, worker)
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _diagnosis(self, error: WorkspaceError | Unavailable) -> Exception:
        """Tells an archive that is another one from one that is damaged, at the price of a HEAD."""
        try:
            info = await self._store.head(self._key)
        except NotFound:
            return SnapshotMissing(self._key, "it was deleted meanwhile")
        except StoreError:
            return error
        if (problem := self._problem(info)) is not None:
            return problem
        if isinstance(error, Unavailable) and self._inflow.fed == info.size:
            return self._mismatch() if self._inflow.crc32c != self._pin.crc32c else error
        return error

    def _problem(self, info: ObjectInfo) -> SnapshotMissing | None:
        if info.version != self._pin.generation:
            return SnapshotMissing(self._key, f"its generation is {info.version}, not {self._pin.generation}")
        if info.crc32c != self._pin.crc32c:
            return SnapshotMissing(self._key, f"its crc32c is {info.crc32c}, not {self._pin.crc32c}")
        return None

    def _mismatch(self) -> SnapshotCorrupt:
        mine = self._inflow.crc32c
        return SnapshotCorrupt(f"the bytes of {self._key!r} have the crc32c {mine}, not {self._pin.crc32c}")

    def _baseline(
        self,
        info: ObjectInfo,
        unpacked: Unpacked,
        *,
        name: str = "",
        tail: str = "",
        part_size: int = 0,
        units: Mapping[Span, tuple[Part, ...]] | None = None,
    ) -> Baseline:
        return Baseline(
            key=self._key,
            pin=self._pin,
            size=info.size,
            name=name,
            tail=tail,
            part_size=part_size,
            stamps=unpacked.tree.stamps(),
            recent=dict.fromkeys(unpacked.recent, b""),
            units=units or {},
            whole=unpacked.tree.whole,
        )


def _plain(packed: bytes, part: Part) -> bytes:
    """Unpacks one part. Raises SnapshotCorrupt if it is not the one that is meant."""
    if (len(packed), google_crc32c.value(packed)) != (part.packed, part.crc32c):
        raise SnapshotCorrupt(f"the part {part.name} is not what it was")
    try:
        unpacker = isal_zlib.decompressobj(GZIP)
        plain: bytes = unpacker.decompress(packed, part.unpacked + 1)
    except UNDECODABLE as error:
        raise SnapshotCorrupt(f"the part {part.name} cannot be unpacked: {error}") from error
    if len(plain) != part.unpacked:
        raise SnapshotCorrupt(f"the part {part.name} unpacks to another size")
    return plain


def _units(index: Index, unpacked: Unpacked) -> dict[Span, tuple[Part, ...]]:
    """Which parts hold which entries: where this program would cut the tree, and the archive is cut."""
    entries = unpacked.tree.entries
    if [path for path, _ in unpacked.places] != [entry.path for entry in entries]:
        return {}
    starts = dict(_starts(index.parts))
    units: dict[Span, tuple[Part, ...]] = {}
    offsets = [offset for _, offset in unpacked.places] + [unpacked.end]
    plan = cut([(entry.path, entry.content) for entry in entries], index.part_size)
    for unit in plan:
        begin, end = starts.get(offsets[unit.first]), starts.get(offsets[unit.stop])
        if begin is not None and end is not None:
            span = Span(entries[unit.first].path, entries[unit.stop - 1].path, unit.stop - unit.first)
            units[span] = index.parts[begin:end]
    return units


def _starts(parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """Where in the tar each part begins, and where the last one ends, with its number."""
    offset = 0
    for number, part in enumerate(parts):
        yield offset, number
        offset += part.unpacked
    yield offset, len(parts)
