"""The members of a workspace's archive, as they come, in flat memory.

The reader takes any plain tar.gz, of one or many gzip members, in the order in
which the bytes come. It is for looking, not for unpacking: names are what the
archive says, and nothing is written. What is unpacked goes through
`a2a_gcs.workspaces`.
"""

from __future__ import annotations

import asyncio
import contextlib
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from isal import igzip_lib, isal_zlib

from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.workspaces.errors import SnapshotCorrupt, WorkspaceTooLarge
from a2a_gcs.workspaces.finding import Archive

PIECE = 1 << 20
"""Most bytes that are unpacked at once."""

_BLOCK = tarfile.BLOCKSIZE
_LONGEST_HEADER = 1 << 20
_GZIP = 31
_TEXT = ("utf-8", "surrogateescape")
_PAX = {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}
_DAMAGED: tuple[type[Exception], ...] = (igzip_lib.IsalError, EOFError)  # type: ignore[assignment]  # isal's stub is wrong


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


class TarGz:
    """The members of a tar.gz whose bytes come in chunks; iterate, and read the `content` of each before the next."""

    def __init__(self, chunks: AsyncIterator[bytes], *, most: int | None = None) -> None:
        """Raises WorkspaceTooLarge, later, where more than `most` bytes would have to be unpacked."""
        self._chunks = chunks
        self._most = most
        self._unpacked = 0
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
            raise SnapshotCorrupt(f"the archive holds a damaged header: {error}") from error
        if size < 0:
            raise SnapshotCorrupt("the archive holds a damaged header: its size is negative")
        self._left, self._padding = size, -size % _BLOCK
        path = records.get("path", info.name).strip("/").removeprefix("./")
        path = "" if path == "." else path
        return Entry(path, kind, info.mode & 0o7777, size, mtime, records.get("linkpath", info.linkname))

    async def _extended(self, info: tarfile.TarInfo) -> bytes:
        if not 0 <= info.size <= _LONGEST_HEADER:
            raise SnapshotCorrupt(f"the archive has an extended header of {info.size:,} bytes")
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
        """Unpacks one more piece. Raises SnapshotCorrupt at the end of all, WorkspaceTooLarge past the limit."""
        while not self._packed:
            try:
                self._packed = await anext(self._chunks)
            except StopAsyncIteration:
                raise SnapshotCorrupt("the archive ends in the middle: it is truncated") from None
        if self._inflate.eof:  # the next gzip member
            self._inflate = isal_zlib.decompressobj(_GZIP)
        before = len(self._plain)
        try:
            self._plain += self._inflate.decompress(self._packed, PIECE)
        except _DAMAGED as error:
            raise SnapshotCorrupt(f"the archive cannot be unpacked: {error}") from error
        self._unpacked += len(self._plain) - before
        if self._most is not None and self._unpacked > self._most:
            raise WorkspaceTooLarge(f"more than {self._most:,} bytes would have to be unpacked to look further")
        await asyncio.sleep(0)  # a piece takes a millisecond, and others wait
        self._packed = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail


@contextlib.asynccontextmanager
async def members(store: ObjectStore, archive: Archive, *, most: int | None = None) -> AsyncIterator[TarGz]:
    """The members of a stored archive as they come; leaving early reads no further.

    Args:
        store: Where it is.
        archive: The archive, at its very generation.
        most: Most bytes to unpack.
    """
    async with closing(store.stream(archive.key, version=archive.pin.generation)) as chunks:
        yield TarGz(chunks, most=most)


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, *_TEXT)
    except (tarfile.HeaderError, ValueError) as error:
        raise SnapshotCorrupt(f"the archive holds a damaged header: {error}") from error


def _records(payload: bytes) -> dict[str, str]:
    """A PAX header: length, space, name, =, value, newline."""
    records, rest = {}, payload
    while rest.strip(b"\0"):
        length, _, _ = rest.partition(b" ")
        if not length.isdigit() or not len(length) < int(length) <= len(rest):
            raise SnapshotCorrupt("the archive holds a damaged extended header")
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
