"""The old layout: `tasks/<id>/metadata.tar.gz`, and `tasks/<id>/workspace.tar.gz` where there are files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from a2a.types.a2a_pb2 import Task

from a2a_gcs.errors import CorruptRecord, InvalidId
from a2a_gcs.layout import encode_segment
from a2a_gcs.migration.files import File, Files
from a2a_gcs.migration.old_json import as_task, names_context, time_of, unpack
from a2a_gcs.migration.source import Archive, Entry, Problem, Source

_PREFIX = "tasks/"
_KEY = re.compile(r"tasks/([^/]+)/(metadata|workspace)\.tar\.gz")
_AT_ONCE = 16


class OldLayout(Source):
    """A bucket, or a copy of one in a directory.

    Ids are taken as they are in the keys: that layout never encoded them. A task has no time of its own in
    gemini-cli's metadata; then it is that of the object.
    """

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self.name = name

    async def entries(self) -> AsyncIterator[Entry | Problem]:
        waiting: list[tuple[str, dict[str, File]]] = []
        async for found in self._tasks():
            waiting.append(found)
            if len(waiting) == _AT_ONCE:
                for entry in await asyncio.gather(*(self._entry(*one) for one in waiting)):
                    yield entry
                waiting.clear()
        for entry in await asyncio.gather(*(self._entry(*one) for one in waiting)):
            yield entry

    async def task(self, entry: Entry) -> tuple[Task, Mapping[str, Any]]:
        key = _metadata_key(entry.task_id)
        return as_task(key, unpack(key, await self._files.read(key)), entry.task_id, entry.millis)

    def archive(self, entry: Entry) -> AsyncIterator[bytes]:
        return self._files.stream(f"{_PREFIX}{entry.task_id}/workspace.tar.gz")

    async def close(self) -> None:
        await self._files.close()

    async def _tasks(self) -> AsyncIterator[tuple[str, dict[str, File]]]:
        """Each task id with its files by kind; listings bring a task's files together."""
        current, files = "", dict[str, File]()
        async for file in self._files.below(_PREFIX):
            if (match := _KEY.fullmatch(file.key)) is None:
                continue
            if match[1] != current and files:
                yield current, files
                files = {}
            current = match[1]
            files[match[2]] = file
        if files:
            yield current, files

    async def _entry(self, task_id: str, files: Mapping[str, File]) -> Entry | Problem:
        key = _metadata_key(task_id)
        if "metadata" not in files:
            return Problem(
                f"{_PREFIX}{task_id}/", "there is a workspace but no metadata.tar.gz: nothing tells its state"
            )
        try:
            encode_segment(task_id)
            found = unpack(key, await self._files.read(key))
            told = time_of(found)
            millis = files["metadata"].millis if told is None else told
            task, _ = as_task(key, found, task_id, millis)
            encode_segment(task.context_id)
        except (CorruptRecord, InvalidId) as e:
            return Problem(key, str(e.cause if isinstance(e, CorruptRecord) else e))
        archive = files.get("workspace")
        return Entry(
            task_id=task_id,
            context_id=task.context_id,
            owner="",
            state=task.status.state,
            millis=millis,
            minted=not names_context(found),
            archive=Archive(archive.size, archive.crc32c) if archive else None,
        )


def _metadata_key(task_id: str) -> str:
    return f"{_PREFIX}{task_id}/metadata.tar.gz"
