"""One save on the store's side: a copy, one upload, or parts that the store joins."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import google_crc32c

from a2a_gcs.errors import Conflict, NotFound, Unavailable
from a2a_gcs.layout import part_key
from a2a_gcs.objectstore.checksums import encoded_crc32c, join_crc32c
from a2a_gcs.objectstore.port import IF_ABSENT, IfVersion, Mode, ObjectInfo, ObjectStore, Source
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.bridge import Outflow, in_thread, outlast
from a2a_gcs.workspaces.cutting import part_size
from a2a_gcs.workspaces.index import Index, encode_tail
from a2a_gcs.workspaces.joining import Joiner
from a2a_gcs.workspaces.manifest import Baseline, Part, unchanged
from a2a_gcs.workspaces.saving import Packed, Reading
from a2a_gcs.workspaces.scanner import Tree

CONTENT_TYPE = "application/gzip"
TAIL = "tail"
"""Metadata name under which a composed archive names its last part."""
OWNER = "saved-by"
"""Metadata name of the claim that wrote an archive."""
_WRITE = "save-id"
_AT_ONCE_BYTES = 256 << 10
_AT_ONCE_ENTRIES = 64
"""What the thread that has looked at it packs in memory: a further thread costs as much as a small archive does."""
_WAITING = 1
_IN_FLIGHT = 4

T = TypeVar("T")
Send = Callable[[Mode, dict[str, str]], Awaitable[ObjectInfo]]


class Again(Exception):
    """What this save relied on is not so; it knows better now, and the next try can succeed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An archive that is in the store, and what is known of its directory."""

    baseline: Baseline
    notes: Sequence[str]


class Upload:
    """The tries of one save.

    Args:
        store: Where the archive goes.
        key: Its object.
        joiner: Joins parts.
        replaces: Generation that it may replace; 0: there must be none.
        base: What is known of the directory from an earlier archive.
        owner: Who saves: whatever carries this name was written by an earlier try, or an earlier save, of the same
            claim, and may be replaced.
        whole: Bytes of content up to which an archive is one upload.
        smallest: Bytes that parts are cut for at least.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        joiner: Joiner,
        *,
        replaces: int,
        base: Baseline | None,
        owner: str,
        whole: int,
        smallest: int,
    ) -> None:
        self._store = store
        self._key = key
        self._replaces = replaces
        self._base = base
        self._owner = owner
        self._whole = whole
        self._smallest = smallest
        self._joiner = joiner
        self._ambiguous = False
        self._there: set[str] = set(base.known) if base else set()
        self.sent = 0

    async def run(self, reading: Reading) -> Stored:
        """One try.

        Raises:
            Again, Changed: Try again.
            Conflict, WorkspaceError, StoreError: As Snapshots.save.
        """
        outflow: Outflow[bytes] = Outflow()
        look = partial(self._look, reading, outflow.check)
        tree, small = look() if reading.is_empty else await _thread(outflow, look)
        if self._is_unchanged(tree) and self._base is not None:
            info = await self._copy(self._base)
            if info is not None:
                return self._stored(info, _as_it_was(self._base, tree, reading), self._base.tail)
        if small is not None:
            return await self._small(tree, *small)
        if tree.content <= self._whole:
            return await self._one(reading, tree)
        known = self._base.part_size if self._base else 0
        return await self._parts(reading, part_size(tree.content, self._smallest, known=known))

    def _look(self, reading: Reading, check: Callable[[], None]) -> tuple[Tree, tuple[Packed, bytes] | None]:
        """What is there, with the archive of it where that is small and not known to be an old one; blocks."""
        tree = reading.look(check)
        small = tree.content <= min(_AT_ONCE_BYTES, self._whole) and len(tree.entries) <= _AT_ONCE_ENTRIES
        return tree, reading.at_once(check) if small and not self._is_unchanged(tree) else None

    def _is_unchanged(self, tree: Tree) -> bool:
        return self._base is not None and not self._base.recent and unchanged(self._base, tree.stamps())

    # ------------------------------------------------------------------ the four ways

    async def _copy(self, base: Baseline) -> ObjectInfo | None:
        """The old archive under this key; None if it is not there any more."""
        source = [Source(base.key, base.pin.generation)]

        async def send(mode: Mode, metadata: dict[str, str]) -> ObjectInfo:
            return await self._store.compose(self._key, source, mode, metadata=metadata, content_type=CONTENT_TYPE)

        try:
            info = await self._commit(send, {TAIL: base.tail} if base.tail else {})
        except NotFound:
            return None
        except Conflict:
            if await self._version() != self._replaces:
                raise
            return None  # it is the source that is another one
        if info.crc32c != base.pin.crc32c:
            self._replaces = info.version
            return None
        return info

    async def _small(self, tree: Tree, packed: Packed, archive: bytes) -> Stored:
        """One upload of what is packed already, unless the old archive holds it."""
        base = self._base
        if base and base.name == packed.name and unchanged(base, tree.stamps()) and (info := await self._copy(base)):
            return self._stored(info, packed)

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield archive

        async def send(mode: Mode, metadata: dict[str, str]) -> ObjectInfo:
            async with contextlib.aclosing(pieces()) as chunks:
                return await self._store.put_stream(
                    self._key, chunks, mode, metadata=metadata, content_type=CONTENT_TYPE
                )

        info = await self._commit(send, {})
        self.sent += info.size
        return self._stored(info, packed)

    async def _one(self, reading: Reading, tree: Tree) -> Stored:
        """One plain upload, unless what it would upload is what the old archive holds."""
        if self._base and self._base.name and unchanged(self._base, tree.stamps()):
            outflow: Outflow[bytes] = Outflow()
            packed = await _thread(outflow, partial(reading.whole, lambda _: None, outflow.check))
            if packed.name == self._base.name and (info := await self._copy(self._base)) is not None:
                return self._stored(info, packed)
        return await self._stream(reading)

    async def _stream(self, reading: Reading) -> Stored:
        outflow: Outflow[bytes] = Outflow()
        worker = in_thread(partial(reading.whole, outflow.write, outflow.check))

        async def send(mode: Mode, metadata: dict[str, str]) -> ObjectInfo:
            async with contextlib.aclosing(outflow.chunks(worker)) as chunks:
                return await self._store.put_stream(
                    self._key, chunks, mode, metadata=metadata, content_type=CONTENT_TYPE
                )

        try:
            info = await self._commit(send, {})
            packed = worker.result()
        finally:
            outflow.stop()
            await outlast(worker)
        self.sent += info.size
        return self._stored(info, packed)

    async def _parts(self, reading: Reading, size: int) -> Stored:
        outflow: Outflow[tuple[Part, bytes]] = Outflow(_WAITING)
        worker = in_thread(partial(reading.parts, self._base, size, outflow))
        try:
            await self._put_all(outflow, worker)
            packed = worker.result()
        finally:
            outflow.stop()
            await outlast(worker)
        tail = encode_tail(Index(size, tuple(packed.parts)))
        last = Part(hashlib.sha256(tail).hexdigest(), len(tail), 0, google_crc32c.value(tail))
        if self._base and self._base.tail == last.name and (info := await self._copy(self._base)) is not None:
            return self._stored(info, packed, last.name, size)
        if last.name not in self._there:
            await self._put(last, tail)
        info = await self._join([*packed.parts, last])
        return self._stored(info, packed, last.name, size)

    # ------------------------------------------------------------------ parts

    async def _put_all(self, outflow: Outflow[tuple[Part, bytes]], worker: asyncio.Future[Packed]) -> None:
        """Uploads parts as they are packed, a few at once; those that are there already are not sent."""
        slots = asyncio.Semaphore(_IN_FLIGHT)
        on_the_way: set[str] = set()

        async def put(part: Part, data: bytes) -> None:
            try:
                await self._put(part, data)
            finally:
                slots.release()

        try:
            async with asyncio.TaskGroup() as group, contextlib.aclosing(outflow.chunks(worker)) as packed:
                async for part, data in packed:
                    if part.name not in self._there | on_the_way:
                        on_the_way.add(part.name)
                        await slots.acquire()
                        group.create_task(put(part, data))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _put(self, part: Part, data: bytes) -> None:
        key = part_key(self._key, part.name)
        with contextlib.suppress(Conflict):  # named by its content: it is there already
            await self._store.put(key, data, IF_ABSENT, content_type=CONTENT_TYPE)
            self.sent += len(data)
        self._there.add(part.name)

    async def _join(self, parts: Sequence[Part]) -> ObjectInfo:
        """Composes the archive. Raises Again if a part is missing or is not what its name says."""
        sources = [Source(part_key(self._key, part.name)) for part in parts]

        async def send(mode: Mode, metadata: dict[str, str]) -> ObjectInfo:
            return await self._joiner.join(self._key, sources, mode, metadata, CONTENT_TYPE)

        try:
            info = await self._commit(send, {TAIL: parts[-1].name})
        except NotFound as error:
            await self._forget(parts)
            raise Again from error
        if info.crc32c != encoded_crc32c(join_crc32c([(part.crc32c, part.packed) for part in parts])):
            self._replaces = info.version
            await self._forget(parts)
            raise Again
        return info

    async def _forget(self, parts: Sequence[Part]) -> None:
        """Finds out which parts are in the store as they should be, and relies on no others."""
        found = await self._joiner.parts_of(self._key)
        bad = {part.name for part in parts if found.get(part.name) != (part.packed, encoded_crc32c(part.crc32c))}
        for name in bad & found.keys():
            with contextlib.suppress(NotFound):
                await self._store.delete(part_key(self._key, name))
        self._there -= bad
        if self._base:
            units = {s: u for s, u in self._base.units.items() if not any(part.name in bad for part in u)}
            self._base = replace(self._base, units=units, tail="", name="")

    # ------------------------------------------------------------------ the archive itself

    async def _commit(self, send: Send, metadata: Mapping[str, str]) -> ObjectInfo:
        """Writes the archive on the condition of the generation that is to be replaced (rule *wscas*).

        A Conflict may be this claim's own doing: this very write, whose answer was lost, or an earlier one.
        """
        write = uuid.uuid4().hex
        mode: Mode = IfVersion(self._replaces) if self._replaces else IF_ABSENT
        try:
            return await send(mode, {OWNER: self._owner, _WRITE: write, **metadata})
        except (Conflict, Unavailable) as error:
            self._ambiguous |= error.ambiguous
            info = await self._head() if self._ambiguous or isinstance(error, Conflict) else None
            if info is not None and info.metadata.get(_WRITE) == write:
                return info
            if info is not None and info.metadata.get(OWNER) == self._owner and info.version != self._replaces:
                self._replaces = info.version
                raise Again from error
            raise

    async def _head(self) -> ObjectInfo | None:
        try:
            return await self._store.head(self._key)
        except NotFound:
            return None

    async def _version(self) -> int:
        info = await self._head()
        return info.version if info else 0

    def _stored(self, info: ObjectInfo, packed: Packed, tail: str = "", size: int = 0) -> Stored:
        baseline = Baseline(
            key=self._key,
            pin=Pin(info.version, info.crc32c),
            size=info.size,
            name=packed.name,
            tail=tail,
            part_size=size or (self._base.part_size if self._base and tail else 0),
            stamps=packed.stamps,
            recent=packed.recent,
            units=packed.units,
            whole=packed.whole,
        )
        return Stored(baseline, packed.notes)


def _as_it_was(base: Baseline, tree: Tree, reading: Reading) -> Packed:
    return Packed(tree.stamps(), {}, tree.whole, reading.notes, name=base.name, units=base.units)


async def _thread(outflow: Outflow[bytes], work: Callable[[], T]) -> T:
    worker = in_thread(work)
    try:
        await asyncio.wait([worker])
        return worker.result()
    finally:
        outflow.stop()
        await outlast(worker)
