"""One linear history per context (ARCHITECTURE, *The life of a task*). The only module that knows about linearity.

Names in *italics* are those of its rules; tests/chaos/mutations.py tells what breaks without each.
Nothing here may be cancelled half-way: callers run it in a task of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from a2a.types.a2a_pb2 import Message, Task

from a2a_gcs.cas import Versioned, VersionedObject
from a2a_gcs.claims import Claim, ClaimTable, End
from a2a_gcs.clock import boottime, unix_millis
from a2a_gcs.errors import Conflict, CorruptRecord, StoreError
from a2a_gcs.layout import TaskRef, context_key
from a2a_gcs.ledger.errors import (
    ActiveTaskUnreadable,
    Contended,
    ContextBusy,
    ContextMismatch,
    Fenced,
    Repeated,
    StartRefused,
    TaskEnded,
    TaskMissing,
)
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.ledger.starting import asked_for, start_of
from a2a_gcs.ledger.state import Free, ResumeFrom, Waits, remember, said_before, seen_before, standing
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.records import TURN_STRIDE, Active, ContextRecord, LastCompleted, Owner, Pin, TaskMeta
from a2a_gcs.task_json import state_name
from a2a_gcs.task_records import TaskRecord, TaskRecords, UnreadableTask

log = structlog.get_logger(__name__)

_KNOWN_CONTEXTS = 10_000
_LOOK_EVERY_SECONDS = 0.25

Entering = Callable[[TaskRef, Message], Awaitable[Message]]
"""Makes of a message what the history gets."""

_LedgerObject = VersionedObject[ContextRecord]


class Ledger:
    """Claims contexts for new tasks and turns for answers, and gives them back.

    Args:
        store: The root that the contexts are below.
        records: task.json and pointers of the same root.
        settler: Ends what dead hosts left.
        table: Where won claims are entered.
        patience: Seconds to go on trying against other writers before `Contended`.
        resume_from: Which ended tasks' snapshots are started from.
        repeat_wait: Seconds that a repeat waits for the task of its original, before the context is busy for it.
    """

    def __init__(
        self,
        store: ObjectStore,
        records: TaskRecords,
        settler: Settler,
        table: ClaimTable,
        *,
        patience: float = 20.0,
        resume_from: ResumeFrom = "completed",
        repeat_wait: float = 3.0,
    ) -> None:
        self._store = store
        self._records = records
        self._settler = settler
        self._table = table
        self._patience = patience
        self._resume_from = resume_from
        self._repeat_wait = repeat_wait
        self._known: dict[str, Versioned[ContextRecord]] = {}
        self._met_others = False

    # ------------------------------------------------------------------ a new task

    async def claim(self, ref: TaskRef, message: Message, *, minted: bool = False) -> Claim:
        """Claims a context for a new task.

        What this process knows of the context, because it wrote it, is tried without
        reading first: the compare-and-swap checks it. Where that has failed once, as other
        hosts go on with contexts of this one, what is needed if it fails is read meanwhile.

        Nothing is left behind by a refusal, unless a try was ambiguous: then the
        pointer stays, as the claim may have stood for a while (rule *keep_ptr*).

        Args:
            ref: The context, and an id that no task has.
            message: What starts the task; its metadata may name an earlier task of the context to start from.
            minted: The context's id is new as well, so there is nothing to read.

        Raises:
            ContextBusy: Another task of the context is not terminal.
            Repeated: The message started a task before.
            StartRefused: It names a task that cannot be started from.
            ActiveTaskUnreadable, Contended, StoreError: Nothing was started.
        """
        attempt = _Attempt(ref, asked_for(message))
        give_up_at = boottime() + self._patience
        ledger = self._ledger(ref.context_id)
        try:
            if (claim := await self._claim_known(attempt, ledger, message, minted=minted)) is not None:
                return claim
            while boottime() < give_up_at:
                ahead = await attempt.take_ahead()
                seen = ahead.seen if ahead else await ledger.load()
                if (before := await self._before(seen.value, message)) is not None:
                    raise Repeated(before)
                free = await self._free(seen.value, ahead.active if ahead else await self._active_meta(seen.value))
                if free is None:
                    continue
                await self._choose(attempt)
                if (claim := await self._try_claim(attempt, ledger, seen, free.last, message)) is not None:
                    return claim
            raise Contended(ref)
        except BaseException:
            await self._unpoint(attempt)
            raise
        finally:
            attempt.leave_ahead()

    async def _claim_known(
        self, attempt: _Attempt, ledger: _LedgerObject, message: Message, *, minted: bool
    ) -> Claim | None:
        """One try on what this process wrote last; None if it knows nothing, or too little, or something old."""
        context_id = attempt.ref.context_id
        fresh = Versioned(ContextRecord(context_id=context_id), 0) if minted else None
        seen = self._known.get(context_id, fresh)
        if seen is None or attempt.start_from or seen_before(seen.value, message) is not None:
            return None
        active = self._table.ended(seen.value.active.task_id) if seen.value.active else None
        now = standing(seen.value, active, self._resume_from)
        if not isinstance(now, Free):
            return None
        if self._met_others and not minted:
            attempt.ahead = asyncio.create_task(self._look_ahead(ledger, seen, message))
        claim = await self._try_claim(attempt, ledger, seen, now.last, message)
        self._met_others |= claim is None and self._known.get(context_id) is seen  # and it was not this process itself
        return claim

    async def _look_ahead(
        self, ledger: _LedgerObject, known: Versioned[ContextRecord], message: Message
    ) -> _Ahead | None:
        """What another host made of a context that this one knows, and how its task stands; None if it made nothing.

        It only reads, so that it may be left at any point.
        """
        seen = await ledger.load()
        if seen.version == known.version or seen_before(seen.value, message) is not None:
            return None
        return _Ahead(seen, await self._active_meta(seen.value))

    async def _choose(self, attempt: _Attempt) -> None:
        """Finds the workspace that the message names, once nothing of the context runs any more."""
        if attempt.start_from:
            ref = TaskRef(attempt.ref.context_id, attempt.start_from)
            attempt.start = ref, await start_of(self._store, self._records, ref)

    async def started_by(self, message: Message) -> TaskRef | None:
        """The task that the same message has started in the context that it names, or answered; some class B requests.

        Raises:
            InvalidId, StoreError: The context cannot be read.
        """
        if message.task_id:
            try:
                record = await self._records.find(message.task_id)
            except CorruptRecord:
                return None
            return record.ref if record is not None and said_before(record.task, message) else None
        if not message.context_id:
            return None
        return await self._before((await self._ledger(message.context_id).load()).value, message)

    async def _before(self, record: ContextRecord, message: Message) -> TaskRef | None:
        """The task of the same message, only once it is there to answer with (rule *idem*)."""
        before = seen_before(record, message)
        return before if before is not None and await self._appears(before, record) else None

    async def _appears(self, ref: TaskRef, record: ContextRecord) -> bool:
        """Whether the task of a repeat is there, or comes in a moment: a client's retry may overtake the original."""
        give_up_at = boottime() + self._repeat_wait
        while not await self._exists(ref):
            active = record.active if record.active and record.active.task_id == ref.task_id else None
            if active is None or boottime() >= give_up_at or await self._settler.is_dead(active.owner):
                return False
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
        return True

    async def _exists(self, ref: TaskRef) -> bool:
        try:
            return await self._records.load(ref) is not None
        except UnreadableTask:
            return True

    async def _free(self, record: ContextRecord, active: TaskRecord | UnreadableTask | None) -> Free | None:
        """Free if the context can be claimed as it was read; None if something was settled: read again.

        Raises:
            ContextBusy: The active task lives.
        """
        now = standing(record, active.meta if active else None, self._resume_from)
        if isinstance(now, Free) or record.active is None:
            return now if isinstance(now, Free) else None
        ref = TaskRef(record.context_id, record.active.task_id)
        if isinstance(active, TaskRecord):
            try:
                after = await self._settler.settled(active)
            except CorruptRecord as e:  # a batch of its journal, or what somebody made of it just now
                raise _unreadable(e, ref) from e.__cause__
            if not after.terminal:
                raise ContextBusy(ref, state_name(after.task), waits=after.parked)
            return None
        if isinstance(now, Waits) and isinstance(active, UnreadableTask):  # nobody can answer or cancel it
            raise ActiveTaskUnreadable(active.key, ref)
        if isinstance(now, Waits):
            raise ContextBusy(ref, now.state, waits=True)
        if not await self._settler.is_dead(now.owner):
            raise ContextBusy(ref, now.state, waits=False, begun=active is not None)
        if active is not None:  # a dead host's task.json that nobody can read is never overwritten
            raise ActiveTaskUnreadable(active.key, ref)
        if (await self._ledger(record.context_id).load()).value == record:  # rule recheck
            await self._settler.tombstone(ref, now.owner)
        return None

    async def _active_meta(self, record: ContextRecord) -> TaskRecord | UnreadableTask | None:
        if record.active is None:
            return None
        try:
            return await self._records.load(TaskRef(record.context_id, record.active.task_id))
        except UnreadableTask as e:
            if e.newer:
                raise
            log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            if not e.meta.state:
                raise ActiveTaskUnreadable(e.key, e.ref) from e
            return e

    async def _try_claim(
        self,
        attempt: _Attempt,
        ledger: _LedgerObject,
        seen: Versioned[ContextRecord],
        last: LastCompleted | None,
        message: Message,
    ) -> Claim | None:
        """Sends pointer and claim in parallel; None if somebody else was first."""
        owner = self._table.allot(attempt.ref)
        active = Active(task_id=attempt.ref.task_id, owner=str(owner))
        wanted = seen.value.claimed(active, last, remember(message, attempt.ref.task_id))
        try:
            pointed, claimed = await asyncio.gather(
                self._point(attempt), ledger.replace(seen, wanted), return_exceptions=True
            )
        except BaseException:  # cancelled all the same: the claim may land yet, and counts as dead
            self._table.close(owner)
            attempt.ambiguous = True
            raise
        if isinstance(claimed, BaseException):
            self._table.close(owner)
            attempt.ambiguous |= isinstance(claimed, StoreError) and claimed.ambiguous
            if isinstance(claimed, Conflict):
                return None
            raise claimed
        self._learn(claimed)
        claim = _new_claim(attempt, owner, claimed, last)
        held = self._table.hold(claim)
        if not held or isinstance(pointed, BaseException):
            await self.surrender(claim)
            raise pointed if isinstance(pointed, BaseException) else Contended(attempt.ref)
        return claim

    async def _point(self, attempt: _Attempt) -> None:
        if attempt.pointer is None:
            attempt.pointer = await self._records.point(attempt.ref)

    async def _unpoint(self, attempt: _Attempt) -> None:
        if attempt.pointer is None or attempt.ambiguous:
            return
        try:
            await self._records.unpoint(attempt.pointer, attempt.ref.task_id)
        except StoreError as e:
            log.warning("claim.pointer_left", task_id=attempt.ref.task_id, error=str(e))

    # ------------------------------------------------------------------ a further turn

    async def take_turn(
        self, task_id: str, context_id: str | None, message: Message, entering: Entering | None = None
    ) -> Claim:
        """Claims the next turn of a parked task, by compare-and-swap on task.json alone (rule *turncas*).

        Of simultaneous answers exactly one wins. The message enters the history
        together with the claim; the state stays until the agent changes it.

        Args:
            task_id: The task.
            context_id: The context that the message names, or None if it names only the task.
            message: The answer.
            entering: Makes of it what the history gets, once it is known that it may be one.

        Raises:
            TaskMissing, ContextMismatch, TaskEnded: The message cannot be for this task.
            Repeated: It has answered the task before, whatever came of that.
            StartRefused: It names a task to start from.
            ContextBusy: A turn of it is running.
            Contended, StoreError: Nothing was started.
        """
        if (named := asked_for(message)) is not None:
            raise StartRefused(named, "but continues a task, which goes on with its own workspace")
        give_up_at = boottime() + self._patience
        entered: Message | None = None
        while True:
            record = await self._find(task_id)
            if context_id is not None and record.ref.context_id != context_id:
                raise ContextMismatch(record.ref)
            record = await self._settler.settled(record)
            if said_before(record.task, message):
                raise Repeated(record.ref)
            if record.terminal:
                raise TaskEnded(record.ref, state_name(record.task))
            if record.meta.open:
                raise ContextBusy(record.ref, state_name(record.task), waits=False)
            if entered is None:
                entered = message if entering is None else await entering(record.ref, message)
            if (claim := await self._try_turn(record, entered)) is not None:
                return claim
            if boottime() >= give_up_at:
                raise Contended(record.ref)

    async def _find(self, task_id: str) -> TaskRecord:
        try:
            record = await self._records.find(task_id)
        except CorruptRecord as e:
            if e.newer:
                raise
            log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            raise TaskMissing(task_id) from e
        if record is None:
            raise TaskMissing(task_id)
        return record

    async def _try_turn(self, record: TaskRecord, message: Message) -> Claim | None:
        owner, turn = self._table.allot(record.ref), record.meta.turn + 1
        task = record.copy_task()
        if task.status.HasField("message"):  # the question goes before the answer, as the SDK has it
            task.history.append(task.status.message)
            task.status.ClearField("message")
        entered = task.history.add()
        entered.CopyFrom(message)
        entered.task_id, entered.context_id = record.ref.task_id, record.ref.context_id
        meta = record.meta.with_(
            owner=str(owner),
            turn=turn,
            open=True,
            seq=turn * TURN_STRIDE,
            journal=0,
            was=state_name(record.task),
            was_seq=record.meta.seq,
            was_journal=record.meta.journal,
            patience=0,
            notice=0,
        )
        try:
            written = await self._records.write(record, task, meta)
        except Conflict:
            self._table.close(owner)
            return None
        except BaseException:
            self._table.close(owner)
            raise
        pin = record.meta.pin
        claim = Claim(
            ref=record.ref,
            owner=owner,
            turn=turn,
            record=written,
            entered=message,
            base=pin,
            base_ref=record.ref,
            workspace_generation=pin.generation if pin else 0,
        )
        if not self._table.hold(claim):
            await self.surrender(claim)
            raise Contended(record.ref)
        return claim

    # ------------------------------------------------------------------ giving a claim back

    async def release(self, claim: Claim) -> None:
        """Frees the context of a claim that ends without a task, before anybody is told (rule *release*).

        Raises:
            Fenced: The claim was taken over meanwhile.
            StoreError: Nobody knows whether it is free; the claim is held no more, so it counts as dead.
        """
        try:
            await self._give_back(claim)
        except StoreError:  # a save after this could meet the context's next task (I1)
            self._table.finish(claim, End.SURRENDERED)
            raise
        self._table.finish(claim, End.RELEASED)

    async def surrender(self, claim: Claim) -> None:
        """Gives up a claim whose agent has not started; never raises.

        Where the bucket cannot be reached the claim still leaves the open list, so
        that anybody who meets it holds it for dead.
        """
        try:
            await self._give_back(claim) if claim.ledger else await self._park_again(claim)
        except (StoreError, Fenced) as e:
            log.warning("claim.surrender_failed", task_id=claim.ref.task_id, error=str(e))
        finally:
            self._table.finish(claim, End.SURRENDERED)

    async def _give_back(self, claim: Claim) -> None:
        if claim.ledger is None:
            raise Fenced(claim.ref)
        try:
            released = claim.ledger.value.released()
            self._learn(await self._ledger(claim.ref.context_id).replace(claim.ledger, released))
        except Conflict as e:
            self._table.finish(claim, End.FENCED)
            raise Fenced(claim.ref) from e
        if claim.pointer:
            try:
                await self._records.unpoint(claim.pointer, claim.ref.task_id)
            except StoreError as e:
                log.warning("claim.pointer_left", task_id=claim.ref.task_id, error=str(e))

    async def _park_again(self, claim: Claim) -> None:
        """Puts a turn that was not started back: parked, and without the answer, which may be sent again."""
        meta: TaskMeta = claim.record.meta.with_(open=False, seq=claim.record.meta.seq + 1)
        task = claim.record.copy_task()
        del task.history[-1]
        await self._records.write(claim.record, task, meta)

    def _learn(self, written: Versioned[ContextRecord]) -> None:
        """Remembers a record that this process wrote, the most recent ones."""
        context_id = written.value.context_id
        self._known.pop(context_id, None)
        self._known[context_id] = written
        if len(self._known) > _KNOWN_CONTEXTS:
            self._known.pop(next(iter(self._known)))

    def _ledger(self, context_id: str) -> _LedgerObject:
        return VersionedObject(self._store, context_key(context_id), ContextRecord(context_id=context_id))


def _unreadable(error: CorruptRecord, ref: TaskRef) -> Exception:
    """What to tell of an active task: nobody should repair or delete what only a later release can read."""
    return error if error.newer else ActiveTaskUnreadable(error.key, ref)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A context as it was read while a claim on what was known of it was under way, and its active task."""

    seen: Versioned[ContextRecord]
    active: TaskRecord | UnreadableTask | None


class _Attempt:
    """A new task on its way to a claim, over any number of tries."""

    def __init__(self, ref: TaskRef, start_from: str | None) -> None:
        self.ref = ref
        self.start_from = start_from
        self.start: tuple[TaskRef, Pin] | None = None
        self.pointer: ObjectInfo | None = None
        self.ambiguous = False
        self.ahead: asyncio.Task[_Ahead | None] | None = None

    async def take_ahead(self) -> _Ahead | None:
        """What was read ahead, once; raises what the reading raised."""
        ahead, self.ahead = self.ahead, None
        return await ahead if ahead is not None else None

    def leave_ahead(self) -> None:
        """Nobody needs it any more."""
        if self.ahead is not None:
            self.ahead.cancel()
            self.ahead.add_done_callback(lambda done: done.cancelled() or done.exception())


def _new_claim(attempt: _Attempt, owner: Owner, ledger: Versioned[ContextRecord], last: LastCompleted | None) -> Claim:
    ref = attempt.ref
    meta = TaskMeta(owner=str(owner), turn=1, open=True).timed(unix_millis()).with_(open=False)
    fresh = TaskRecord(ref, Task(id=ref.task_id, context_id=ref.context_id), meta, 0, {})
    base = attempt.start or ((TaskRef(ref.context_id, last.task_id), last.pin) if last else None)
    return Claim(
        ref=ref,
        owner=owner,
        turn=1,
        record=fresh,
        base=base[1] if base else None,
        base_ref=base[0] if base else None,
        ledger=ledger,
        pointer=attempt.pointer,
    )
