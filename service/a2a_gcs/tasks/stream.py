"""Task events for subscribers on any host: the same ones, in the same order (A2A 1.0, 3.5.2).

While this process holds the open turn its events are handed over as the SDK
publishes them; everywhere else they come from the journal. Positions are (turn,
batch), versions are `seq`: what a snapshot already holds is never sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import structlog
from a2a.server.cluster import TaskEventStream, TaskVersion, VersionedEvent
from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

from a2a_gcs.claims import ClaimTable
from a2a_gcs.clock import boottime
from a2a_gcs.errors import StoreError
from a2a_gcs.journal import Journal
from a2a_gcs.records import TURN_STRIDE, TaskMeta
from a2a_gcs.task_json import INTERRUPTED, TERMINAL, TERMINAL_NAMES
from a2a_gcs.task_records import TaskRecord, TaskRecords
from a2a_gcs.tasks.replay import Replay, Uncovered
from a2a_gcs.tasks.store import BucketTaskStore

log = structlog.get_logger(__name__)

_BUFFER = 4096
"""Events that a subscriber may lag behind; one that lags further goes on from the journal."""

_BUFFER_BYTES = 1024**2
"""Bytes of such events."""

_JUDGE_EVERY_SECONDS = 5.0
_PUBLISHED_WITHIN_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 0.1
_LOOKS = 20


def ends_turn(event: Event) -> bool:
    """Whether a stream ends with this event: an answer, or a terminal or interrupted state."""
    if isinstance(event, Message):
        return True
    return isinstance(event, Task | TaskStatusUpdateEvent) and event.status.state in TERMINAL | INTERRUPTED


@dataclass(frozen=True, slots=True)
class Told:
    """An event on its way to a subscriber.

    Attributes:
        event: The event.
        seq: Version of the task that it makes, or shows; 0 where nobody knows.
        last: The stream ends with it.
    """

    event: Event
    seq: int = 0
    last: bool = False


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
        """The events of `resume` from the task as it is."""
        async with contextlib.aclosing(self.resume(task_id, None)) as events:
            async for told in events:
                yield told.event

    async def resume(self, task_id: str, after: int | None, *, waits: bool = True) -> AsyncGenerator[Told, None]:
        """What follows a version, until a turn of the task ends. Nothing is missed, and nothing comes twice.

        Without a version, or where the journal does not hold all that followed it (any more), that begins with the
        whole task; after the present version it begins with the state that the task is in, so that the subscriber
        hears something at once. A parked task's stream then `waits` for the next turn, whichever host runs it, or
        ends. Yields nothing if there is no task.

        Raises:
            StoreError: The task could not be read.
        """
        with self._tapped(task_id) as tap:
            record = await self._caught_up(task_id, after)
            if record is None:
                return
            seq, over = record.meta.seq, False
            stands = record.terminal or not (waits or _goes_on(record))
            try:
                async with contextlib.aclosing(self._missed(record, after)) as events:
                    async for missed in events:
                        over = not record.meta.open and seq_of(missed.version) == seq
                        yield Told(missed.event, seq_of(missed.version), last=over)
            except Uncovered:
                over = stands
                yield Told(record.copy_task(), seq, last=over)
            else:
                if after == seq:
                    over = stands
                    yield Told(Replay.standing(record).event, seq, last=over)
            if over:
                return
            async with contextlib.aclosing(self._after(record, tap)) as news:
                async for versioned in news:
                    last = ends_turn(versioned.event)
                    yield Told(versioned.event, seq_of(versioned.version), last=last)
                    if last:
                        return

    async def _caught_up(self, task_id: str, after: int | None) -> TaskRecord | None:
        """The task, not older than a version that a subscriber has: its host may be about to write that down."""
        for _ in range(_LOOKS):
            record = await self._tasks.read(task_id)
            if record is None or after is None or record.meta.seq >= after or not record.meta.open:
                break
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
        return record

    async def _missed(self, record: TaskRecord, after: int | None) -> AsyncGenerator[VersionedEvent, None]:
        if after is None or after > record.meta.seq:
            raise Uncovered
        async with contextlib.aclosing(Replay(self._journal, record, after).events()) as events:
            async for missed in events:
                yield missed

    async def numbered(
        self, task_id: str, turn: int, events: AsyncGenerator[Event, None]
    ) -> AsyncGenerator[Told, None]:
        """The events of a run of this process, each with the version that it was published with."""
        with self._tapped(task_id) as tap:
            async with contextlib.aclosing(events):
                async for event in events:
                    seq = await self._published(event, turn, tap)
                    terminal = not isinstance(event, TaskArtifactUpdateEvent | Message) and (
                        event.status.state in TERMINAL
                    )
                    last = ends_turn(event) and (
                        terminal or isinstance(event, Message) or not self._runs_here(task_id, turn)
                    )
                    yield Told(event, seq, last=last)

    @staticmethod
    async def _published(event: Event, turn: int, tap: _Tap) -> int:
        """The version of an event that the SDK publishes right after it has handed it out; 0 if it does not."""
        give_up_at = boottime() + _PUBLISHED_WITHIN_SECONDS
        while not isinstance(event, Message) and not tap.lost:
            while (published := tap.take(turn)) is not None:
                if published.event is event:
                    return seq_of(published.version)
            if boottime() >= give_up_at:
                break
            await tap.wait(_PUBLISHED_WITHIN_SECONDS)
        return 0

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


def _goes_on(record: TaskRecord) -> bool:
    """Whether a turn runs and has not said that it waits; one that has only begun has the state of the one before."""
    begun = record.meta.seq == record.meta.turn * TURN_STRIDE
    return record.meta.open and (begun or record.task.status.state not in INTERRUPTED)


class _Reader:
    """Reads one turn of a task from the bucket: batch after batch, then the state that ended it.

    Where a batch is missing, task.json tells why (ARCHITECTURE, *A running task on many hosts*).
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
            return [VersionedEvent(event=update, version=TaskVersion(meta.was_seq or meta.turn * TURN_STRIDE - 1))]
        record = await self._records.load(self._ref)
        if record is None:
            return []
        version = TaskVersion(record.meta.seq)
        complete = record.meta.turn < self._turn or (
            record.meta.turn == self._turn and self._batch >= record.meta.journal
        )
        if not complete:  # batches are gone: only the whole task makes up for them
            return [VersionedEvent(event=record.copy_task(), version=version)]
        return [Replay.standing(record)]


def seq_of(version: TaskVersion) -> int:
    """The `seq` behind a version that this package made."""
    value = version._value  # noqa: SLF001 - the SDK's own stream reads it as well; there is no accessor
    return int(value)
