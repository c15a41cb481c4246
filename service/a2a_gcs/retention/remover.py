"""Deletes objects as they were judged: one that was written since stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog

from a2a_gcs.errors import Conflict, NotFound
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.retention.tally import Tally

T = TypeVar("T")

Step = Callable[[int], None]
"""Told of so many further objects."""

AT_ONCE = 8

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
            if not self.dry_run:
                await self._store.delete(info.key, version=info.version)
        except NotFound:
            return True
        except Conflict:
            self._tally.changed += 1
            log.info("gc.written_meanwhile", key=info.key)
            return False
        self._tally.objects += 1
        self._tally.bytes += info.size
        self._step(1)
        return True

    async def all(self, infos: Sequence[ObjectInfo]) -> int:
        """Deletes some at a time; how many are gone."""
        return sum(await some_at_once(infos, self.one))

    async def task(self, objects: Sequence[ObjectInfo]) -> bool:
        """Deletes a task: its record first, its pointer last; a run that breaks off leaves orphans to the next one.

        Args:
            objects: As in `TaskHoldings.objects`.

        Returns:
            Whether it is gone; not if its record was written meanwhile: then nothing of it was touched.
        """
        record, *rest = objects
        if not await self.one(record):
            return False
        pointers = rest[-1:]
        await self.all(rest[:-1])
        await self.all(pointers)
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
