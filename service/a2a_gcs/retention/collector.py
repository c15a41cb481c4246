"""Removes what the rules of retention let go of one root, beside running hosts.

One listing tells nearly everything; what is old enough to be judged is then
looked at again, record by record. Nothing depends on the listing being fresh:
whoever has claimed a context since has written its record, and every object is
deleted only in the version that was listed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

import structlog

from a2a_gcs.cas import Versioned, VersionedObject
from a2a_gcs.errors import Conflict, CorruptRecord, NotFound, StoreError
from a2a_gcs.layout import CONTEXTS_PREFIX, POINTERS_PREFIX, TaskRef, context_key, part_key, push_mark_key
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.records import ContextRecord
from a2a_gcs.retention.holdings import ContextHoldings, TaskHoldings, silent, sort_out
from a2a_gcs.retention.judgement import Judgement, Rules, judge, may_go
from a2a_gcs.retention.remover import Remover, Step, some_at_once
from a2a_gcs.retention.tally import Tally
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.workspaces.errors import SnapshotCorrupt
from a2a_gcs.workspaces.index import decode_tail
from a2a_gcs.workspaces.upload import TAIL

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is collected.

    Attributes:
        bucket: The bucket at its prefix, where heartbeats and marks of push notifications are.
        store: The root.
        root: Its name; empty for the prefix itself.
        liveness: Tells whether hosts are dead.
    """

    bucket: ObjectStore
    store: ObjectStore
    root: str
    liveness: Liveness


class Collector:
    """Collects one root."""

    def __init__(self, place: Place, rules: Rules, tally: Tally, *, dry_run: bool, step: Step) -> None:
        self._place = place
        self._store = place.store
        self._rules = rules
        self._tally = tally
        self._remover = Remover(place.store, tally, dry_run=dry_run, step=step)
        self._marks = Remover(place.bucket, tally, dry_run=dry_run, step=step)
        self._records = TaskRecords(place.store)

    async def run(self) -> None:
        """Judges and removes. Raises StoreError; what was removed until then is gone, and another run goes on."""
        held = await self.look()
        await some_at_once([one for one in held.values() if may_go(one, self._rules)], self._context)

    async def look(self) -> dict[str, ContextHoldings]:
        """Lists the root. Raises StoreError."""
        infos: list[ObjectInfo] = []
        for prefix in (POINTERS_PREFIX, CONTEXTS_PREFIX):
            infos += [info async for info in listed(self._store, prefix)]
        return sort_out(infos, await self._pointed(infos))

    async def remove_context(self, held: ContextHoldings, seen: Versioned[ContextRecord]) -> bool:
        """Removes a context of which nothing runs; not if somebody claims it before its record is marked.

        Whoever claims it afterwards finds an empty record, and begins anew: what was listed goes, and the record stays.

        Args:
            held: What was listed of it, all of whose tasks have ended.
            seen: Its record, as it was when that was found out.
        """
        marked = await self._marked(held.context_id, seen)
        if marked is None:
            self._tally.changed += 1
            return False
        gone = await some_at_once(held.tasks.items(), lambda item: self._task(*item))
        self._tally.tasks += sum(gone)
        await self._parts(held.parts)
        if held.record is not None and not await self._remover.one(_at(held.record, marked)):
            return False
        self._tally.contexts += 1
        return True

    # ------------------------------------------------------------------ one context

    async def _context(self, held: ContextHoldings) -> bool:
        try:
            seen = await self._ledger(held.context_id).load()
        except CorruptRecord as error:
            log.error("gc.record_unreadable", key=error.key)  # noqa: TRY400 - it is about the data
            return False
        record = seen.value if seen.version else None
        judgement = judge(
            held,
            record,
            self._rules,
            unchanged=held.record is not None and held.record.version == seen.version,
            abandoned=await self._abandoned(held, record),
        )
        if judgement.whole:
            return await self.remove_context(held, seen)
        for task_id in judgement.tasks:
            gone = await self._task(task_id, held.tasks.pop(task_id))
            self._tally.tasks += gone
        referenced = await self._referenced(held)
        await self._rest(judge(held, record, self._rules, referenced=referenced))
        return True

    async def _rest(self, judgement: Judgement) -> None:
        await self._orphans(judgement.orphans)
        batches = await self._remover.all(judgement.batches)
        self._tally.batches += batches
        await self._parts(judgement.parts)

    # `tally.x += await ...` would read x before the wait, and lose what other contexts count meanwhile

    async def _orphans(self, infos: Sequence[ObjectInfo]) -> None:
        count = await self._remover.all(infos)
        self._tally.orphans += count

    async def _parts(self, infos: Sequence[ObjectInfo]) -> None:
        count = await self._remover.all(infos)
        self._tally.parts += count

    async def _task(self, task_id: str, task: TaskHoldings) -> bool:
        """Whether a task has gone; what is old of one without a record goes as well, and is none.

        A young pointer may be that of a claim which was late, and takes the next version of the record.
        """
        if task.record is None:
            old = [info for info in task.objects if info.age >= self._rules.runs]
            await self._orphans(old)
            return False
        if not await self._remover.task(task):
            return False
        if task.meta is not None and task.meta.push:
            with contextlib.suppress(NotFound):
                await self._marks.one(await self._place.bucket.head(push_mark_key(self._place.root, task_id)))
        return True

    async def _marked(self, context_id: str, seen: Versioned[ContextRecord]) -> int | None:
        """The version of the record that says that the context goes; None if somebody was first."""
        if seen.value.being_removed or not seen.version or self._remover.dry_run:
            return seen.version
        try:
            return (await self._ledger(context_id).replace(seen, seen.value.emptied())).version
        except Conflict:
            return None

    async def _abandoned(self, held: ContextHoldings, record: ContextRecord | None) -> bool:
        """Whether the active task was never begun and will not be: heartbeat, then its record (rule *recheck*)."""
        if record is None or record.active is None:
            return False
        task = held.tasks.get(record.active.task_id)
        if task is not None and task.record is not None:
            return False
        if not await self._place.liveness.is_dead(record.active.owner):
            return False
        return await self._records.peek(TaskRef(held.context_id, record.active.task_id)) is None

    async def _referenced(self, held: ContextHoldings) -> frozenset[str]:
        """Keys of all parts that the archives refer to; the table of one that is gone refers to none."""
        if not held.parts:
            return frozenset()
        there = {info.key for info in held.parts}
        found: set[str] = set()
        for task in held.tasks.values():
            name = task.archive.metadata.get(TAIL, "") if task.archive else ""
            if task.archive is None or not name or (tail := part_key(task.archive.key, name)) not in there:
                continue
            try:
                index = decode_tail((await self._store.get(tail)).body)
            except (NotFound, SnapshotCorrupt):
                continue
            found |= {tail, *(part_key(task.archive.key, part.name) for part in index.parts)}
        return frozenset(found)

    async def _pointed(self, infos: list[ObjectInfo]) -> dict[str, str]:
        """Contexts of pointers that tell theirs only in the body."""
        found: dict[str, str] = {}
        for task_id in silent(infos):
            try:
                context_id = await self._records.context_of(task_id)
            except (CorruptRecord, StoreError) as error:
                log.warning("gc.pointer_unreadable", task_id=task_id, error=str(error))
                continue
            if context_id is not None:
                found[task_id] = context_id
        return found

    def _ledger(self, context_id: str) -> VersionedObject[ContextRecord]:
        return VersionedObject(self._store, context_key(context_id), ContextRecord(context_id=context_id))


async def listed(store: ObjectStore, prefix: str) -> AsyncGenerator[ObjectInfo, None]:
    """Everything below a prefix."""
    page: str | None = None
    while True:
        answer = await store.list(prefix, page=page)
        for info in answer.objects:
            yield info
        page = answer.next
        if page is None:
            return


def _at(info: ObjectInfo, version: int) -> ObjectInfo:
    return replace(info, version=version)
