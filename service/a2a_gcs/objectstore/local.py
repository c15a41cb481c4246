"""A bucket in a local directory: real compare-and-swap between the processes of one machine."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from a2a_gcs.errors import Conflict, PermissionDenied, Unavailable
from a2a_gcs.objectstore.local_tree import HIDDEN, Draft, LocalTree, Row
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
    survives a power failure only when `durable`: that costs three waits for
    the disk per write, and a laptop that loses power may lose its last moments.

    Args:
        root: The directory; made with the first call.
        durable: fsync bodies, directories and the index before a write is acknowledged.
    """

    def __init__(self, root: str | Path, *, durable: bool = False) -> None:
        self._root = Path(root)
        self._durable = durable
        self._opening = threading.Lock()
        self._opened: LocalTree | None = None

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

        def write(tree: LocalTree) -> ObjectInfo:
            with _drafting(tree) as draft:
                draft.write(body)
                draft.finish(durable=tree.durable)
                return tree.commit(key, draft, mode, metadata=copied, content_type=content_type)

        return _now(await self._run(key, write, writes=True))

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
        draft = await self._run(key, lambda tree: tree.draft())
        try:
            async for chunk in chunks:
                await self._run(key, lambda _, data=chunk: draft.write(data))  # type: ignore[misc]
            await self._run(key, lambda tree: draft.finish(durable=tree.durable))
            return _now(
                await self._run(
                    key,
                    lambda tree: tree.commit(key, draft, mode, metadata=copied, content_type=content_type),
                    writes=True,
                )
            )
        finally:
            draft.discard()

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        validate_key(key)
        row, file = await self._run(key, lambda tree: tree.open(key, version))
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
        await self._run(key, lambda tree: tree.remove(key, version), writes=True)

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

        def write(tree: LocalTree) -> ObjectInfo:
            with _drafting(tree) as draft:
                for source in sources:
                    _append(tree, draft, source)
                draft.finish(durable=tree.durable)
                return tree.commit(key, draft, mode, sources=sources, metadata=copied, content_type=content_type)

        return _now(await self._run(key, write, writes=True))

    async def close(self) -> None:
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)

    async def _run(self, key: str, call: Callable[[LocalTree], T], *, writes: bool = False) -> T:
        def work() -> T:
            with _closed_errors(key, ambiguous=writes):
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


@contextlib.contextmanager
def _drafting(tree: LocalTree) -> Iterator[Draft]:
    """A draft that is gone afterwards, unless it was committed."""
    draft = tree.draft()
    try:
        yield draft
    finally:
        draft.discard()


def _append(tree: LocalTree, draft: Draft, source: Source) -> None:
    """Copies a source into a draft; the commit checks once more that a pinned one is still current."""
    row, file = tree.open(source.key, None)
    with file:
        if source.version not in {None, row.info.version}:
            raise Conflict(source.key)
        draft.append(file, row.info)


def _read(tree: LocalTree, key: str, version: int | None) -> Blob:
    row, file = tree.open(key, version)
    with file:
        body = file.read()
    _verify(key, row, crc32c(body))
    return Blob(row.info, body)


def _verify(key: str, row: Row, checksum: str) -> None:
    if checksum != row.info.crc32c:
        raise Unavailable(key, ValueError("the checksum does not match"))


def _now(info: ObjectInfo) -> ObjectInfo:
    return replace(info, as_of=wall_clock())
