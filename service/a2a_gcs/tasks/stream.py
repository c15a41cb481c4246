"""Task events for subscribers, from this process while it holds the turn, else from task.json.

First form of the `TaskEventStream`: on another host a subscriber sees each
stored state of the task as a whole. Versions are `seq`, so what a snapshot
already holds is never sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

import structlog
from a2a.server.cluster import TaskEventStream, TaskVersion, VersionedEvent

from a2a_gcs.claims import ClaimTable
from a2a_gcs.errors import StoreError
from a2a_gcs.task_records import TaskRecord

log = structlog.get_logger(__name__)

_BUFFER = 1024
"""Events that a subscriber may lag behind before it is given the whole task instead."""


class Tap:
    """One subscriber: the events that it has not taken yet.

    Args:
        read: Reads the task's stored record, settled; None if there is none.
        runs_here: Whether this process holds the task's turn, so that its events come by themselves.
        poll: Seconds between looks at a task that runs, or waits, elsewhere.
    """

    def __init__(
        self, read: Callable[[], Awaitable[TaskRecord | None]], runs_here: Callable[[], bool], poll: float
    ) -> None:
        self._read = read
        self._runs_here = runs_here
        self._poll = poll
        self._queue: asyncio.Queue[VersionedEvent] = asyncio.Queue(_BUFFER)
        self._lost = False

    def offer(self, event: VersionedEvent) -> None:
        """Takes an event in, never waiting; a subscriber that lags too far behind gets the whole task instead."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._lost = True

    async def events(self, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        """Yields what is newer than a snapshot that was read while this tap existed. Never ends by itself."""
        seen = after
        while True:
            event = await self._next(seen)
            if event is not None and event.version.is_after(seen):
                seen = event.version
                yield event

    async def _next(self, seen: TaskVersion) -> VersionedEvent | None:
        if not self._lost:
            try:
                return await asyncio.wait_for(self._queue.get(), self._poll)
            except TimeoutError:
                if self._runs_here():
                    return None
        self._lost = False
        while not self._queue.empty():
            self._queue.get_nowait()
        return await self.snapshot(seen)

    async def snapshot(self, seen: TaskVersion) -> VersionedEvent | None:
        """The whole task, if it is stored in a newer version than `seen`."""
        try:
            record = await self._read()
        except StoreError as e:
            log.warning("stream.not_read", error=str(e))
            self._lost = True  # whatever this was to make up for is still missing
            await asyncio.sleep(self._poll)
            return None
        if record is None or not TaskVersion(record.meta.seq).is_after(seen):
            return None
        return VersionedEvent(event=record.copy_task(), version=TaskVersion(record.meta.seq))


class BucketEventStream(TaskEventStream):
    """Events of the tasks of one root.

    Args:
        read: Reads a task's stored record, settled; None if there is none.
        table: The turns that this process holds.
        poll: Seconds between looks at a task that runs, or waits, elsewhere.
    """

    def __init__(
        self, read: Callable[[str], Awaitable[TaskRecord | None]], table: ClaimTable, *, poll: float = 1.0
    ) -> None:
        self._read = read
        self._table = table
        self._poll = poll
        self._taps: dict[str, set[Tap]] = {}

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Hands an event that is stored to this process's subscribers. Never waits, never raises."""
        for tap in self._taps.get(task_id, ()):
            tap.offer(event)

    @contextlib.contextmanager
    def tap(self, task_id: str) -> Iterator[Tap]:
        """Listens to a task. Read the snapshot inside: nothing is missed then, and nothing comes twice."""
        tap = Tap(lambda: self._read(task_id), lambda: self._table.get(task_id) is not None, self._poll)
        self._taps.setdefault(task_id, set()).add(tap)
        try:
            yield tap
        finally:
            taps = self._taps[task_id]
            taps.discard(tap)
            if not taps:
                del self._taps[task_id]

    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        """Yields what comes after a snapshot of version `after` that was read before this call."""
        with self.tap(task_id) as tap:
            if (missed := await tap.snapshot(after)) is not None:
                after = missed.version
                yield missed
            async for event in tap.events(after):
                yield event

    async def destroy(self, task_id: str) -> None:
        """Nothing is kept for a task."""
        del task_id
