"""Checks of what is stored: that each record is one, and goes with the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from a2a_gcs.claims import ClaimTable
from a2a_gcs.doctor.checks import Check, Finding, Severity
from a2a_gcs.doctor.ground import Ground, fault_of
from a2a_gcs.doctor.patient import Patient
from a2a_gcs.errors import CorruptRecord
from a2a_gcs.layout import TaskRef, pointer_key, task_key, workspace_key
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.objectstore.port import ObjectInfo
from a2a_gcs.records import MIGRATING, SCHEMA, HeartbeatRecord, TaskMeta
from a2a_gcs.root_shapes import Survey

MOST_READ = 1000
"""Records of a kind that are read whole, the newest ones; the others are judged by their metadata."""

_AT_ONCE = 16
_CANCELED = "TASK_STATE_CANCELED"

S = TypeVar("S")
T = TypeVar("T")


async def other_root(patient: Patient) -> Sequence[Finding]:
    await patient.reached()
    found = await Survey(patient.store).elsewhere(patient.hosting)
    if found is None:
        return []
    whence = f"--from-root {found.root} " if found.root else ""
    return [
        Finding(
            f"there is data below {found.prefix}, which hosts with these settings do not see: they keep everything "
            f"below {patient.hosting.root}, and refuse to start",
            f"a2a-gcs migrate {whence}--to-root {patient.hosting.moved(found.root)} --store {patient.uri}, "
            "with all hosts stopped; or run doctor with the settings of the hosts (--config, A2A_GCS_*)",
        )
    ]


async def unreadable(patient: Patient) -> Sequence[Finding]:
    found: list[Finding] = []
    async for ground in grounds(patient):
        tasks = await each(_newest(ground.root.tasks), ground.fault_of_task)
        contexts = await each(_newest(_finished(ground.root.contexts)), ground.fault_of_context)
        for fault in (*tasks, *contexts):
            if fault is not None and not fault.newer:
                key = ground.key(fault.key)
                found.append(
                    Finding(
                        f"{key} cannot be read: {_short(fault.cause)}. Its context takes no further task",
                        f"mend the JSON, or delete {key}; it is never overwritten",
                    )
                )
    return found


async def unfinished(patient: Patient) -> Sequence[Finding]:
    """Contexts that a migration has begun, and broken off or not ended yet."""
    return [
        Finding(
            f"context {context_id} is not migrated to its end, and takes no task until it is",
            "run the same `a2a-gcs migrate --from` again: it goes on where it broke off",
        )
        async for ground in grounds(patient)
        for context_id in sorted(ground.root.contexts.keys() - _finished(ground.root.contexts).keys())
    ]


def _finished(contexts: Mapping[str, ObjectInfo]) -> Mapping[str, ObjectInfo]:
    return {context_id: info for context_id, info in contexts.items() if MIGRATING not in info.metadata}


async def lost_pointers(patient: Patient) -> Sequence[Finding]:
    """Pointers without a task, but for those of claims that live."""
    found: list[Finding] = []
    async for ground in grounds(patient):
        there = {ref.task_id for ref in ground.root.tasks}
        alone = [task_id for task_id in ground.root.pointers if task_id not in there]
        found += [one for one in await each(alone, partial(_lost_pointer, ground)) if one]
    return found


async def _lost_pointer(ground: Ground, task_id: str) -> Finding | None:
    context_id = await ground.context_of(task_id)
    if context_id is None or await ground.fault_of_context(context_id) is not None:  # nobody knows what it is for
        return None
    ref = TaskRef(context_id, task_id)
    owner = await ground.claimed_by(ref)
    if await ground.exists(ref) or (owner and not await ground.settler.is_dead(owner)):
        return None
    if owner is None and await ground.hosts_live():  # its claim may be on its way
        return None
    return Finding(
        f"task {task_id} has a pointer and no task.json: a host died before it had stored anything",
        "--fix ends it as failed if its context still waits for it, and removes the pointer otherwise",
        partial(ground.bury if owner else ground.unpoint, ref),
    )


async def unpointed(patient: Patient) -> Sequence[Finding]:
    """Tasks that cannot be found by their id (I3)."""
    found: list[Finding] = []
    async for ground in grounds(patient):
        alone = [ref for ref in ground.root.tasks if ref.task_id not in ground.root.pointers]
        found += [one for one in await each(alone, partial(_unpointed, ground)) if one]
    return found


async def _unpointed(ground: Ground, ref: TaskRef) -> Finding | None:
    """Looks again, as a task may have been removed while all was listed."""
    if await ground.info(task_key(ref)) is None or await ground.info(pointer_key(ref.task_id)) is not None:
        return None
    return Finding(
        f"{ground.key(task_key(ref))} has no pointer: the task cannot be found by its id",
        "--fix writes the pointer",
        partial(ground.point, ref),
    )


async def unrecorded(patient: Patient) -> Sequence[Finding]:
    """Contexts whose next task would start as if they were new."""
    found: list[Finding] = []
    async for ground in grounds(patient):
        contexts = {ref.context_id for ref in ground.root.tasks} - ground.root.contexts.keys()
        found += [one for one in await each(sorted(contexts), partial(_unrecorded, ground)) if one]
    return found


async def _unrecorded(ground: Ground, context_id: str) -> Finding | None:
    """Looks again: the context may have got a record while all was listed, or been removed."""
    tasks = [ref for ref in ground.root.tasks if ref.context_id == context_id]
    if await ground.recorded(context_id) or not any([await ground.info(task_key(ref)) for ref in tasks]):
        return None
    return Finding(
        f"context {context_id} has tasks and no context.json: its next task would start with no files, "
        "beside one that may still be open",
        "--fix writes the record, from the tasks that are there",
        partial(ground.record, context_id),
    )


async def pins(patient: Patient) -> Sequence[Finding]:
    """Workspaces that are not what their task pins. A canceled task's is put there for inspection, after its end."""
    found: list[Finding] = []
    async for ground in grounds(patient):
        off = [ref for ref, info in ground.root.tasks.items() if _is_off(info, ground.root.workspaces.get(ref))]
        found += [one for one in await each(off, partial(_mispinned, ground)) if one]
    return found


def _is_off(task: ObjectInfo, archive: ObjectInfo | None) -> bool:
    meta = _meta(task)
    if meta is None or meta.pin is None or meta.open or meta.state == _CANCELED:
        return False
    return archive is None or (archive.version, archive.crc32c) != (meta.pin.generation, meta.pin.crc32c)


async def _mispinned(ground: Ground, ref: TaskRef) -> Finding | None:
    """Looks again, as a task may have gone on while all was listed."""
    task, archive = await ground.info(task_key(ref)), await ground.info(workspace_key(ref))
    if task is None or not _is_off(task, archive):
        return None
    meta, key = _meta(task), ground.key(workspace_key(ref))
    generation = meta.pin.generation if meta and meta.pin else 0
    what = "is gone" if archive is None else "is not the one that its task has stored"
    return Finding(
        f"{key} {what}: a task that starts from it fails",
        f"put generation {generation} back, if soft delete has it (gcloud storage restore), or let tasks start from "
        "the one before: A2A_GCS_ON_LOST_WORKSPACE=previous",
    )


async def abandoned(patient: Patient) -> Sequence[Finding]:
    """Running tasks of dead hosts."""
    found: list[Finding] = []
    async for ground in grounds(patient):
        running = [ref for ref, info in ground.root.tasks.items() if (meta := _meta(info)) and meta.open]
        found += [one for one in await each(running, partial(_abandoned, ground)) if one]
    return found


async def _abandoned(ground: Ground, ref: TaskRef) -> Finding | None:
    info = await ground.info(task_key(ref))
    meta = _meta(info) if info else None
    if meta is None or not meta.open or not await ground.settler.is_dead(meta.owner):
        return None
    return Finding(
        f"task {ref.task_id} of context {ref.context_id} is stored as running, and its host is dead",
        "--fix ends it as failed; so does whoever asks for it, and every host's sweep",
        partial(ground.bury, ref),
    )


async def newer_schema(patient: Patient) -> Sequence[Finding]:
    """Records of a later release, whose meaning this one does not know."""
    beats = [info.key for info in (await patient.inventory()).heartbeats]
    newer = [key for key in beats if (fault := await fault_of(patient.store, key, HeartbeatRecord)) and fault.newer]
    async for ground in grounds(patient):
        newer += [ground.key(info.key) for info in ground.root.tasks.values() if _number(info) > SCHEMA]
        faults = await each(_newest(ground.root.contexts), ground.fault_of_context)
        newer += [ground.key(fault.key) for fault in faults if fault is not None and fault.newer]
    return [
        Finding(
            f"{key} was written by a later release (its schema is newer than {SCHEMA})",
            "upgrade a2a-gcs: pip install --upgrade a2a-gcs, on every host over this bucket",
        )
        for key in newer
    ]


def _newest(objects: Mapping[S, ObjectInfo]) -> list[S]:
    """What is read whole."""
    return sorted(objects, key=lambda name: objects[name].age)[:MOST_READ]


def _number(info: ObjectInfo) -> int:
    text = info.metadata.get("schema", "")
    return int(text) if text.isdecimal() else 0


def _meta(info: ObjectInfo) -> TaskMeta | None:
    try:
        return TaskMeta.from_metadata(info.key, info.metadata)
    except CorruptRecord:
        return None


def _short(cause: object) -> str:
    return " ".join(str(cause).split())[:120]


async def grounds(patient: Patient) -> AsyncIterator[Ground]:
    """What each root holds, with what acts on it."""
    table = ClaimTable("doctor")
    liveness = Liveness(patient.store, table)
    inventory = await patient.inventory()
    for name, root in sorted(inventory.roots.items()):
        yield Ground(patient.store, name, root, liveness, table)


async def each(items: Iterable[S], look: Callable[[S], Awaitable[T]]) -> list[T]:
    """The results in order, a few at a time."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(item: S) -> T:
        async with gate:
            return await look(item)

    return list(await asyncio.gather(*map(one, items)))


RECORDS = (
    Check("other-root", "all data can be seen", Severity.ERROR, other_root),
    Check("unreadable-record", "every record can be read", Severity.ERROR, unreadable),
    Check("unfinished-migration", "no migration is unfinished", Severity.WARNING, unfinished),
    Check("pointer-without-task", "every pointer has its task", Severity.WARNING, lost_pointers),
    Check("task-without-pointer", "every task has its pointer", Severity.ERROR, unpointed),
    Check("context-without-record", "every context has its record", Severity.ERROR, unrecorded),
    Check("workspace-pin", "every workspace is what its task pins", Severity.ERROR, pins),
    Check("dead-host", "nothing runs on dead hosts", Severity.WARNING, abandoned),
    Check("newer-schema", "every record is of a known schema", Severity.ERROR, newer_schema),
)
