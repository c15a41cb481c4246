"""What a subscriber missed: the events between the last one that it had and the task as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from a2a.server.cluster import TaskVersion, VersionedEvent
from a2a.types.a2a_pb2 import TaskState, TaskStatusUpdateEvent

from a2a_gcs.journal import Journal, Journaled
from a2a_gcs.records import TURN_STRIDE
from a2a_gcs.task_records import TaskRecord

_LOOK_EVERY_SECONDS = 0.1
_LOOKS = 20
"""How often a batch is looked for that is about to be written: it comes within a quarter of a second, or late."""


class Uncovered(Exception):
    """The journal does not hold all that came after a version: only the whole task makes up for it."""


class Replay:
    """Goes through the journal from one version of a task to another; versions of a turn follow each other.

    Args:
        journal: The batches.
        record: The task as it is now, to which the events lead.
        after: The version that the subscriber has; not after that of the record.
    """

    def __init__(self, journal: Journal, record: TaskRecord, after: int) -> None:
        self._journal = journal
        self._record = record
        self._after = after

    async def events(self) -> AsyncGenerator[VersionedEvent, None]:
        """Each event once and in order, the last with the version of the record, or none if that is what it has.

        Raises:
            Uncovered: Some are gone, or their turn is long over. What was yielded stays true.
            StoreError: The journal could not be read.
        """
        meta = self._record.meta
        if self._after == meta.seq:
            return
        if self._after // TURN_STRIDE == meta.turn - 1 and meta.was_seq:
            async for event in self._of_turn_before():
                yield event
        elif self._after // TURN_STRIDE != meta.turn:
            raise Uncovered
        upto = meta.seq
        if not meta.open:
            upto = await self._last_journaled() if self._ended_by_another else meta.seq - 1
        async for event in self._journaled(meta.turn, upto, meta.journal):
            yield event
        if not meta.open:
            yield self.standing(self._record)

    @staticmethod
    def standing(record: TaskRecord) -> VersionedEvent:
        """The state that a task is in, as the event that made it."""
        update = TaskStatusUpdateEvent(task_id=record.ref.task_id, context_id=record.ref.context_id)
        update.status.CopyFrom(record.task.status)
        return VersionedEvent(event=update, version=TaskVersion(record.meta.seq))

    @property
    def _ended_by_another(self) -> bool:
        """Canceled or settled: with a version of the turn after, as nobody but the holder knows the last of its own."""
        return self._record.meta.seq // TURN_STRIDE > self._record.meta.turn

    async def _last_journaled(self) -> int:
        meta = self._record.meta
        events = await self._journal.read(self._record.ref, meta.turn, meta.journal) if meta.journal else None
        if not events:
            raise Uncovered
        return events[-1].seq

    async def _of_turn_before(self) -> AsyncGenerator[VersionedEvent, None]:
        """The rest of the turn before this one, with the state that it parked in."""
        meta, ref = self._record.meta, self._record.ref
        async for event in self._journaled(meta.turn - 1, meta.was_seq - 1, meta.was_journal):
            yield event
        if self._after < meta.was_seq:
            update = TaskStatusUpdateEvent(task_id=ref.task_id, context_id=ref.context_id)
            update.status.state = TaskState.Value(meta.was)  # type: ignore[assignment]
            yield VersionedEvent(event=update, version=TaskVersion(meta.was_seq))
        self._after = meta.turn * TURN_STRIDE

    async def _journaled(self, turn: int, upto: int, batches: int) -> AsyncGenerator[VersionedEvent, None]:
        """What a turn's journal holds up to a version."""
        if self._after >= upto:
            return
        batch = await self._batch_with(turn, self._after + 1, batches)
        while self._after < upto:
            for journaled in await self._read(turn, batch):
                if self._after < journaled.seq <= upto:
                    if journaled.seq != self._after + 1:
                        raise Uncovered
                    self._after = journaled.seq
                    yield VersionedEvent(event=journaled.event, version=TaskVersion(journaled.seq))
            batch += 1

    async def _batch_with(self, turn: int, seq: int, batches: int) -> int:
        """The last batch that begins no later than a version, by bisection: a long turn has thousands."""
        low, high = 1, max(batches, 1)
        while low < high:
            middle = (low + high + 1) // 2
            events = await self._read(turn, middle)
            low, high = (middle, high) if events[0].seq <= seq else (low, middle - 1)
        return low

    async def _read(self, turn: int, batch: int) -> list[Journaled]:
        """A batch that is there, or comes while its turn runs."""
        for _ in range(_LOOKS):
            events = await self._journal.read(self._record.ref, turn, batch)
            if events:
                return events
            if turn != self._record.meta.turn or not self._record.meta.open:
                break
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
        raise Uncovered
