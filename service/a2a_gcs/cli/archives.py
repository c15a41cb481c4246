"""Reads a task's workspace from the store alone: where its archive is, and the members in it, in flat memory.

The reader takes any plain tar.gz, of one or many gzip members, in the order in
which the bytes come. It is for looking, not for unpacking: names are what the
archive says, and nothing is written. What is unpacked goes through
`a2a_gcs.workspaces`.
"""

from __future__ import annotations

import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isal import igzip_lib, isal_zlib

from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.errors import NotFound
from a2a_gcs.layout import TaskRef, context_prefix, parse_task, task_key, workspace_key
from a2a_gcs.ledger.errors import START_FROM
from a2a_gcs.records import Base, Pin, TaskMeta
from a2a_gcs.task_records import TaskRecords

if TYPE_CHECKING:
    from a2a_gcs.objectstore import ObjectInfo, ObjectStore

PIECE = 1 << 20
"""Most bytes that are unpacked at once."""

_BLOCK = tarfile.BLOCKSIZE
_LONGEST_HEADER = 1 << 20
_GZIP = 31
_TEXT = ("utf-8", "surrogateescape")
_PAX = {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}
_DAMAGED: tuple[type[Exception], ...] = (igzip_lib.IsalError, EOFError)  # type: ignore[assignment]  # isal's stub is wrong


@dataclass(frozen=True, slots=True)
class Archive:
    """The workspace of a task, as it is stored.

    Attributes:
        ref: The task.
        pin: The archive, by its bytes.
        size: Bytes of the archive.
        pinned: task.json names these very bytes; else the task was canceled, or runs.
        base: What the task started from, where that is recorded.
    """

    ref: TaskRef
    pin: Pin
    size: int
    pinned: bool
    base: Base | None = None

    @property
    def key(self) -> str:
        return workspace_key(self.ref)


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of an archive.

    Attributes:
        path: Below the workspace, empty for itself; names that are no UTF-8 hold surrogates.
        kind: `file`, `directory`, `symlink`, `hardlink` or `other`.
        mode: Permission bits.
        size: Bytes of content; 0 but for files.
        mtime: Seconds since 1970.
        target: Of links.
    """

    path: str
    kind: str
    mode: int
    size: int
    mtime: float
    target: str = ""


async def find_archive(store: ObjectStore, task_id: str) -> Archive:
    """The workspace of a task.

    Raises:
        CommandFailed: There is no such task, or it has no workspace yet.
        InvalidId: No task can have this id.
        StoreError: The store failed.
    """
    records = TaskRecords(store)
    context_id = await records.context_of(task_id)
    if context_id is None:
        raise CommandFailed(f"there is no task {task_id!r} in this store")
    ref = TaskRef(context_id, task_id)
    seen = await records.peek(ref)
    meta = seen[1] if seen else None
    try:
        info = await store.head(workspace_key(ref))
    except NotFound:
        raise CommandFailed(f"task {task_id!r} has no workspace{_yet(meta)}") from None
    pin = Pin(info.version, info.crc32c)
    return Archive(ref, pin, info.size, pinned=meta is not None and meta.pin == pin, base=meta.base if meta else None)


def _yet(meta: TaskMeta | None) -> str:
    if meta is None or meta.open:
        return " yet: it is saved when its turn ends"
    state = meta.state.removeprefix("TASK_STATE_").lower().replace("_", "-")
    return f": it is {state}, and nothing was saved"


async def find_base(store: ObjectStore, archive: Archive) -> Archive | None:
    """The workspace that a task started from; None if that was empty.

    Where an earlier version did not record it, that of the task that the message named, or of the last
    completed one: tasks of a context follow each other, so whatever was written before this task's own
    record, by the store's clock, came before it.

    Raises:
        CommandFailed: It is gone, or is another one by now.
    """
    if archive.base is not None:
        return await _recorded(store, archive, archive.base)
    named = await _start_named(store, archive.ref)
    if named:
        return await find_archive(store, named)
    records = [info async for info in _task_records(store, archive.ref.context_id)]
    until = next((info.updated for info in records if info.key == task_key(archive.ref)), float("inf"))
    earlier = [info for info in records if info.updated < until and _completed(info)]
    if not earlier:
        return None
    ref = parse_task(max(earlier, key=lambda info: info.updated).key)
    return await find_archive(store, ref.task_id) if ref else None


async def _recorded(store: ObjectStore, archive: Archive, base: Base) -> Archive | None:
    if not base.task_id:
        return None
    found = await find_archive(store, base.task_id)
    if found.pin.crc32c != base.crc32c:
        raise CommandFailed(
            f"task {archive.ref.task_id!r} started from what task {base.task_id!r} held then, which was replaced since"
        )
    return found


async def _start_named(store: ObjectStore, ref: TaskRef) -> str:
    record = await TaskRecords(store).load(ref)
    if record is None or not record.task.history:
        return ""
    return str(dict(record.task.history[0].metadata).get(START_FROM, ""))


async def _task_records(store: ObjectStore, context_id: str) -> AsyncIterator[ObjectInfo]:
    prefix, page = context_prefix(context_id), None
    while True:
        listing = await store.list(prefix, page=page)
        for info in listing.objects:
            if parse_task(info.key):
                yield info
        page = listing.next
        if page is None:
            return


def _completed(info: ObjectInfo) -> bool:
    meta = TaskMeta.from_metadata(info.key, info.metadata)
    return meta.state == "TASK_STATE_COMPLETED" and meta.pin is not None


class TarGz:
    """The members of a tar.gz whose bytes come in chunks; iterate, and read the `content` of each before the next."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._packed = b""
        self._inflate = isal_zlib.decompressobj(_GZIP)
        self._plain = bytearray()
        self._left = 0
        self._padding = 0

    async def __aiter__(self) -> AsyncIterator[Entry]:
        while (entry := await self._next()) is not None:
            yield entry

    async def content(self) -> AsyncGenerator[bytes, None]:
        """The content of the file that the iteration is at, in pieces."""
        while self._left:
            piece = await self._some(min(self._left, PIECE))
            self._left -= len(piece)
            yield piece

    async def _next(self) -> Entry | None:
        async for _ in self.content():
            pass
        await self._exactly(self._padding)
        self._padding = 0
        records: dict[str, str] = {}
        while True:
            block = await self._exactly(_BLOCK)
            if not block.strip(b"\0"):
                return None
            info = _header(block)
            if info.type in _PAX:
                records |= _records(await self._extended(info))
            elif info.type == tarfile.XGLTYPE:
                await self._extended(info)
            elif info.type == tarfile.GNUTYPE_LONGNAME:
                records["path"] = (await self._extended(info)).rstrip(b"\0").decode(*_TEXT)
            elif info.type == tarfile.GNUTYPE_LONGLINK:
                records["linkpath"] = (await self._extended(info)).rstrip(b"\0").decode(*_TEXT)
            else:
                return self._entry(info, records)

    def _entry(self, info: tarfile.TarInfo, records: dict[str, str]) -> Entry:
        kind = _kind(info)
        try:
            size = int(records.get("size", info.size)) if kind == "file" else 0
            mtime = float(records.get("mtime", info.mtime))
        except ValueError as error:
            raise CommandFailed(f"the archive holds a damaged header: {error}") from error
        if size < 0:
            raise CommandFailed("the archive holds a damaged header: its size is negative")
        self._left, self._padding = size, -size % _BLOCK
        path = records.get("path", info.name).strip("/").removeprefix("./")
        path = "" if path == "." else path
        return Entry(path, kind, info.mode & 0o7777, size, mtime, records.get("linkpath", info.linkname))

    async def _extended(self, info: tarfile.TarInfo) -> bytes:
        if not 0 <= info.size <= _LONGEST_HEADER:
            raise CommandFailed(f"the archive has an extended header of {info.size:,} bytes")
        payload = await self._exactly(info.size)
        await self._exactly(-info.size % _BLOCK)
        return payload

    async def _exactly(self, size: int) -> bytes:
        while len(self._plain) < size:
            await self._more()
        data = bytes(self._plain[:size])
        del self._plain[:size]
        return data

    async def _some(self, size: int) -> bytes:
        if not self._plain:
            await self._more()
        return await self._exactly(min(size, len(self._plain)))

    async def _more(self) -> None:
        """Unpacks one more piece. Raises CommandFailed at the end of what there is."""
        while not self._packed:
            try:
                self._packed = await anext(self._chunks)
            except StopAsyncIteration:
                raise CommandFailed("the archive ends in the middle: it is truncated") from None
        if self._inflate.eof:  # the next gzip member
            self._inflate = isal_zlib.decompressobj(_GZIP)
        try:
            self._plain += self._inflate.decompress(self._packed, PIECE)
        except _DAMAGED as error:
            raise CommandFailed(f"the archive cannot be unpacked: {error}") from error
        self._packed = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, *_TEXT)
    except (tarfile.HeaderError, ValueError) as error:
        raise CommandFailed(f"the archive holds a damaged header: {error}") from error


def _records(payload: bytes) -> dict[str, str]:
    """A PAX header: length, space, name, =, value, newline."""
    records, rest = {}, payload
    while rest.strip(b"\0"):
        length, _, _ = rest.partition(b" ")
        if not length.isdigit() or not len(length) < int(length) <= len(rest):
            raise CommandFailed("the archive holds a damaged extended header")
        record, rest = rest[len(length) + 1 : int(length) - 1], rest[int(length) :]
        name, _, value = record.partition(b"=")
        records[name.decode(*_TEXT)] = value.decode(*_TEXT)
    return records


def _kind(info: tarfile.TarInfo) -> str:
    if info.isreg():
        return "file"
    if info.isdir():
        return "directory"
    if info.issym():
        return "symlink"
    return "hardlink" if info.islnk() else "other"
