"""Ending the tasks of dead hosts, by whoever touches them (invariant I6)."""

from __future__ import annotations

import structlog
from a2a.helpers.proto_helpers import new_text_message
from a2a.types.a2a_pb2 import Role, Task, TaskState, TaskStatus

from a2a_gcs import telemetry
from a2a_gcs.claims import ClaimTable
from a2a_gcs.clock import utcnow
from a2a_gcs.errors import Conflict
from a2a_gcs.journal import Journal
from a2a_gcs.layout import TaskRef
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.records import TaskMeta
from a2a_gcs.task_json import stamp
from a2a_gcs.task_records import TaskRecord, TaskRecords

log = structlog.get_logger(__name__)


class Settler:
    """Fails open tasks whose owner is dead.

    Parked tasks are never settled (rule *keep_parked*), except when they have waited longer than they were given.
    """

    def __init__(self, records: TaskRecords, journal: Journal, liveness: Liveness, table: ClaimTable) -> None:
        self._records = records
        self._journal = journal
        self._liveness = liveness
        self._table = table

    async def settled(self, record: TaskRecord) -> TaskRecord:
        """The record as it stands once a dead owner's turn has been ended; unchanged if there is none.

        The order is heartbeat, record again, write (rule *recheck*), so that an
        outcome stored between the two is never mistaken for a death.
        """
        current = record
        while await self._abandoned(current) or current.overdue:
            again = await self._records.load(current.ref)
            if again is None:  # deleted under us: there is nothing to settle
                return current
            if again.version != current.version:
                current = again
                continue
            try:
                return await self._fail(await self._journal.current(current))
            except Conflict:
                current = await self._records.load(current.ref) or current
        return current

    async def tombstone(self, ref: TaskRef, owner: str) -> None:
        """Ends a dead claim that has no task.json: pointer, then task.json as FAILED, both if absent.

        Only then may anybody go on: a save of the dead host that lands late meets a Conflict (rule *tombstone*).
        """
        await self._records.take_over_pointer(ref)
        task = Task(id=ref.task_id, context_id=ref.context_id)
        fresh = TaskRecord(ref, task, TaskMeta(owner=owner, turn=1), 0, {})
        try:
            await self._fail(fresh)
        except Conflict:
            log.info("settle.superseded", task_id=ref.task_id, context_id=ref.context_id)

    async def bury(self, ref: TaskRef, owner: str) -> None:
        """Ends a claim of a dead host, with or without a task.json. Raises CorruptRecord and StoreError."""
        record = await self._records.load(ref)
        if record is not None:
            await self.settled(record)
        elif await self._records.claimed_by(ref, owner):
            await self.tombstone(ref, owner)

    async def found(self, ref: TaskRef) -> TaskRecord | None:
        """A task that somebody came upon, as it stands once a dead owner's turn has been ended; None if there is none.

        Also of a claim that never got as far as a task.json. Raises CorruptRecord and StoreError.
        """
        record = await self._records.load(ref)
        if record is not None:
            return await self.settled(record)
        owner = await self._records.claimant(ref)
        if owner is None or not await self._liveness.is_dead(owner):
            return None
        await self.bury(ref, owner)  # which looks at record and ledger again (rule *recheck*)
        return await self._records.load(ref)

    async def is_dead(self, owner: str) -> bool:
        return await self._liveness.is_dead(owner)

    async def _abandoned(self, record: TaskRecord) -> bool:
        if record.terminal or not record.meta.open:
            return False
        if (claim := self._table.get(record.ref.task_id)) is not None and str(claim.owner) == record.meta.owner:
            return False
        return await self._liveness.is_dead(record.meta.owner)

    async def _fail(self, record: TaskRecord) -> TaskRecord:
        task = record.copy_task()
        if task.status.HasField("message"):
            task.history.append(task.status.message)
        text = _OVERDUE.format(seconds=record.meta.patience) if record.overdue else _epitaph(record)
        message = new_text_message(
            text, context_id=record.ref.context_id, task_id=record.ref.task_id, role=Role.ROLE_AGENT
        )
        task.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_FAILED, message=message))
        stamp(task, utcnow())
        # The dead host may have replaced the archive that its record pins, so nothing resumes from that pin.
        # It may also have died between a push configuration and the first task.json that says so.
        seq = record.meta.foreign_seq()
        meta = record.meta.with_(open=False, seq=seq, pin=None, push=True, notice=seq)
        written = await self._records.write(record, task, meta)
        telemetry.settlements.add(1, {"cause": "overdue" if record.overdue else "dead"})
        log.warning(
            "settle.failed", task_id=record.ref.task_id, context_id=record.ref.context_id, owner=record.meta.owner
        )
        return written


_OVERDUE = (
    "The task waited longer for an answer than the {seconds} s that the host allows (max_wait_seconds). "
    "Its artifacts and workspace are kept; the next task of this context starts from the last completed workspace."
)


def _epitaph(record: TaskRecord) -> str:
    kept = (
        f"Kept: {len(record.task.artifacts)} artifacts and the history up to the last save." if record.version else ""
    )
    text = (
        "The host that ran this task stopped before the task was done. "
        f"{kept} The next task of this context starts from the last completed workspace."
    )
    return " ".join(text.split())
