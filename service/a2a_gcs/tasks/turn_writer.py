"""Writes the task of one turn: what matters at once, the rest coalesced (decision 0002).

An object takes about one write a second (service/docs/limits.md). So an update of a running
task is acknowledged at once, is durable in the journal within a quarter of a
second, and enters task.json when that has grown to several times its size: the
bytes written stay linear in the agent's output (decision 0002). States that somebody waits
for are written through, after everything that came before them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from a2a.types.a2a_pb2 import Task

from a2a_gcs import telemetry
from a2a_gcs.claims import Claim, End
from a2a_gcs.clock import boottime
from a2a_gcs.errors import Conflict, StoreError
from a2a_gcs.journal import Journal, Journaled, Update, fold
from a2a_gcs.layout import task_key
from a2a_gcs.records import TURN_STRIDE, TaskMeta
from a2a_gcs.task_json import INTERRUPTED
from a2a_gcs.task_records import TaskRecord, TaskRecords, UnreadableTask

log = structlog.get_logger(__name__)

_QUARTER_MORE = 1.25

_LOST = frozenset({End.CANCELED, End.FENCED, End.TERMINAL, End.PARKED, End.SURRENDERED, End.RELEASED})
"""Ends after which nothing of the turn may be written. A lapsed turn may: compare-and-swap tells whether it is lost."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How writes are coalesced; seconds and bytes.

    Attributes:
        journal_after: From an update to its batch.
        rewrite_apart: Least time between two writes of task.json that nobody waits for.
        rewrite_growth: How many times larger a task is when task.json is written again, up to `large_bytes`.
        large_bytes: Above this size only the number of batches counts: the end of the turn writes everything anyway.
        small_bytes: Up to this size a task is written again after `rewrite_small_after` all the same.
        rewrite_small_after: From task.json's last write to the next, while there is something new.
        batches: Most batches that a reader has to fold, if the task has grown by a quarter meanwhile.
        retry_after: Between tries of a write that the store did not take.
        pending_bytes: Updates that wait for the journal; beyond that the agent waits.
    """

    journal_after: float = 0.25
    rewrite_apart: float = 1.0
    rewrite_growth: float = 4.0
    large_bytes: int = 256 * 1024
    small_bytes: int = 64 * 1024
    rewrite_small_after: float = 5.0
    batches: int = 256
    retry_after: float = 1.0
    pending_bytes: int = 8 * 1024 * 1024


class TurnWriter:
    """The one writer of a task while its turn is held here.

    Args:
        claim: The turn; its `record` is task.json as this process wrote or read it last.
        records: Where task.json is.
        journal: Where its batches are.
        pace: When what is written.
        on_fenced: Called when the turn turns out to be somebody else's.
    """

    def __init__(
        self, claim: Claim, records: TaskRecords, journal: Journal, pace: Pace, on_fenced: Callable[[], None]
    ) -> None:
        self.claim = claim
        self._records = records
        self._journal = journal
        self._pace = pace
        self._on_fenced = on_fenced
        self._lock = asyncio.Lock()  # one write in flight per task
        self._latest = claim.record.copy_task()
        self._seq = max(claim.record.meta.seq, claim.turn * TURN_STRIDE)
        self._batch = claim.record.meta.journal if claim.record.version else 0
        self._pending: list[Journaled] = []
        self._pending_bytes = 0
        self._written_bytes = self._latest.ByteSize()
        self._written_at = boottime()
        self._flusher: asyncio.Task[None] | None = None
        self._ending = False

    @property
    def batches(self) -> int:
        """Batches of this turn that have been written."""
        return self._batch

    def goes_on_in(self, state: int) -> bool:
        """Whether an update in this state can be coalesced: the task is there, and its state is no other."""
        return self.begun and self._latest.status.state == state

    @property
    def begun(self) -> bool:
        """Whether there is a task: stored, or about to be."""
        return self.claim.record.version > 0 or self._seq > self.claim.turn * TURN_STRIDE

    def current(self) -> TaskRecord:
        """The task with all that was acknowledged, over the version that is stored (for overlay reads)."""
        latest = Task()
        latest.CopyFrom(self._latest)
        meta = self.claim.record.meta.with_(seq=self._seq, journal=self._batch)
        stored = self.claim.record
        return TaskRecord(stored.ref, latest, meta, stored.version, stored.unknown)

    # ------------------------------------------------------------------ coalesced

    def begin(self, task: Task) -> int:
        """Acknowledges a new task that nobody has been told of yet; it is created with the next flush. Its seq.

        A short task whose client waits for its end alone is so created in its final state, with one write less.
        """
        self._latest.CopyFrom(task)
        self._seq += 1
        self._wake()
        return self._seq

    async def update(self, event: Update) -> int:
        """Acknowledges an update of a running task; waits only when the journal is far behind. Its seq.

        Raises:
            Conflict: The turn has ended.
        """
        copy = type(event)()
        copy.CopyFrom(event)  # type: ignore[arg-type]
        while self._ending:  # what is acknowledged now would not be in the task that is being written
            async with self._lock:
                pass
        if self.claim.end in _LOST:
            raise Conflict(task_key(self.claim.ref))
        fold(self._latest, copy)
        self._seq += 1
        seq = self._seq
        self._pending.append(Journaled(seq, copy))
        self._pending_bytes += copy.ByteSize()
        self._wake()
        while self._pending_bytes > self._pace.pending_bytes and self.claim.held:  # noqa: ASYNC110 - a look is cheap
            await asyncio.sleep(self._pace.journal_after)
        return seq

    def _wake(self) -> None:
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._keep_flushing(), name=f"journal:{self.claim.ref.task_id}")

    async def _keep_flushing(self) -> None:
        """Runs while there is something to write, then ends.

        One batch at a time: what comes while it is written waits for the next one, so that a store that takes its time
        is not asked more often than one that does not.
        """
        pause = self._pace.journal_after
        while self.claim.held and (self._pending or self._behind()):
            await asyncio.sleep(pause)
            began = boottime()
            try:
                async with self._lock:
                    await self._write_what_there_is()
            except Conflict:
                self._fenced()
                return
            except StoreError as e:
                log.warning("journal.behind", task_id=self.claim.ref.task_id, error=str(e))
                await asyncio.sleep(self._pace.retry_after)
            pause = max(0.0, began + self._pace.journal_after - boottime())

    async def _write_what_there_is(self) -> None:
        """The first task.json; or a batch, and task.json where that is due: with what its batches hold, and no more."""
        if not self.claim.record.version:
            await self._create()
            return
        seq, due = self._seq, self._rewrite_is_due()
        latest = self._latest_copy() if due else None
        if self._pending:
            await self._append()
        if latest is not None and (not self._pending or self._pending[0].seq > seq):
            await self._write(latest, self._meta(seq))

    def _behind(self) -> bool:
        """task.json lacks updates that are in the journal already."""
        return self.claim.held and self._seq > self.claim.record.meta.seq

    def _rewrite_is_due(self) -> bool:
        if not self.claim.held or not self._behind():
            return False
        since, pace = boottime() - self._written_at, self._pace
        if since < pace.rewrite_apart:
            return False
        size = self._latest.ByteSize()
        grown = size / max(self._written_bytes, 1)
        if grown >= pace.rewrite_growth and size <= pace.large_bytes:
            return True
        if size <= pace.small_bytes:
            return since >= pace.rewrite_small_after
        return self._batch - self.claim.record.meta.journal >= pace.batches and grown >= _QUARTER_MORE

    async def _create(self) -> None:
        """Writes the first task.json, with all that the task holds by now: nothing of that needs the journal."""
        held = len(self._pending)
        if self.claim.held:
            waits = self._latest.status.state in INTERRUPTED
            await self._write(self._latest_copy(), self._meta(self._seq, notice=waits))
            self._drop(held)

    def _drop(self, events: int) -> None:
        self._pending_bytes -= sum(e.event.ByteSize() for e in self._pending[:events])
        del self._pending[:events]

    async def _flush(self) -> None:
        """Puts all that is pending into the journal; raises what `_append` raises."""
        while self._pending:
            await self._append()

    async def _append(self) -> None:
        """Puts what is pending into the next batch; what was refused stays pending.

        The batch numbers of a turn are ours alone, so a batch that is there already is
        an earlier try whose answer was lost: what it holds is done.

        Raises:
            Conflict: It is somebody else's after all.
        """
        events = list(self._pending)
        try:
            await self._journal.append(self.claim.ref, self.claim.turn, self._batch + 1, events)
        except Conflict:
            stored = await self._journal.read(self.claim.ref, self.claim.turn, self._batch + 1) or []
            if not stored or [e.seq for e in stored] != [e.seq for e in events[: len(stored)]]:
                raise
            events = events[: len(stored)]
        self._batch += 1
        self._drop(len(events))

    # ------------------------------------------------------------------ written through

    async def write(self, task: Task, *, ends: bool, event: Update | None) -> int:
        """Writes a state that somebody waits for, after all that came before it.

        Args:
            task: The task in that state; not changed, and not kept.
            ends: The turn ends with it: it is repeated until it is stored, or somebody else has ended the task.
            event: The update that made it, if it is not the turn's end: subscribers elsewhere need it too.

        Returns:
            Its seq.

        Raises:
            Conflict: The turn is not ours any more; the claim is finished as fenced.
            StoreError: It could not be written, and does not end the turn.
        """
        with telemetry.measured("task.save", telemetry.save_seconds):
            async with self._lock:
                try:
                    return await self._write_through(task, ends=ends, event=event)
                except Conflict:
                    self._fenced()
                    raise

    async def cut_short(self, change: Callable[[TaskRecord], Task]) -> None:
        """Ends the turn with what `change` makes of the task, after all that was acknowledged until then.

        Raises:
            Conflict: It has ended otherwise.
        """
        async with self._lock:
            self._ending = True
            try:
                await self._write_through(change(self.current()), ends=True, event=None)
            except Conflict:
                self._fenced()
                raise
            finally:
                self._ending = False

    async def _write_through(self, task: Task, *, ends: bool, event: Update | None) -> int:
        while True:
            if self.claim.end in _LOST:  # while this waited for the lock, or for the store
                raise Conflict(task_key(self.claim.ref))
            try:
                if self.claim.record.version:  # a task.json that is created holds everything
                    await self._flush()
                held = len(self._pending)
                waits = task.status.state in INTERRUPTED and task.status != self._latest.status
                await self._write(task, self._meta(self._seq + 1, ends=ends, notice=ends or waits))
                self._drop(held)
            except Conflict:
                raise
            except StoreError as e:
                if not ends:
                    raise
                log.warning("task.end_not_stored_yet", task_id=self.claim.ref.task_id, error=str(e))
                await asyncio.sleep(self._pace.retry_after)
                continue
            self._seq = seq = self.claim.record.meta.seq
            self._latest.CopyFrom(task)
            if event is not None:
                self._pending.append(Journaled(seq, event))
                self._pending_bytes += event.ByteSize()
                self._wake()
            return seq

    async def _write(self, task: Task, meta: TaskMeta) -> None:
        """One compare-and-swap of task.json.

        A Conflict may be this turn's own earlier write, landed late: what counts is
        whose turn the stored record carries (rule *fence*).
        """
        while True:
            try:
                self.claim.record = await self._records.write(self.claim.record, task, meta)
            except Conflict:
                stored = await self._own_stored()
                if stored is None:
                    raise
                written = (stored.meta.seq, stored.meta.open, stored.task) == (meta.seq, meta.open, task)
                if not written and (stored.terminal or not stored.meta.open):  # settling and canceling leave both
                    raise  # and the record is not taken over: the next write of a lapsed turn would be one over it
                self.claim.record = stored
                if not written:
                    meta = _over(stored.meta, meta)
                    continue
            self._written_at, self._written_bytes = boottime(), task.ByteSize()
            return

    async def _own_stored(self) -> TaskRecord | None:
        """The stored record, if it carries exactly this claim's owner and turn."""
        try:
            stored = await self._records.load(self.claim.ref)
        except UnreadableTask:
            return None
        owner = str(self.claim.owner)
        return stored if stored and (stored.meta.owner, stored.meta.turn) == (owner, self.claim.turn) else None

    def _meta(self, seq: int, *, ends: bool = False, notice: bool = False) -> TaskMeta:
        known = self.claim.record.meta
        return known.with_(
            owner=str(self.claim.owner),
            turn=self.claim.turn,
            open=not ends,
            seq=seq,
            journal=self._batch,
            pin=(self.claim.pin or known.pin) if ends else known.pin,
            patience=self.claim.patience if ends else 0,
            base=self.claim.origin,
            notice=seq if notice else 0,
        )

    def _latest_copy(self) -> Task:
        copy = Task()
        copy.CopyFrom(self._latest)
        return copy

    def _fenced(self) -> None:
        self._on_fenced()
        log.warning("task.fenced", task_id=self.claim.ref.task_id, owner=str(self.claim.owner), turn=self.claim.turn)

    async def close(self) -> None:
        """Stops flushing; what is pending then is lost with the turn that was lost."""
        if self._flusher is not None:
            self._flusher.cancel()
            with contextlib.suppress(asyncio.CancelledError, StoreError):
                await self._flusher


def _over(stored: TaskMeta, meta: TaskMeta) -> TaskMeta:
    """What is written over a record of the same turn that was not the one expected.

    Two tasks never have one version; and somebody may have marked the task as one that has push configurations.
    """
    seq = max(meta.seq, stored.seq + 1)
    return meta.with_(seq=seq, notice=seq if meta.notice else 0, push=meta.push or stored.push)
