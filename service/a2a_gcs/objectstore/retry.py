"""The one place that retries, and that tells a lost answer from a lost race."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from a2a_gcs import telemetry
from a2a_gcs.clock import boottime
from a2a_gcs.errors import Conflict, NotFound, StoreError, Throttled, Unavailable
from a2a_gcs.jitter import fraction
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.instrument import retries_before
from a2a_gcs.objectstore.port import (
    MAX_PAGE,
    WRITE_ID,
    Blob,
    IfVersion,
    Mode,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    Page,
    Source,
)

T = TypeVar("T")

_MAX_WAIT = 16.0


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(slots=True)
class _Write:
    """One write over all its tries.

    Attributes:
        ambiguous: Some try may have been committed, and its answer was lost.
        conflict: The refusal that is to be told from our own success.
        throttled: The last try was refused for its rate: look before writing again.
    """

    key: str
    mode: Mode
    write_id: str
    ambiguous: bool = False
    conflict: StoreError | None = None
    throttled: bool = False


class RetryingStore(ObjectStore):
    """Retries Throttled and Unavailable, and recognises its own writes.

    Every write carries a fresh write id in its metadata. Before a conditional
    write is reported as a Conflict, the object is read back: with this id on
    it, it was an earlier try that won, and the write is a success. After
    Throttled the object is read again before it is written again: in a race
    GCS answers losers with 429 as well (reported: delta-io/delta-rs#2451).

    Errors carry `ambiguous` when any try of the call was. `put_stream` is tried
    once, `stream` only until its first chunk.

    Args:
        store: The store below; it must not retry by itself.
        budget: Seconds after which no further try begins, waits included.
        throttled_wait: Seconds that every wait after Throttled has at least; the jitter on top begins with as
            much and doubles. An object takes about one write a second.
        unavailable_wait: Longest first wait after Unavailable, in seconds; it doubles, with full jitter.
        sleep: Waits.
        clock: Monotonic seconds.
        jitter: Uniform numbers in [0, 1).
        new_id: Makes write ids.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        budget: float = 20.0,
        throttled_wait: float = 1.0,
        unavailable_wait: float = 0.1,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = boottime,
        jitter: Callable[[], float] = fraction,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self._store = store
        self._budget = budget
        self._throttled_wait = throttled_wait
        self._unavailable_wait = unavailable_wait
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._new_id = new_id

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        return await self._retry(lambda: self._store.get(key, version=version, with_metadata=with_metadata))

    async def head(self, key: str) -> ObjectInfo:
        return await self._retry(lambda: self._store.head(key))

    async def put(
        self,
        key: str,
        body: bytes,
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        write = _Write(key, mode, self._new_id())
        marked = {**(metadata or {}), WRITE_ID: write.write_id}
        return await self._write(
            write, lambda: self._store.put(key, body, mode, metadata=marked, content_type=content_type)
        )

    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        write = _Write(key, mode, self._new_id())
        marked = {**(metadata or {}), WRITE_ID: write.write_id}
        try:
            return await self._store.put_stream(key, chunks, mode, metadata=marked, content_type=content_type)
        except (Conflict, Unavailable) as error:
            if isinstance(error, Conflict) or error.ambiguous:
                found = await self._retry(lambda: self._own(write))
                if found is not None:
                    return found
            raise

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        async def begin() -> tuple[AsyncIterator[bytes], bytes | None]:
            chunks = self._store.stream(key, version=version)
            return chunks, await anext(chunks, None)

        chunks, first = await self._retry(begin)
        async with closing(chunks):
            if first is not None:
                yield first
                async for chunk in chunks:
                    yield chunk

    async def delete(self, key: str, *, version: int | None = None) -> None:
        tries = 0
        ambiguous = False

        async def attempt() -> None:
            nonlocal tries, ambiguous
            tries += 1
            try:
                await self._store.delete(key, version=version)
            except NotFound:
                if tries == 1:
                    raise
            except StoreError as error:
                ambiguous = error.ambiguous = error.ambiguous or ambiguous
                raise

        await self._retry(attempt)

    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        return await self._retry(lambda: self._store.list(prefix, start=start, page=page, limit=limit))

    async def compose(
        self,
        key: str,
        sources: Sequence[Source],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        write = _Write(key, mode, self._new_id())
        marked = {**(metadata or {}), WRITE_ID: write.write_id}
        return await self._write(
            write, lambda: self._store.compose(key, sources, mode, metadata=marked, content_type=content_type)
        )

    async def close(self) -> None:
        await self._store.close()

    async def _write(self, write: _Write, send: Callable[[], Awaitable[ObjectInfo]]) -> ObjectInfo:
        try:
            return await self._retry(lambda: self._attempt(write, send))
        except StoreError as error:
            if write.conflict is not None and error is not write.conflict:
                # Refused, and the read-back failed for as long as we may try: it may have been our own success.
                raise Conflict(write.key, error, ambiguous=True) from error
            error.ambiguous = error.ambiguous or write.ambiguous
            raise

    async def _attempt(self, write: _Write, send: Callable[[], Awaitable[ObjectInfo]]) -> ObjectInfo:
        """One try, after the look at the object that an earlier try has made necessary."""
        if write.conflict is None and write.throttled and not isinstance(write.mode, Overwrite):
            found = await self._own_or_moved(write)
            if found is not None:
                return found
        if write.conflict is None:
            try:
                return await send()
            except (Conflict, NotFound) as error:
                write.conflict = error
            except (Throttled, Unavailable) as error:
                write.throttled = isinstance(error, Throttled)
                write.ambiguous = write.ambiguous or error.ambiguous
                raise
        found = await self._own(write)
        if found is None:
            raise write.conflict
        return found

    async def _own_or_moved(self, write: _Write) -> ObjectInfo | None:
        """The object if this write made it; None if its condition still holds. Raises Conflict if it does not."""
        current = await self._head_or_none(write.key)
        if current is not None and current.metadata.get(WRITE_ID) == write.write_id:
            return current
        expected = write.mode.version if isinstance(write.mode, IfVersion) else None
        if (current.version if current else None) != expected:
            write.conflict = Conflict(write.key)
            raise write.conflict
        return None

    async def _own(self, write: _Write) -> ObjectInfo | None:
        """The object, if it is the one that this write made."""
        current = await self._head_or_none(write.key)
        return current if current is not None and current.metadata.get(WRITE_ID) == write.write_id else None

    async def _head_or_none(self, key: str) -> ObjectInfo | None:
        try:
            return await self._store.head(key)
        except NotFound:
            return None

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        began = self._clock()
        try:
            return await attempt()  # almost always that is all; tenacity takes longer than most calls do
        except (Throttled, Unavailable) as error:
            return await self._try_again(attempt, error, began)

    async def _try_again(self, attempt: Callable[[], Awaitable[T]], first: StoreError, began: float) -> T:
        tries = 0

        async def once() -> T:  # tenacity awaits only what it sees to be a coroutine function
            nonlocal tries
            tries += 1
            if tries == 1:
                raise first
            before = retries_before.set(tries - 1)
            try:
                return await attempt()
            finally:
                retries_before.reset(before)

        retrying = AsyncRetrying(
            sleep=self._sleep,
            wait=self._wait,
            stop=lambda state: self._clock() - began + state.upcoming_sleep > self._budget,
            retry=retry_if_exception_type((Throttled, Unavailable)),
            reraise=True,
            before_sleep=_count_retry,
        )
        return await retrying(once)

    def _wait(self, state: RetryCallState) -> float:
        doubled = 2.0 ** min(state.attempt_number - 1, 10)
        assert state.outcome is not None
        if isinstance(state.outcome.exception(), Throttled):
            return self._throttled_wait + self._jitter() * min(self._throttled_wait * doubled, _MAX_WAIT)
        return self._jitter() * min(self._unavailable_wait * doubled, _MAX_WAIT)


def _count_retry(state: RetryCallState) -> None:
    assert state.outcome is not None
    telemetry.storage_retries.add(1, {"reason": type(state.outcome.exception()).__name__})
