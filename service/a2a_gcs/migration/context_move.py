"""Writes one context.

First context.json as a guard: no record that a host can read, so that nobody takes a context for a new one while it
lacks tasks (I1, I5), also when this process dies. Then, in the order of a host, workspaces and pointers before each
task.json, the tasks in the order of time, all of them only where there is nothing yet. At the very end the record takes
the place of the guard. A run that broke off left the guard, and the next one goes on there: what is there already is
compared with what would be written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from a2a.types.a2a_pb2 import Task

from a2a_gcs.errors import Conflict, CorruptRecord, NotFound
from a2a_gcs.layout import TaskRef, context_key, context_prefix, task_key, workspace_key
from a2a_gcs.migration.archives import ArchiveTaken, ArchiveUnreadable, copied
from a2a_gcs.migration.outcome import ContextPlan, body_of, metadata_of, migrated, record_of
from a2a_gcs.migration.report import MigrationRefused, Report, Step
from a2a_gcs.migration.source import Entry, Problem, Source
from a2a_gcs.objectstore.port import IF_ABSENT, WRITE_ID, IfVersion, ObjectInfo, ObjectStore
from a2a_gcs.objectstore.rules import crc32c
from a2a_gcs.pointers import put_pointer
from a2a_gcs.records import MIGRATING, Pin
from a2a_gcs.task_json import state_name, status_millis
from a2a_gcs.task_records import TaskRecords

_GUARDING = (
    b'{\n  "schema": 1,\n'
    b'  "migrating": "`a2a-gcs migrate --from` has not finished with this context: run the same command again"\n}\n'
)


class TaskRefused(Exception):
    """One task is not moved; the message says why."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A task as it is in the target, or would be: its task.json by size, checksum and metadata."""

    entry: Entry
    pin: Pin | None
    size: int
    crc32c: str
    metadata: Mapping[str, str]

    def is_met_by(self, there: ObjectInfo | None) -> bool:
        if there is None:
            return False
        metadata = {name: value for name, value in there.metadata.items() if name != WRITE_ID}
        return (there.size, there.crc32c, metadata) == (self.size, self.crc32c, self.metadata)


class ContextMove:
    """The move of one context.

    Args:
        source: What is read.
        store: The target at the root of the context.
        plan: What is to become of its tasks.
        report: Counts what is done.
        step: Told of each task.
        dry: Look what would be done; write nothing.
    """

    def __init__(
        self, source: Source, store: ObjectStore, plan: ContextPlan, report: Report, step: Step, *, dry: bool
    ) -> None:
        self._source, self._store, self._step, self._report = source, store, step, report
        self._records = TaskRecords(store)
        self._plan = plan
        self._dry = dry
        self._there: Mapping[str, ObjectInfo] = {}

    async def run(self) -> None:
        """Moves what can be moved.

        Raises:
            MigrationRefused: Somebody writes to the context.
            A2AGcsError: Source or target failed: what was written stays, and a repetition goes on there.
        """
        plan = self._plan
        self._there = {info.key: info async for info in self._below()}
        there = self._there.get(context_key(plan.context_id))
        if there is not None and MIGRATING not in there.metadata:
            self._compare()
            return
        guard = there or (None if self._dry else await self._write_guard())
        stored: list[_Stored] = []
        for entry in plan.entries:
            try:
                stored.append(await self._task(entry))
            except (TaskRefused, ArchiveTaken, CorruptRecord) as e:
                why = str(e.cause if isinstance(e, CorruptRecord) else e)
                self._report.problems.append(Problem(f"task {entry.task_id}", why))
            self._step("moving", 1)
        if guard is not None and not self._dry:
            if stored:
                await self._verify(stored)
            await self._close(stored, guard)

    # ------------------------------------------------------------------ one task

    async def _task(self, entry: Entry) -> _Stored:
        ref = TaskRef(self._plan.context_id, entry.task_id)
        if (context := await self._records.context_of(entry.task_id)) not in {None, ref.context_id}:
            raise TaskRefused(f"the target has a task of this id in context {context!r}; it is not overwritten")
        task, unknown = await self._source.task(entry)
        task = migrated(self._plan, entry, task)
        pin = await self._workspace(entry, ref)
        body = await asyncio.to_thread(body_of, task, unknown)
        stored = _Stored(entry, pin, len(body), crc32c(body), metadata_of(task, pin).to_metadata())
        if (there := self._there.get(task_key(ref))) is not None:
            if not self._dry and not stored.is_met_by(there):
                raise TaskRefused("the target has another task of this id; it is not overwritten")
            self._report.present += 1
            return stored
        if not self._dry:
            await self._write(ref, task, body, stored.metadata)
        self._report.moved += 1
        self._report.failed += self._plan.fails(entry)
        return stored

    async def _write(self, ref: TaskRef, task: Task, body: bytes, metadata: Mapping[str, str]) -> None:
        """Pointer, then task.json (I3); the pointer says at once how the task stands, as nothing changes that."""
        with contextlib.suppress(Conflict):  # from an earlier run: which context it names was compared before
            await put_pointer(self._store, ref, IF_ABSENT, state_name(task), status_millis(task))
        try:
            await self._store.put(task_key(ref), body, IF_ABSENT, metadata=metadata, content_type="application/json")
        except Conflict as e:
            raise TaskRefused("somebody writes to this context of the target; stop all hosts, then repeat") from e

    async def _workspace(self, entry: Entry, ref: TaskRef) -> Pin | None:
        """Copies it, unless it is there; one that cannot be copied is reported, and the task goes without."""
        if entry.archive is None:
            return None
        key = workspace_key(ref)
        there = self._there.get(key)
        if there is not None and (there.size, there.crc32c) == (entry.archive.size, entry.archive.crc32c):
            return Pin(there.version, there.crc32c)
        if self._dry:
            self._report.workspaces += there is None
            self._report.size += entry.archive.size if there is None else 0
            return None
        try:
            info = await copied(self._source, entry, self._store, key)
        except ArchiveUnreadable as e:
            self._report.problems.append(Problem(f"workspace of task {entry.task_id}", f"{e}; the task has none now"))
            return None
        self._report.workspaces += there is None
        self._report.size += info.size if there is None else 0
        return Pin(info.version, info.crc32c)

    # ------------------------------------------------------------------ the context

    def _compare(self) -> None:
        """A context with a record is finished, or somebody else's: nothing is added to it."""
        missing = [
            entry.task_id
            for entry in self._plan.entries
            if task_key(TaskRef(self._plan.context_id, entry.task_id)) not in self._there
        ]
        self._report.present += len(self._plan.entries) - len(missing)
        self._step("moving", len(self._plan.entries))
        if missing:
            self._report.problems.append(
                Problem(
                    f"context {self._plan.context_id}",
                    f"the target has this context already, without {_named(missing)}; it is not overwritten",
                )
            )

    async def _verify(self, stored: Sequence[_Stored]) -> None:
        """Looks at what the bucket has now, before the record makes it count."""
        self._there = {info.key: info async for info in self._below()}
        again = TaskRecords(self._store)
        for one in stored:
            ref = TaskRef(self._plan.context_id, one.entry.task_id)
            info, archive = self._there.get(task_key(ref)), self._there.get(workspace_key(ref))
            good = one.is_met_by(info) and (one.pin is None or one.pin == _pin(archive))
            if not good or await again.context_of(ref.task_id) != ref.context_id:
                raise MigrationRefused(
                    f"task {ref.task_id} of context {self._plan.context_id} is not in the target as it was written: "
                    "somebody writes there. Stop all hosts, then run the same command again"
                )

    async def _write_guard(self) -> ObjectInfo:
        key, metadata = context_key(self._plan.context_id), {MIGRATING: "1"}
        try:
            return await self._store.put(key, _GUARDING, IF_ABSENT, metadata=metadata, content_type="application/json")
        except Conflict as e:
            raise self._begun() from e

    async def _close(self, stored: Sequence[_Stored], guard: ObjectInfo) -> None:
        """Puts the record in the place of the guard; nothing, if there is no task to tell of."""
        key = context_key(self._plan.context_id)
        body = record_of(self._plan, [(one.entry, one.pin) for one in stored]).to_bytes()
        try:
            if not stored:
                await self._store.delete(key, version=guard.version)
                return
            await self._store.put(key, body, IfVersion(guard.version), content_type="application/json")
        except (Conflict, NotFound) as e:
            raise self._begun() from e

    def _begun(self) -> MigrationRefused:
        return MigrationRefused(
            f"somebody has written context {self._plan.context_id} meanwhile. Stop all hosts, then run the same "
            "command again: it reports what that context lacks"
        )

    async def _below(self) -> AsyncIterator[ObjectInfo]:
        page: str | None = None
        while True:
            listing = await self._store.list(context_prefix(self._plan.context_id), page=page)
            for info in listing.objects:
                yield info
            if (page := listing.next) is None:
                return


def _pin(archive: ObjectInfo | None) -> Pin | None:
    return Pin(archive.version, archive.crc32c) if archive else None


def _named(tasks: Sequence[str]) -> str:
    rest = f" and {len(tasks) - 3} more" if len(tasks) > 3 else ""  # noqa: PLR2004
    return f"task{'s' if len(tasks) > 1 else ''} {', '.join(tasks[:3])}{rest}"
