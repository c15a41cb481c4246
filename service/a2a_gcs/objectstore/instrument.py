"""Counts, measures and traces what a store is asked, in the classes that GCS bills (service/docs/costs.md)."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

import structlog

from a2a_gcs import telemetry
from a2a_gcs.clock import boottime
from a2a_gcs.errors import StoreError
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import MAX_PAGE, Blob, Mode, ObjectInfo, ObjectStore, Page, Source

_LOGGER = "a2a_gcs.objectstore"
_log = structlog.get_logger(_LOGGER)

retries_before: ContextVar[int] = ContextVar("retries_before", default=0)
"""How many tries of the same call came before this one; set by whoever retries."""


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
    """Counts every call in `stats` and in the metrics, writes a debug line about it, and a span where one is recorded.

    Placed directly above an adapter it counts tries, which are what is billed.

    Args:
        store: The store below.
        stats: Totals to add to; several stores may share them.
        pattern: A key without its ids, for spans; by default they name no key.
    """

    def __init__(
        self, store: ObjectStore, stats: StoreStats | None = None, *, pattern: Callable[[str], str] | None = None
    ) -> None:
        self._store = store
        self.stats = stats if stats is not None else StoreStats()
        self._pattern = pattern

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        with self._counted("get", key, b=2 if with_metadata else 1, version=version):
            blob = await self._store.get(key, version=version, with_metadata=with_metadata)
            self._read(len(blob.body))
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
            self._written(len(body))
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
                self._written(len(chunk))
                yield chunk

        with self._counted("put_stream", key, a=1):
            async with contextlib.aclosing(counted()) as through:
                return await self._store.put_stream(key, through, mode, metadata=metadata, content_type=content_type)

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        with self._counted("stream", key, b=1, version=version, streams=True):
            async with closing(self._store.stream(key, version=version)) as chunks:
                async for chunk in chunks:
                    self._read(len(chunk))
                    yield chunk

    async def delete(self, key: str, *, version: int | None = None) -> None:
        with self._counted("delete", key, free=1, version=version):
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

    def _written(self, size: int) -> None:
        self.stats.bytes_in += size
        telemetry.storage_bytes.add(size, {"direction": "in"})

    def _read(self, size: int) -> None:
        self.stats.bytes_out += size
        telemetry.storage_bytes.add(size, {"direction": "out"})

    @contextlib.contextmanager
    def _counted(
        self,
        verb: str,
        key: str,
        *,
        a: int = 0,
        b: int = 0,
        free: int = 0,
        version: int | None = None,
        streams: bool = False,
    ) -> Iterator[None]:
        """Counts one call.

        Args:
            verb: The port's name of it.
            key: What it is about.
            a: Class A requests that it makes.
            b: Class B requests.
            free: Requests that are not billed.
            version: The generation that was asked for.
            streams: The body hands control to the consumer of what is read.
        """
        stats = self.stats
        stats.operations[verb] += 1
        stats.class_a += a
        stats.class_b += b
        stats.free += free
        began = boottime()
        outcome = "ok"
        try:
            with self._span(verb, key, version, streams=streams):
                yield
        except StoreError as error:
            outcome = type(error).__name__
            stats.errors[outcome] += 1
            raise
        finally:
            seconds = boottime() - began
            billed = "A" if a else "B" if b else "free"
            telemetry.storage_requests.add(a + b + free, {"class": billed, "verb": verb, "outcome": outcome})
            telemetry.storage_seconds.record(seconds, {"verb": verb})
            if _debugged():
                _log.debug("store call", verb=verb, key=key, outcome=outcome, seconds=round(seconds, 4))

    def _span(
        self, verb: str, key: str, version: int | None, *, streams: bool
    ) -> contextlib.AbstractContextManager[None]:
        if not telemetry.recording():
            return contextlib.nullcontext()
        about: dict[str, str | int] = {"verb": verb, "retries": retries_before.get()}
        if self._pattern is not None:
            about["key_pattern"] = self._pattern(key)
        if version is not None:
            about["version"] = version
        return telemetry.child_span(f"storage.{verb}", current=not streams, **about)


def _debugged() -> bool:
    return logging.getLogger(_LOGGER).isEnabledFor(logging.DEBUG)
