"""Content beside a task: what is too large for task.json, as objects named by their SHA-256 (decision 0006).

A part refers to its object by a relative URL, `files/<sha256>`, which holds wherever
the task is moved to. Objects are never changed, so a repeat of a write is no write.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator

from a2a.types.a2a_pb2 import Part

from a2a_gcs.errors import Conflict
from a2a_gcs.layout import TaskRef, file_key, file_reference, parse_file_reference
from a2a_gcs.objectstore.port import IF_ABSENT, ObjectInfo, ObjectStore

SIZE = "a2a-gcs/size"
"""Metadata of a part whose content is beside the task: its length in bytes."""

_TEXT = "text/plain; charset=utf-8"
_HASHED_AT_ONCE = 256 * 1024


class TaskFiles:
    """The contents beside the tasks of one root."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def moved(self, ref: TaskRef, part: Part) -> Part:
        """Stores the content of a text or raw part, and makes the part that refers to it.

        Returns:
            A part with a URL, the length in its metadata, and all else as it was.

        Raises:
            StoreError: It is not known to be stored; the same call may be repeated.
        """
        content = part_bytes(part)
        kind = part.media_type or (_TEXT if part.HasField("text") else "application/octet-stream")
        referring = Part(filename=part.filename, media_type=kind, metadata=part.metadata)
        referring.metadata[SIZE] = len(content)
        referring.url = file_reference(await self._put(ref, content, kind))
        return referring

    async def _put(self, ref: TaskRef, content: bytes, content_type: str) -> str:
        if len(content) <= _HASHED_AT_ONCE:
            name = hashlib.sha256(content).hexdigest()
        else:
            name = (await asyncio.to_thread(hashlib.sha256, content)).hexdigest()
        with contextlib.suppress(Conflict):  # the same bytes are there already
            await self._store.put(file_key(ref, name), content, IF_ABSENT, content_type=content_type)
        return name

    async def head(self, ref: TaskRef, name: str) -> ObjectInfo:
        """What is known of a content. Raises NotFound and other StoreErrors."""
        return await self._store.head(file_key(ref, name))

    def stream(self, ref: TaskRef, name: str, version: int) -> AsyncIterator[bytes]:
        """A content in chunks, in flat memory. Raises as `ObjectStore.stream`."""
        return self._store.stream(file_key(ref, name), version=version)

    async def read(self, ref: TaskRef, part: Part) -> bytes:
        """The content of a part, wherever it is. Raises StoreError; ValueError for somebody else's URL."""
        if part.WhichOneof("content") != "url":
            return part_bytes(part)
        if (name := parse_file_reference(part.url)) is None:
            raise ValueError(f"{part.url} is not beside task {ref.task_id}")
        return (await self._store.get(file_key(ref, name))).body


def part_bytes(part: Part) -> bytes:
    """The content that a part carries itself: text as UTF-8."""
    return part.text.encode() if part.HasField("text") else part.raw
