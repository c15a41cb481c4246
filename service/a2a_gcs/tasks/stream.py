"""Task events for subscribers on any host: the same ones, in the same order (DESIGN 5, A2A 3.5.2).

While this process holds the open turn its events are handed over as the SDK
publishes them; everywhere else they come from the journal. Positions are (turn,
batch), versions are `seq`: what a snapshot already holds is never sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator

import structlog
from a2a.server.cluster import TaskEventStream, TaskVersion, VersionedEvent
from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import Message, Task, TaskState, TaskStatusUpdateEvent

from a2a_gcs.claims import ClaimTable
from a2a_gcs.clock import boottime
from a2a_gcs.errors import StoreError
from a2a_gcs.journal import Journal
from a2a_gcs.records import TURN_STRIDE, TaskMeta
from a2a_gcs.task_json import INTERRUPTED, TERMINAL, TERMINAL_NAMES
from a2a_gcs.task_records import TaskRecord, TaskRecords
from a2a_gcs.tasks.store import BucketTaskStore

log = structlog.get_logger(__name__)

_BUFFER = 4096
"""Events that a subscriber may lag behind; one that lags further goes on from the journal."""

_BUFFER_BYTES = 1024**2
"""Bytes of such events."""

_JUDGE_EVERY_SECONDS = 5.0


def ends_turn(event: Event) -> bool:
    """Whether a stream ends with this event: an answer, or a terminal or interrupted state."""
    if isinstance(event, Message):
        return True
    return isinstance(event, Task | TaskStatusUpdateEvent) and event.status.state in TERMINAL | INTERRUPTED


class _Tap:
    """What one subscriber has not taken yet of the turns that this process runs.

    Attributes:
        lost: It lagged so far behind that its events were dropped; the journal has them.
    """

    def __init__(self) -> None:
        self._events: deque[VersionedEvent] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self.lost = False

    def offer(self, event: VersionedEvent) -> None:
        if len(self._events) >= _BUFFER or self._bytes > _BUFFER_BYTES:
            self.lost = True
            self._events.clear()
        if not self.lost:
            self._events.append(event)
            self._bytes += event.event.ByteSize()
        self._news.set()

    def take(self, turn: int) -> VersionedEvent | None:
        """The next event of a turn; those of earlier turns are left out, those of later ones stay."""
        while self._events:
            of = seq_of(self._events[0].version) // TURN_STRIDE
            if of > turn:
                return None
            event = self._events.popleft()
            self._bytes -= event.event.ByteSize()
            if of == turn:
                return event
        return None

    async def wait(self, seconds: float) -> None:
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)


class BucketEventStream(TaskEventStream):
    """Events of the tasks of one root.

    Args:
        tasks: Reads tasks, settled and with their journals.
        records: Their stored records.
        journal: Their batches.
        table: The turns that this process holds.
        poll: Seconds between looks at a task that runs, or waits, elsewhere.
    """

    def __init__(
        self,
        tasks: BucketTaskStore,
        records: TaskRecords,
        journal: Journal,
        table: ClaimTable,
        *,
        poll: float = 1.0,
    ) -> None:
        self._tasks = tasks
        self._records = records
        self._journal = journal
        self._table = table
        self._poll = poll
        self._taps: dict[str, set[_Tap]] = {}

    @property
    def idle(self) -> bool:
        """Nobody listens."""
        return not self._taps

    # ------------------------------------------------------------------ the SDK's interface

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Hands an acknowledged event to this process's subscribers. Never waits, never raises."""
        for tap in self._taps.get(task_id, ()):
            tap.offer(event)

    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        """Yields what is newer than `after`, beginning with the whole task if that is."""
        with self._tapped(task_id) as tap:
            record = await self._tasks.read(task_id)
            if record is None:
                return
            version = TaskVersion(record.meta.seq)
            if version.is_after(after):
                yield VersionedEvent(event=record.copy_task(), version=version)
            async for event in self._after(record, tap):
                yield event

    async def destroy(self, task_id: str) -> None:
        """Nothing is kept for a task."""
        del task_id

    # ------------------------------------------------------------------ for the host

    async def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """The task as it is, then its events until a turn of it ends. Nothing is missed, and nothing comes twice.

        A parked task's stream waits for the next turn, whichever host runs it. Yields nothing if there is no task.

        Raises:
            StoreError: The snapshot could not be read.
        """
        with self._tapped(task_id) as tap:
            record = await self._tasks.read(task_id)
            if record is None:
                return
            yield record.copy_task()
            if record.terminal:
                return
            async with contextlib.aclosing(self._after(record, tap)) as events:
                async for versioned in events:
                    yield versioned.event
                    if ends_turn(versioned.event):
                        return

    # ------------------------------------------------------------------ inside

    @contextlib.contextmanager
    def _tapped(self, task_id: str) -> Iterator[_Tap]:
        """Listens before the snapshot is read, so that nothing is missed in between."""
        tap = _Tap()
        self._taps.setdefault(task_id, set()).add(tap)
        try:
            yield tap
        finally:
            taps = self._taps[task_id]
            taps.discard(tap)
            if not taps:
                del self._taps[task_id]

    async def _after(self, snapshot: TaskRecord, tap: _Tap) -> AsyncGenerator[VersionedEvent, None]:
        """What comes after a snapshot, until the end of the turn that runs, or of the next one if it is parked."""
        meta = snapshot.meta
        turn = meta.turn if meta.open else meta.turn + 1
        reader = _Reader(self._records, self._journal, snapshot, turn, meta.journal if meta.open else 0)
        seen = TaskVersion(meta.seq)
        judged = boottime()
        while True:
            event = tap.take(turn)
            if event is None and not tap.lost and self._runs_here(snapshot.ref.task_id, turn):
                await tap.wait(self._poll)
                continue
            batch = [event] if event is not None else await self._read(reader)
            for found in batch:
                if found.version.is_after(seen):
                    seen = found.version
                    yield found
            if reader.ended:
                return
            if not batch:
                await tap.wait(self._poll)
                if boottime() - judged > _JUDGE_EVERY_SECONDS:
                    judged = boottime()
                    await self._judge(snapshot.ref.task_id)

    def _runs_here(self, task_id: str, turn: int) -> bool:
        claim = self._table.get(task_id)
        return claim is not None and claim.turn == turn

    async def _read(self, reader: _Reader) -> list[VersionedEvent]:
        try:
            return await reader.next()
        except StoreError as e:  # the stream waits until the bucket is back
            log.warning("stream.not_read", key=e.key, error=str(e))
            return []

    async def _judge(self, task_id: str) -> None:
        """Subscribing touches a task, too: one whose host is dead is ended."""
        with contextlib.suppress(StoreError):
            await self._tasks.read(task_id)


class _Reader:
    """Reads one turn of a task from the bucket: batch after batch, then the state that ended it.

    Where a batch is missing, task.json tells why (DESIGN 5, *Journal*).
    """

    def __init__(self, records: TaskRecords, journal: Journal, snapshot: TaskRecord, turn: int, batch: int) -> None:
        self._records = records
        self._journal = journal
        self._ref = snapshot.ref
        self._turn = turn
        self._batch = batch
        self.ended = False

    async def next(self) -> list[VersionedEvent]:
        """What is there now; nothing while the turn goes on or has not begun. Raises StoreError."""
        if (found := await self._next_batch()) is not None:
            return found
        stored = await self._records.peek(self._ref)
        if stored is None:
            self.ended = True
            return []
        _, meta = stored
        if meta.turn < self._turn and meta.state not in TERMINAL_NAMES:
            return []  # still parked: nobody has answered
        if meta.turn == self._turn and meta.open:
            return []  # it runs, and there is nothing new
        if meta.turn >= self._turn and (found := await self._next_batch()) is not None:
            return found  # written between the two looks
        self.ended = True
        return await self._end(meta)

    async def _next_batch(self) -> list[VersionedEvent] | None:
        events = await self._journal.read(self._ref, self._turn, self._batch + 1)
        if events is None:
            return None
        self._batch += 1
        return [VersionedEvent(event=e.event, version=TaskVersion(e.seq)) for e in events]

    async def _end(self, meta: TaskMeta) -> list[VersionedEvent]:
        if meta.turn == self._turn + 1 and meta.was:
            update = TaskStatusUpdateEvent(task_id=self._ref.task_id, context_id=self._ref.context_id)
            update.status.state = TaskState.Value(meta.was)  # type: ignore[assignment]
            return [VersionedEvent(event=update, version=TaskVersion(meta.turn * TURN_STRIDE - 1))]
        record = await self._records.load(self._ref)
        if record is None:
            return []
        version = TaskVersion(record.meta.seq)
        complete = record.meta.turn < self._turn or (
            record.meta.turn == self._turn and self._batch >= record.meta.journal
        )
        if not complete:  # batches are gone: only the whole task makes up for them
            return [VersionedEvent(event=record.copy_task(), version=version)]
        update = TaskStatusUpdateEvent(task_id=self._ref.task_id, context_id=self._ref.context_id)
        update.status.CopyFrom(record.task.status)
        return [VersionedEvent(event=update, version=version)]


def seq_of(version: TaskVersion) -> int:
    """The `seq` behind a version that this package made."""
    value = version._value  # noqa: SLF001 - the SDK's own stream reads it as well; there is no accessor
    return int(value)
