"""A bucket in a local directory: real compare-and-swap between the processes of one machine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from a2a_gcs.errors import Conflict, PermissionDenied, Unavailable
from a2a_gcs.objectstore.local_draft import Draft
from a2a_gcs.objectstore.local_index import Row
from a2a_gcs.objectstore.local_tree import HIDDEN, LocalTree, Put, Remove, incoming
from a2a_gcs.objectstore.local_writes import Writes
from a2a_gcs.objectstore.memory import wall_clock
from a2a_gcs.objectstore.port import MAX_PAGE, Blob, Mode, ObjectInfo, ObjectStore, Page, Source
from a2a_gcs.objectstore.rules import (
    STREAM_CHUNK,
    Crc32c,
    crc32c,
    validate_key,
    validate_limit,
    validate_sources,
    validate_write,
)

T = TypeVar("T")


class LocalStore(ObjectStore):
    """Objects under a directory; `ls`, `cat` and `tar` see the bodies under their keys.

    Any number of processes of one machine may use the same directory on a
    local filesystem (not NFS). What is acknowledged survives kill -9. It
    survives a power failure only when `durable`: that costs a wait for the
    disk, which writes that come at the same time share, and for each body
    over 64 KiB three more. Without, a laptop that loses power may lose its last moments.

    Args:
        root: The directory; made with the first call.
        durable: fsync bodies, directories and the index before a write is acknowledged.
    """

    def __init__(self, root: str | Path, *, durable: bool = False) -> None:
        self._root = Path(root)
        self._durable = durable
        self._opening = threading.Lock()
        self._opened: LocalTree | None = None
        self._writes = Writes(lambda changes: self._tree().apply(changes))

    @staticmethod
    def is_at(root: Path) -> bool:
        """Whether objects have been kept under a directory, or could have been: it has been opened before."""
        return (root / HIDDEN).is_dir()

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        validate_key(key)
        blob = await self._run(key, lambda tree: _read(tree, key, version))
        # As in MemoryStore: only what the port promises.
        info = blob.info if with_metadata else replace(blob.info, metadata={}, updated=0.0)
        return Blob(_now(info), blob.body)

    async def head(self, key: str) -> ObjectInfo:
        validate_key(key)
        return _now((await self._run(key, lambda tree: tree.find(key))).info)

    async def put(
        self,
        key: str,
        body: bytes,
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        copied = validate_write(key, mode, metadata)
        draft = Draft(incoming(self._root))
        try:
            await self._fill(key, draft, body)
            return await self._put(key, draft, mode, copied, content_type)
        finally:
            draft.discard()

    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        copied = validate_write(key, mode, metadata)
        draft = Draft(incoming(self._root))
        try:
            async for chunk in chunks:
                await self._fill(key, draft, chunk)
            return await self._put(key, draft, mode, copied, content_type)
        finally:
            draft.discard()

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        validate_key(key)
        row, body = await self._run(key, lambda tree: tree.open(key, version))
        file = io.BytesIO(body) if isinstance(body, bytes) else body
        checksum = Crc32c()
        try:
            while chunk := await self._run(key, lambda _: file.read(STREAM_CHUNK)):
                checksum.update(chunk)
                yield chunk
        finally:
            file.close()
        _verify(key, row, checksum.encoded())

    async def delete(self, key: str, *, version: int | None = None) -> None:
        validate_key(key)
        with _closed_errors(key, ambiguous=True):
            await self._writes.make(Remove(key, version))

    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        validate_limit(limit)
        infos = await self._run(prefix, lambda tree: tree.page(prefix, start, page, limit + 1, as_of=wall_clock()))
        return Page(infos[:limit], infos[limit - 1].key if len(infos) > limit else None)

    async def compose(
        self,
        key: str,
        sources: Sequence[Source],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        copied = validate_write(key, mode, metadata)
        validate_sources(sources)

        draft = Draft(incoming(self._root))

        def join(tree: LocalTree) -> None:
            for source in sources:
                _append(tree, draft, source)

        try:
            await self._run(key, join)
            return await self._put(key, draft, mode, copied, content_type, sources)
        finally:
            draft.discard()

    async def close(self) -> None:
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)

    async def _fill(self, key: str, draft: Draft, data: bytes) -> None:
        if draft.stays_small(len(data)):
            draft.write(data)
        else:
            await self._run(key, lambda _: draft.write(data))

    async def _put(  # noqa: PLR0917 - what a write is made of
        self,
        key: str,
        draft: Draft,
        mode: Mode,
        metadata: dict[str, str],
        content_type: str,
        sources: Sequence[Source] = (),
    ) -> ObjectInfo:
        if draft.body is None:
            await self._run(key, lambda tree: draft.finish(durable=tree.durable))
        with _closed_errors(key, ambiguous=True):
            info = await self._writes.make(Put(key, draft, mode, metadata, content_type, sources))
        assert info is not None
        return _now(info)

    async def _run(self, key: str, call: Callable[[LocalTree], T]) -> T:
        def work() -> T:
            with _closed_errors(key, ambiguous=False):
                return call(self._tree())

        return await asyncio.to_thread(work)

    def _tree(self) -> LocalTree:
        with self._opening:
            if self._opened is None:
                self._opened = LocalTree(self._root, durable=self._durable)
            return self._opened


@contextlib.contextmanager
def _closed_errors(key: str, *, ambiguous: bool) -> Iterator[None]:
    """The closed set of the port in place of what the operating system and SQLite raise."""
    try:
        yield
    except PermissionError as error:
        raise PermissionDenied(key, error) from error
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(key, error, ambiguous=ambiguous) from error


def _append(tree: LocalTree, draft: Draft, source: Source) -> None:
    """Copies a source into a draft; the commit checks once more that a pinned one is still current."""
    row, body = tree.open(source.key, None)
    with contextlib.nullcontext() if isinstance(body, bytes) else body:
        if source.version not in {None, row.info.version}:
            raise Conflict(source.key)
        draft.append(body, row.info)


def _read(tree: LocalTree, key: str, version: int | None) -> Blob:
    row, body = tree.open(key, version)
    if not isinstance(body, bytes):
        with body:
            body = body.read()
    _verify(key, row, crc32c(body))
    return Blob(row.info, body)


def _verify(key: str, row: Row, checksum: str) -> None:
    if checksum != row.info.crc32c:
        raise Unavailable(key, ValueError("the checksum does not match"))


def _now(info: ObjectInfo) -> ObjectInfo:
    return replace(info, as_of=wall_clock())
