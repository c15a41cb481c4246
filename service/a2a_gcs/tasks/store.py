"""The SDK's task store over task.json, with the guards of FACTS 6.

Only the holder of a task's open turn writes it, and only over what it wrote
or read last; everybody else may write CANCELED, or settle. Versions that the
SDK sees are `seq` (DESIGN 5), so its order holds across hosts.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

import structlog
from a2a.server.cluster import ConcurrentTaskModificationError, StoredTask, TaskVersion, VersionedTaskStore
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task, TaskState

from a2a_gcs.claims import Claim, ClaimTable, End
from a2a_gcs.clock import utcnow
from a2a_gcs.errors import Conflict, CorruptRecord, StoreError
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import TURN_STRIDE, TaskMeta
from a2a_gcs.task_json import TERMINAL, stamp
from a2a_gcs.task_records import TaskRecord, TaskRecords, UnreadableTask
from a2a_gcs.tasks.listing import Settle, list_tasks

log = structlog.get_logger(__name__)

_CANCELED = TaskState.TASK_STATE_CANCELED


class BucketTaskStore(VersionedTaskStore):
    """Tasks of one root.

    Args:
        store: The root.
        records: Its task.json records.
        table: The claims whose saves are accepted.
        settle: Ends a record's turn if its owner is dead; called on every read.
        retry_pause: Seconds between the tries of a terminal save that the bucket does not take.
    """

    def __init__(
        self, store: ObjectStore, records: TaskRecords, table: ClaimTable, settle: Settle, *, retry_pause: float = 1.0
    ) -> None:
        self._store = store
        self._records = records
        self._table = table
        self._settle = settle
        self._retry_pause = retry_pause
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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
        applies its event to whatever it finds (FACTS 6), so the save is fenced by
        (owner, turn) instead. A terminal state that was stored first wins for ever; saving
        CANCELED over CANCELED is no write, as the canceling host's run ends with it.

        Raises:
            ConcurrentTaskModificationError: This process does not hold the task's turn (any more).
            StoreError: A state in the middle of a turn could not be written, or the claim ended meanwhile.
        """
        del prev, prev_version, context
        copy = Task()
        copy.CopyFrom(task)
        async with self._lock(task.id):
            claim = self._table.get(task.id)
            if claim is None:
                return await self._save_without_claim(copy)
            return await self._save_claimed(claim, copy, event)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Lists tasks, newest status first, ties by id; see `a2a_gcs.tasks.listing`."""
        del context
        return await list_tasks(self._store, self._records, self._settle, params)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Tasks are history: they are removed by retention, never through the protocol."""
        raise NotImplementedError("a2a-gcs keeps tasks; retention removes them")

    # ------------------------------------------------------------------ for the host

    async def read(self, task_id: str) -> TaskRecord | None:
        """The record behind `get`. Raises StoreError."""
        claim = self._table.get(task_id)
        if claim is not None and not claim.record.version:
            return None  # claimed here and not saved yet: the SDK asks three times before its first save
        try:
            record = await self._records.find(task_id)
            return await self._settle(record) if record else None
        except CorruptRecord as e:
            log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            return None

    async def cancel(self, task_id: str) -> TaskRecord | None:
        """Stores CANCELED over a non-terminal task, whoever holds it (rule *rebase*).

        The stored body is re-read and only its status changes. The claim of this
        process, if any, ends with it.

        Returns:
            The record as it is stored now: CANCELED, or the terminal state that came first. None if there is no task.
        """
        async with self._lock(task_id):
            while (record := await self.read(task_id)) is not None and not record.terminal:
                task = record.copy_task()
                if task.status.HasField("message"):
                    task.history.append(task.status.message)
                    task.status.ClearField("message")
                task.status.state = _CANCELED
                stamp(task, utcnow())
                meta = record.meta.with_(open=False, seq=record.meta.foreign_seq())
                try:
                    record = await self._records.write(record, task, meta)
                except Conflict:
                    continue
                break
            claim = self._table.get(task_id)
            if claim is not None and record is not None and record.terminal:
                claim.record = record
                self._table.finish(claim, End.CANCELED)
            return record

    # ------------------------------------------------------------------ saving

    async def _save_claimed(self, claim: Claim, task: Task, event: Event | None) -> TaskVersion:
        terminal = task.status.state in TERMINAL
        ends = terminal or (event is not None and event is claim.parks_with)
        meta = claim.record.meta.with_(
            owner=str(claim.owner),
            turn=claim.turn,
            open=not ends,
            seq=max(claim.record.meta.seq, claim.turn * TURN_STRIDE) + 1,
            pin=(claim.pin or claim.record.meta.pin) if ends else claim.record.meta.pin,
        )
        try:
            claim.record = await self._write(claim, task, meta, keep_trying=ends)
        except Conflict as e:
            self._table.finish(claim, End.FENCED)
            log.warning("task.fenced", task_id=claim.ref.task_id, owner=str(claim.owner), turn=claim.turn)
            raise ConcurrentTaskModificationError(claim.ref.task_id) from e
        if ends:
            self._table.finish(claim, End.TERMINAL if terminal else End.PARKED)
        return TaskVersion(claim.record.meta.seq)

    async def _write(self, claim: Claim, task: Task, meta: TaskMeta, *, keep_trying: bool) -> TaskRecord:
        """One write; one that ends the turn is tried again for as long as the claim is held (DESIGN 5)."""
        while True:
            try:
                return await self._write_or_adopt(claim, task, meta)
            except Conflict:
                raise
            except StoreError as e:
                if not keep_trying or not claim.held:
                    raise
                log.warning("task.end_not_stored_yet", task_id=claim.ref.task_id, error=str(e))
                await asyncio.sleep(self._retry_pause)

    async def _write_or_adopt(self, claim: Claim, task: Task, meta: TaskMeta) -> TaskRecord:
        """Writes over what this turn wrote last, also where that landed late.

        A Conflict may be this turn's own earlier write: what counts is whose turn the stored
        record carries, and that nobody has ended it (rule *fence*: settling and canceling leave
        owner and turn as they were).
        """
        while True:
            try:
                meta = meta.with_(seq=max(meta.seq, claim.record.meta.seq + 1))
                return await self._records.write(claim.record, task, meta)
            except Conflict:
                stored = await self._own(claim)
                if stored is None:
                    raise
                if (stored.meta.seq, stored.meta.open, stored.task) == (meta.seq, meta.open, task):
                    return stored
                if stored.terminal or not stored.meta.open:
                    raise
                claim.record = stored

    async def _own(self, claim: Claim) -> TaskRecord | None:
        """The stored record if it carries exactly this claim's owner and turn; None if it was taken over."""
        try:
            stored = await self._records.load(claim.ref)
        except UnreadableTask:
            return None
        ours = stored is not None and (stored.meta.owner, stored.meta.turn) == (str(claim.owner), claim.turn)
        return stored if ours else None

    async def _save_without_claim(self, task: Task) -> TaskVersion:
        """The run that was canceled here reports CANCELED once more; anything else is somebody else's task."""
        try:
            record = await self._records.find(task.id)
        except (CorruptRecord, StoreError):
            record = None
        if record and task.status.state == record.task.status.state == _CANCELED:
            return TaskVersion(record.meta.seq)
        raise ConcurrentTaskModificationError(task.id)

    def _lock(self, task_id: str) -> asyncio.Lock:
        """One write in flight per task; the lock lives as long as somebody uses it."""
        return self._writing.setdefault(task_id, asyncio.Lock())
