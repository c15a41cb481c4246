"""Deletes objects as they were judged: one that was written since stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog

from a2a_gcs.errors import Conflict, NotFound
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.retention.holdings import TaskHoldings
from a2a_gcs.retention.tally import Tally

T = TypeVar("T")

Step = Callable[[int], None]
"""Told of so many further objects."""

AT_ONCE = 8
_POINTER_TRIES = 3

log = structlog.get_logger(__name__)


class Remover:
    """Deletes, or counts what it would delete.

    Args:
        store: The root.
        tally: Counts objects and bytes.
        dry_run: Only count.
        step: Told of each object that is done with.
    """

    def __init__(self, store: ObjectStore, tally: Tally, *, dry_run: bool, step: Step) -> None:
        self._store = store
        self._tally = tally
        self._step = step
        self.dry_run = dry_run

    async def one(self, info: ObjectInfo) -> bool:
        """Deletes an object of the version that was judged. Whether it is gone. Raises StoreError."""
        try:
            await self._delete(info)
        except Conflict:
            self._tally.changed += 1
            log.info("gc.written_meanwhile", key=info.key)
            return False
        return True

    async def _delete(self, info: ObjectInfo) -> None:
        try:
            if not self.dry_run:
                await self._store.delete(info.key, version=info.version)
        except NotFound:
            return
        self._tally.objects += 1
        self._tally.bytes += info.size
        self._step(1)

    async def _pointer(self, info: ObjectInfo) -> None:
        """Deletes the pointer of a task that is gone: whoever wrote it since has only told how that task stood."""
        for _ in range(_POINTER_TRIES):
            with contextlib.suppress(Conflict):
                await self._delete(info)
                return
            try:
                info = await self._store.head(info.key)
            except NotFound:
                return
        await self.one(info)

    async def all(self, infos: Sequence[ObjectInfo]) -> int:
        """Deletes some at a time; how many are gone."""
        return sum(await some_at_once(infos, self.one))

    async def task(self, task: TaskHoldings) -> bool:
        """Deletes a task: its record first, its pointer last; a run that breaks off leaves orphans to the next one.

        Args:
            task: One that has a record.

        Returns:
            Whether it is gone; not if its record was written meanwhile: then nothing of it was touched.
        """
        if task.record is None or not await self.one(task.record):
            return False
        await self.all(task.files)
        if task.pointer is not None:
            await self._pointer(task.pointer)
        return True


async def some_at_once(items: Iterable[T], act: Callable[[T], Awaitable[bool]]) -> list[bool]:
    """Acts on all, a few at a time. After an error nothing more is begun, and it is raised once all is quiet."""
    waiting, results = iter(items), []

    async def work() -> None:
        for item in waiting:
            results.append(await act(item))  # noqa: PERF401 - shared by all

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return results
