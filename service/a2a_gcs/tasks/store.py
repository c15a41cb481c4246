"""The SDK's task store over task.json and the journal, with its guards (ARCHITECTURE, *Where the SDK needs guarding*).

Only the holder of a task's open turn writes it, through its `TurnWriter`;
everybody else may write CANCELED, or settle. Versions that the SDK sees are
`seq` (`records.TURN_STRIDE`), so its order holds across hosts.
"""

from __future__ import annotations

import asyncio

import structlog
from a2a.server.cluster import ConcurrentTaskModificationError, StoredTask, TaskVersion, VersionedTaskStore
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import (
    ListTasksRequest,
    ListTasksResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

from a2a_gcs.claims import Claim, ClaimTable, End
from a2a_gcs.clock import utcnow
from a2a_gcs.errors import Conflict, CorruptRecord, StoreError
from a2a_gcs.journal import Journal
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import TURN_STRIDE
from a2a_gcs.task_json import TERMINAL, stamp, state_name
from a2a_gcs.task_records import TaskRecord, TaskRecords, UnreadableTask
from a2a_gcs.tasks.listing import Settle, list_tasks
from a2a_gcs.tasks.turn_writer import Pace, TurnWriter

log = structlog.get_logger(__name__)

_CANCELED = TaskState.TASK_STATE_CANCELED
_KEEP_BATCHES_SECONDS = 60.0
"""Batches outlive the end of their turn for the sake of those who still read them (rule *jkeep*)."""


class BucketTaskStore(VersionedTaskStore):
    """Tasks of one root.

    Args:
        store: The root.
        records: Its task.json records.
        journal: Its journals.
        table: The claims whose saves are accepted.
        settle: Ends a record's turn if its owner is dead; called on every read.
        pace: How the writes of running tasks are coalesced.
        keep_batches: Seconds that a turn's batches are kept after its end.
    """

    def __init__(
        self,
        store: ObjectStore,
        records: TaskRecords,
        journal: Journal,
        table: ClaimTable,
        settle: Settle,
        *,
        pace: Pace = Pace(),  # noqa: B008 - frozen
        keep_batches: float = _KEEP_BATCHES_SECONDS,
    ) -> None:
        self._store = store
        self._records = records
        self._journal = journal
        self._table = table
        self._settle = settle
        self._pace = pace
        self._keep_batches = keep_batches
        self._writers: dict[str, TurnWriter] = {}
        self._removals: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ the SDK's interface

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Reads a task, settling it first if its host is dead. A copy: the SDK changes what it gets in place.

        None also for a task.json that cannot be parsed, which is logged and left as it is.
        """
        del context
        record = await self.read(task_id)
        return StoredTask(record.copy_task(), TaskVersion(record.meta.seq)) if record else None

    async def save(
        self,
        task: Task,
        *,
        event: Event | None,
        prev: Task | None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """Writes a task on behalf of the turn that this process holds.

        `prev_version` is not what decides: after a conflict the SDK reloads and
        applies its event to whatever it finds, so the save is fenced by
        (owner, turn) instead. A terminal state that was stored first wins for ever; saving
        CANCELED over CANCELED is no write, as the canceling host's run ends with it.

        An update that changes no state is acknowledged before it is durable, and so is the
        beginning of a task that nobody has been told of yet (`TurnWriter`).

        Raises:
            ConcurrentTaskModificationError: This process does not hold the task's turn (any more).
            StoreError: A state in the middle of a turn could not be written. If that was the first, the claim is
                given up: whoever meets it ends it.
        """
        del prev, prev_version, context
        claim = self._table.get(task.id)
        if claim is None:
            return await self._save_without_claim(task)
        writer = self._writer(claim)
        update = event if isinstance(event, TaskStatusUpdateEvent | TaskArtifactUpdateEvent) else None
        state = task.status.state
        ends = state in TERMINAL or (event is not None and event is claim.parks_with)
        if claim.quiet and not ends and not writer.begun:
            return TaskVersion(writer.begin(task))
        try:
            if update is not None and not ends and writer.goes_on_in(state):
                return TaskVersion(await writer.update(update))
            copy = Task()
            copy.CopyFrom(task)
            seq = await writer.write(copy, ends=ends, event=None if ends else update)
        except Conflict as e:
            if claim.end is End.CANCELED:
                return await self._save_without_claim(task)
            raise ConcurrentTaskModificationError(task.id) from e
        except StoreError:
            if not claim.record.version:  # the SDK writes FAILED over a task that is there, but nothing where none is
                self._finish(claim, End.SURRENDERED)
            raise
        if ends:
            self._finish(claim, End.TERMINAL if state in TERMINAL else End.PARKED)
        return TaskVersion(seq)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Lists tasks, newest status first, ties by id; see `a2a_gcs.tasks.listing`."""
        del context
        return await list_tasks(self._store, self._records, self._read_record, params)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Tasks are history: they are removed by retention, never through the protocol."""
        raise NotImplementedError("a2a-gcs keeps tasks; retention removes them")

    # ------------------------------------------------------------------ for the host

    async def read(self, task_id: str) -> TaskRecord | None:
        """The task as it is now: journal folded in, settled, and with what this process has not flushed yet.

        Raises:
            CorruptRecord: A later release wrote it. One that is damaged is logged, and as good as absent.
            StoreError: The store failed.
        """
        try:
            claim = self._table.get(task_id)
            if claim is not None:
                if not self._writer(claim).begun:
                    return None  # claimed here and not saved yet: the SDK asks three times before its first save
                if await self.still_ours(claim):
                    return self._writer(claim).current()
            record = await self._records.find(task_id)
            return await self._journal.current(await self._settle(record)) if record else None
        except CorruptRecord as e:
            if e.newer:
                raise
            log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            return None

    async def still_ours(self, claim: Claim) -> bool:
        """Whether task.json is still what this turn wrote last (rule *overlay*), for one class B request.

        If it is not, because the task was canceled or taken over, the claim ends, and
        with it the agent. Raises StoreError.
        """
        version = claim.record.version
        if not version:
            return claim.held
        try:
            stored = await self._records.peek(claim.ref)
        except CorruptRecord as e:
            if e.newer:  # this process did not write that
                await self._lost(claim)
                return False
            raise
        if not claim.held or stored is None:
            return False
        found, meta = stored
        if found in {version, claim.record.version}:
            return True
        own = (meta.owner, meta.turn) == (str(claim.owner), claim.turn) and meta.seq < (claim.turn + 1) * TURN_STRIDE
        if own:  # a write whose answer is on its way; if it ended the turn, what is stored is shown
            return meta.open
        await self._lost(claim)
        return False

    async def cancel(self, task_id: str) -> TaskRecord | None:
        """Stores CANCELED over a non-terminal task, whoever holds it (rule *rebase*).

        The stored body is re-read and only its status changes. The claim of this
        process, if any, ends with it.

        Returns:
            The record as it is stored now: CANCELED, or the terminal state that came first. None if there is no task.
        """
        while (record := await self.read(task_id)) is not None and not record.terminal:
            claim = self._table.get(task_id)
            try:
                if claim is not None:
                    return await self._cancel_own(claim)
                seq = record.meta.foreign_seq()
                canceled = record.meta.with_(open=False, seq=seq, notice=seq)
                written = await self._records.write(record, _canceled(record), canceled)
            except Conflict:
                continue
            # The turn of another host, or of none: no claim of this process ends with it.
            log.info("task.canceled", task_id=task_id, context_id=record.ref.context_id, was=state_name(record.task))
            return written
        return record

    # ------------------------------------------------------------------ inside

    async def _cancel_own(self, claim: Claim) -> TaskRecord:
        """CANCELED through the turn's own writer: after everything that the agent said until now."""
        await self._writer(claim).cut_short(_canceled)
        self._finish(claim, End.CANCELED)
        return claim.record

    async def _lost(self, claim: Claim) -> None:
        """The turn is over without this process: canceled elsewhere, or taken over."""
        try:
            stored = await self._records.load(claim.ref)
        except UnreadableTask:
            stored = None
        if not claim.held:
            return
        canceled = stored is not None and stored.task.status.state == _CANCELED
        if stored is not None and canceled:
            claim.record = stored
        log.warning("task.lost", task_id=claim.ref.task_id, owner=str(claim.owner), canceled=canceled)
        self._finish(claim, End.CANCELED if canceled else End.FENCED)

    async def _save_without_claim(self, task: Task) -> TaskVersion:
        """The run that was canceled reports CANCELED once more; anything else is somebody else's task."""
        try:
            record = await self._records.find(task.id)
        except (CorruptRecord, StoreError):
            record = None
        if record and task.status.state == record.task.status.state == _CANCELED:
            return TaskVersion(record.meta.seq)
        raise ConcurrentTaskModificationError(task.id)

    async def _read_record(self, record: TaskRecord) -> TaskRecord:
        return await self._journal.current(await self._settle(record))

    def _writer(self, claim: Claim) -> TurnWriter:
        writer = self._writers.get(claim.ref.task_id)
        if writer is None or writer.claim is not claim:
            writer = TurnWriter(
                claim, self._records, self._journal, self._pace, lambda: self._finish(claim, End.FENCED)
            )
            self._writers[claim.ref.task_id] = writer
        return writer

    def _finish(self, claim: Claim, end: End) -> None:
        self._table.finish(claim, end)
        writer = self._writers.get(claim.ref.task_id)
        if writer is None or writer.claim is not claim:
            return
        del self._writers[claim.ref.task_id]
        if writer.batches and end is not End.FENCED:
            removal = asyncio.create_task(self._remove_batches(claim, writer.batches))
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def _remove_batches(self, claim: Claim, batches: int) -> None:
        await asyncio.sleep(self._keep_batches)
        try:
            await self._journal.remove(claim.ref, claim.turn, batches)
        except StoreError as e:
            log.info("journal.left_to_lifecycle", task_id=claim.ref.task_id, error=str(e))

    async def aclose(self) -> None:
        """Stops what runs behind the answers; batches that are left are the lifecycle rule's."""
        for task in self._removals:
            task.cancel()
        await asyncio.gather(*self._removals, return_exceptions=True)
        for writer in list(self._writers.values()):
            await writer.close()


def _canceled(record: TaskRecord) -> Task:
    task = record.copy_task()
    if task.status.HasField("message"):
        task.history.append(task.status.message)
        task.status.ClearField("message")
    task.status.state = _CANCELED
    stamp(task, utcnow())
    return task
