"""The reference model of the port: a bucket in this process's memory."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from a2a_gcs.clock import utcnow
from a2a_gcs.errors import Conflict, NotFound, Unavailable
from a2a_gcs.objectstore.port import MAX_PAGE, Blob, Mode, ObjectInfo, ObjectStore, Page, Source
from a2a_gcs.objectstore.rules import (
    STREAM_CHUNK,
    Crc32c,
    crc32c,
    holds,
    validate_key,
    validate_limit,
    validate_sources,
    validate_write,
)


def wall_clock() -> float:
    """Unix seconds of this machine's clock."""
    return utcnow().timestamp()


class MemoryStore(ObjectStore):
    """A bucket that lives as long as this object, for any number of threads and event loops.

    Every call lets other tasks run once before its effect, as a store on a
    network does, so that races show in tests; the effect itself is atomic.

    Args:
        now: The store's clock, in Unix seconds.
    """

    def __init__(self, *, now: Callable[[], float] = wall_clock) -> None:
        self._now = now
        self._objects: dict[str, Blob] = {}
        self._keys: list[str] = []  # sorted; code point order is UTF-8 byte order
        self._versions = itertools.count(1)
        self._lock = threading.RLock()  # around each effect: keys and objects change together

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        validate_key(key)
        await asyncio.sleep(0)
        blob = self._find(key)
        if version not in {None, blob.info.version}:
            raise NotFound(key)
        if crc32c(blob.body) != blob.info.crc32c:
            raise Unavailable(key, ValueError("the checksum does not match"))
        # What a media response does not promise is withheld here too, so that nobody relies on it.
        info = blob.info if with_metadata else replace(blob.info, metadata={}, updated=0.0)
        return Blob(replace(info, as_of=self._now()), blob.body)

    async def head(self, key: str) -> ObjectInfo:
        validate_key(key)
        await asyncio.sleep(0)
        return replace(self._find(key).info, as_of=self._now())

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
        await asyncio.sleep(0)
        return self._write(key, body, mode, copied, content_type)

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
        body = bytearray()
        async for chunk in chunks:
            body += chunk
        return self._write(key, bytes(body), mode, copied, content_type)

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        validate_key(key)
        await asyncio.sleep(0)
        blob = self._find(key)
        if version not in {None, blob.info.version}:
            raise NotFound(key)
        checksum = Crc32c()
        for start in range(0, len(blob.body), STREAM_CHUNK):
            chunk = blob.body[start : start + STREAM_CHUNK]
            checksum.update(chunk)
            yield chunk
        if checksum.encoded() != blob.info.crc32c:
            raise Unavailable(key, ValueError("the checksum does not match"))

    async def delete(self, key: str, *, version: int | None = None) -> None:
        validate_key(key)
        await asyncio.sleep(0)
        with self._lock:
            if version not in {None, self._find(key).info.version}:
                raise Conflict(key)
            del self._objects[key]
            del self._keys[bisect.bisect_left(self._keys, key)]

    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        validate_limit(limit)
        await asyncio.sleep(0)
        with self._lock:
            first = bisect.bisect_left(self._keys, max(prefix, start))
            if page is not None:
                first = max(first, bisect.bisect_right(self._keys, page))
            matching = itertools.takewhile(
                lambda key: key.startswith(prefix), itertools.islice(self._keys, first, None)
            )
            found = list(itertools.islice(matching, limit + 1))
            now = self._now()
            infos = [replace(self._objects[key].info, as_of=now) for key in found[:limit]]
        return Page(infos, infos[-1].key if len(found) > limit else None)

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
        await asyncio.sleep(0)
        with self._lock:
            parts = []
            for source in sources:
                part = self._find(source.key)
                if source.version not in {None, part.info.version}:
                    raise Conflict(source.key)
                parts.append(part.body)
            return self._write(key, b"".join(parts), mode, copied, content_type)

    async def close(self) -> None:
        """Forgets nothing: the objects go when the store does."""

    def _find(self, key: str) -> Blob:
        try:
            return self._objects[key]
        except KeyError:
            raise NotFound(key) from None

    def _write(self, key: str, body: bytes, mode: Mode, metadata: dict[str, str], content_type: str) -> ObjectInfo:
        checksum = crc32c(body)
        with self._lock:
            current = self._objects.get(key)
            if not holds(mode, current.info.version if current else None):
                raise Conflict(key)
            now = self._now()
            info = ObjectInfo(
                key=key,
                version=next(self._versions),
                size=len(body),
                crc32c=checksum,
                metadata=metadata,
                content_type=content_type,
                updated=now,
                as_of=now,
            )
            if current is None:
                bisect.insort(self._keys, key)
            self._objects[key] = Blob(info, bytes(body))
        return info
