"""Joins objects on the store's side, also more than one compose takes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence

import structlog

from a2a_gcs.errors import NotFound, StoreError
from a2a_gcs.layout import parse_part, part_key, parts_prefix
from a2a_gcs.objectstore.port import IF_ABSENT, Mode, ObjectInfo, ObjectStore, Source
from a2a_gcs.objectstore.rules import MAX_SOURCES
from a2a_gcs.workspaces.bridge import together

log = structlog.get_logger(__name__)


class Joiner:
    """Composes archives from parts.

    What is composed on the way has a name of its own, so that nobody else's join
    meets it, and is deleted afterwards, off the caller's path.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._deleting: set[asyncio.Task[None]] = set()

    async def join(
        self, key: str, sources: Sequence[Source], mode: Mode, metadata: Mapping[str, str], content_type: str
    ) -> ObjectInfo:
        """Writes the sources, one after the other, to `key`; raises as `ObjectStore.compose`."""
        between: list[str] = []
        try:
            while len(sources) > MAX_SOURCES:
                groups = [sources[start : start + MAX_SOURCES] for start in range(0, len(sources), MAX_SOURCES)]
                keys = [part_key(key, uuid.uuid4().hex) for _ in groups]
                between += keys
                made = await together(*(self._group(*group, content_type) for group in zip(keys, groups, strict=True)))
                sources = [Source(info.key, info.version) for info in made]
            return await self._store.compose(key, sources, mode, metadata=metadata, content_type=content_type)
        finally:
            if between:
                task = asyncio.create_task(self._delete(between))
                self._deleting.add(task)
                task.add_done_callback(self._deleting.discard)

    async def parts_of(self, key: str) -> dict[str, tuple[int, str]]:
        """All parts of the context that an archive belongs to: size and crc32c by name."""
        found: dict[str, tuple[int, str]] = {}
        prefix, page = parts_prefix(key), None
        while True:
            answer = await self._store.list(prefix, page=page)
            found |= {parse_part(info.key) or "": (info.size, info.crc32c) for info in answer.objects}
            page = answer.next
            if page is None:
                return found

    async def close(self) -> None:
        """Waits for deletions under way."""
        await asyncio.gather(*self._deleting)

    async def _group(self, key: str, sources: Sequence[Source], content_type: str) -> ObjectInfo:
        return await self._store.compose(key, sources, IF_ABSENT, content_type=content_type)

    async def _delete(self, keys: Sequence[str]) -> None:
        """Best effort: what is left goes with the rule for old parts (decision 0004)."""
        for key in keys:
            try:
                await self._store.delete(key)
            except NotFound:
                continue
            except StoreError as error:
                log.info("workspace.part_left", key=key, error=str(error))
