"""Counts what a store is asked, in the classes that GCS bills (FACTS 1)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from a2a_gcs.clock import boottime
from a2a_gcs.errors import StoreError
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import MAX_PAGE, Blob, Mode, ObjectInfo, ObjectStore, Page, Source

_log = structlog.get_logger("a2a_gcs.objectstore")


@dataclass(slots=True)
class StoreStats:
    """Running totals. Failed calls count too: GCS bills a 404 and a 412 like a success.

    Attributes:
        operations: Calls by verb.
        class_a: Writes, lists and composes, $5 per million.
        class_b: Reads, $0.40 per million; a get with metadata is two.
        free: Deletes.
        bytes_in: Bytes of bodies written.
        bytes_out: Bytes of bodies read.
        errors: Failed calls by the name of the error.
    """

    operations: Counter[str] = field(default_factory=Counter)
    class_a: int = 0
    class_b: int = 0
    free: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class InstrumentedStore(ObjectStore):
    """Counts every call in `stats` and writes a debug line about it.

    Placed directly above an adapter it counts tries, which are what is billed.

    Args:
        store: The store below.
        stats: Totals to add to; several stores may share them.
    """

    def __init__(self, store: ObjectStore, stats: StoreStats | None = None) -> None:
        self._store = store
        self.stats = stats if stats is not None else StoreStats()

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        with self._counted("get", key, b=2 if with_metadata else 1):
            blob = await self._store.get(key, version=version, with_metadata=with_metadata)
            self.stats.bytes_out += len(blob.body)
            return blob

    async def head(self, key: str) -> ObjectInfo:
        with self._counted("head", key, b=1):
            return await self._store.head(key)

    async def put(
        self,
        key: str,
        body: bytes,
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        with self._counted("put", key, a=1):
            self.stats.bytes_in += len(body)
            return await self._store.put(key, body, mode, metadata=metadata, content_type=content_type)

    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        async def counted() -> AsyncGenerator[bytes, None]:
            async for chunk in chunks:
                self.stats.bytes_in += len(chunk)
                yield chunk

        with self._counted("put_stream", key, a=1):
            async with contextlib.aclosing(counted()) as through:
                return await self._store.put_stream(key, through, mode, metadata=metadata, content_type=content_type)

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        with self._counted("stream", key, b=1):
            async with closing(self._store.stream(key, version=version)) as chunks:
                async for chunk in chunks:
                    self.stats.bytes_out += len(chunk)
                    yield chunk

    async def delete(self, key: str, *, version: int | None = None) -> None:
        with self._counted("delete", key, free=1):
            await self._store.delete(key, version=version)

    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        with self._counted("list", prefix, a=1):
            return await self._store.list(prefix, start=start, page=page, limit=limit)

    async def compose(
        self,
        key: str,
        sources: Sequence[Source],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        with self._counted("compose", key, a=1):
            return await self._store.compose(key, sources, mode, metadata=metadata, content_type=content_type)

    async def close(self) -> None:
        await self._store.close()

    @contextlib.contextmanager
    def _counted(self, verb: str, key: str, *, a: int = 0, b: int = 0, free: int = 0) -> Iterator[None]:
        stats = self.stats
        stats.operations[verb] += 1
        stats.class_a += a
        stats.class_b += b
        stats.free += free
        began = boottime()
        outcome = "ok"
        try:
            yield
        except StoreError as error:
            outcome = type(error).__name__
            stats.errors[outcome] += 1
            raise
        finally:
            _log.debug("store call", verb=verb, key=key, outcome=outcome, seconds=round(boottime() - began, 4))
