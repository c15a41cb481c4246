"""A store below a prefix of another one, such as a root (ARCHITECTURE, *Who may call*)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace

from a2a_gcs.errors import StoreError
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import MAX_PAGE, Blob, Mode, ObjectInfo, ObjectStore, Page, Source
from a2a_gcs.objectstore.rules import validate_key


class PrefixStore(ObjectStore):
    """Puts a prefix before every key on the way down and takes it off on the way up, in errors too.

    Nothing outside the prefix can be reached. Closing it closes the store below.

    Args:
        store: The store below.
        prefix: One or more path segments; a `/` is added at the end when it is missing.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        segments = prefix.removesuffix("/").split("/")
        if not all(segment not in {"", ".", ".."} for segment in segments):
            raise ValueError(f"a prefix is one or more path segments, not {prefix!r}")
        self._store = store
        self._prefix = "/".join(segments) + "/"

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        with self._own_keys():
            blob = await self._store.get(self._down(key), version=version, with_metadata=with_metadata)
            return Blob(self._up(blob.info), blob.body)

    async def head(self, key: str) -> ObjectInfo:
        with self._own_keys():
            return self._up(await self._store.head(self._down(key)))

    async def put(
        self,
        key: str,
        body: bytes,
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        with self._own_keys():
            return self._up(
                await self._store.put(self._down(key), body, mode, metadata=metadata, content_type=content_type)
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
        with self._own_keys():
            return self._up(
                await self._store.put_stream(
                    self._down(key), chunks, mode, metadata=metadata, content_type=content_type
                )
            )

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        with self._own_keys():
            async with closing(self._store.stream(self._down(key), version=version)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def delete(self, key: str, *, version: int | None = None) -> None:
        with self._own_keys():
            await self._store.delete(self._down(key), version=version)

    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        # The page token is the lower store's own, passed through as it is.
        with self._own_keys():
            below = await self._store.list(
                self._prefix + prefix, start=self._prefix + start if start else "", page=page, limit=limit
            )
            return Page([self._up(info) for info in below.objects], below.next)

    async def compose(
        self,
        key: str,
        sources: Sequence[Source],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        below = [Source(self._down(source.key), source.version) for source in sources]
        with self._own_keys():
            return self._up(
                await self._store.compose(self._down(key), below, mode, metadata=metadata, content_type=content_type)
            )

    async def close(self) -> None:
        await self._store.close()

    def _down(self, key: str) -> str:
        validate_key(key)
        return self._prefix + key

    def _up(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, key=info.key.removeprefix(self._prefix))

    @contextlib.contextmanager
    def _own_keys(self) -> Iterator[None]:
        """Errors name the key that the caller gave."""
        try:
            yield
        except StoreError as error:
            if not error.key.startswith(self._prefix):
                raise
            key = error.key.removeprefix(self._prefix)
            raise type(error)(key, error.cause, ambiguous=error.ambiguous) from error
