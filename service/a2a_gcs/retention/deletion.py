"""Deletes a context, or a root, with everything of theirs and whatever their age."""

from __future__ import annotations

from a2a_gcs.cas import Versioned, VersionedObject
from a2a_gcs.claims import ClaimTable
from a2a_gcs.errors import A2AGcsError, CorruptRecord, NotFound
from a2a_gcs.journal import Journal
from a2a_gcs.layout import TaskRef, context_key, context_prefix, pointer_key
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.records import ContextRecord
from a2a_gcs.retention.collector import Collector, Place, listed
from a2a_gcs.retention.holdings import ContextHoldings, sort_out
from a2a_gcs.retention.judgement import Rules
from a2a_gcs.retention.remover import Step
from a2a_gcs.retention.tally import Tally
from a2a_gcs.task_records import TaskRecords, UnreadableTask
from a2a_gcs.tasks.store import BucketTaskStore

YOUNG_SECONDS = 120.0
"""What belongs to no task may be that of a claim under way; hosts give up on one after `store_budget_seconds`."""

_TRIES = 5


class NotDeleted(A2AGcsError):
    """A context was left as it was; the message says why and what to do."""


class Deletion:
    """Deletes below one root.

    Tasks that wait for an answer are canceled first. One that runs keeps its context: what its host writes at the
    end would come too late to be deleted.
    """

    def __init__(self, place: Place, table: ClaimTable, tally: Tally, *, dry_run: bool, step: Step) -> None:
        self._place = place
        self._store = place.store
        self._tally = tally
        self._dry_run = dry_run
        self._records = TaskRecords(self._store)
        journal = Journal(self._store)
        self._settler = Settler(self._records, journal, place.liveness, table)
        self._tasks = BucketTaskStore(self._store, self._records, journal, table, self._settler.settled)
        self._collector = Collector(place, Rules(runs=YOUNG_SECONDS), tally, dry_run=dry_run, step=step)

    async def context(self, context_id: str) -> None:
        """Deletes a context.

        Raises:
            NotDeleted: There is none, a task of it runs, or somebody goes on using it.
            CorruptRecord: Its record cannot be read.
            StoreError: Part of it may be gone; the same call again goes on.
        """
        for _ in range(_TRIES):
            seen = await self._ledger(context_id)  # before everything else: whoever claims it from now on is noticed
            held = await self._look(context_id)
            if not held.objects:
                raise NotDeleted(f"there is no context {context_id!r} below this root")
            await self._expect_quiet(held, seen.value)
            if not self._dry_run:
                for task_id in held.tasks:
                    await self._end(TaskRef(context_id, task_id))
                held = await self._look(context_id)
            if await self._collector.remove_context(held, seen):
                return
        raise NotDeleted(f"context {context_id!r} is being used: stop whoever sends messages to it, and try again")

    async def root(self) -> list[A2AGcsError]:
        """Deletes all contexts of the root, and what belongs to none. What could not be deleted, and why.

        Raises:
            StoreError: As `context`.
        """
        refused: list[A2AGcsError] = []
        for context_id, held in sorted((await self._collector.look()).items()):
            if held.record is None and not any(task.record for task in held.tasks.values()):
                continue
            try:
                await self.context(context_id)
            except (NotDeleted, CorruptRecord) as error:
                refused.append(error)
        await self._collector.run()
        return refused

    # ------------------------------------------------------------------ before it goes

    async def _expect_quiet(self, held: ContextHoldings, record: ContextRecord) -> None:
        """Raises NotDeleted while a task of a living host runs, or is about to."""
        for task_id in held.tasks:
            ref = TaskRef(held.context_id, task_id)
            try:
                found = await self._records.load(ref)
            except UnreadableTask as error:
                runs, owner = error.meta.open, error.meta.owner
            else:
                runs, owner = (
                    found is not None and found.meta.open and not found.terminal,
                    found.meta.owner if found else "",
                )
            if runs and not await self._settler.is_dead(owner):
                raise _runs(ref)
        active = record.active
        if active is None or ((task := held.tasks.get(active.task_id)) is not None and task.record is not None):
            return
        if not await self._settler.is_dead(active.owner):
            raise _runs(TaskRef(held.context_id, active.task_id))

    async def _end(self, ref: TaskRef) -> None:
        """Settles what a dead host left, and cancels what waits; nobody can then answer it. Raises NotDeleted."""
        try:
            record = await self._records.load(ref)
        except UnreadableTask:
            return
        if record is None or (record := await self._settler.settled(record)).terminal:
            return
        if record.meta.open:
            raise _runs(ref)
        await self._tasks.cancel(ref.task_id)

    async def _look(self, context_id: str) -> ContextHoldings:
        """What there is of a context. Its pointers are found by its tasks."""
        infos = [info async for info in listed(self._store, context_prefix(context_id))]
        held = sort_out(infos, {}).get(context_id, ContextHoldings(context_id))
        for task_id, task in held.tasks.items():
            try:
                task.pointer = await self._store.head(pointer_key(task_id))
            except NotFound:
                continue
        return held

    async def _ledger(self, context_id: str) -> Versioned[ContextRecord]:
        return await VersionedObject(self._store, context_key(context_id), ContextRecord(context_id=context_id)).load()


def _runs(ref: TaskRef) -> NotDeleted:
    return NotDeleted(
        f"context {ref.context_id!r} is kept, as its task {ref.task_id!r} runs: "
        f"wait for its end, or cancel it (a2a-gcs cancel {ref.task_id}), and try again"
    )
