"""Where a task's workspace is in the store, and which one the task started from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from a2a_gcs.errors import NotFound
from a2a_gcs.layout import TaskRef, context_prefix, parse_task, task_key, workspace_key
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.records import START_FROM, Base, Pin, TaskMeta
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.workspaces.errors import NoWorkspace


@dataclass(frozen=True, slots=True)
class Archive:
    """The workspace of a task, as it is stored.

    Attributes:
        ref: The task.
        pin: The archive, by its bytes.
        size: Bytes of the archive.
        pinned: task.json names these very bytes; else the task was canceled, or runs.
        base: What the task started from, where that is recorded.
    """

    ref: TaskRef
    pin: Pin
    size: int
    pinned: bool
    base: Base | None = None

    @property
    def key(self) -> str:
        return workspace_key(self.ref)

    def same_as(self, other: Archive | None) -> bool:
        """Whether both have the very same bytes."""
        return other is not None and (self.pin.crc32c, self.size) == (other.pin.crc32c, other.size)


async def find_archive(store: ObjectStore, task_id: str) -> Archive:
    """The workspace of a task.

    Raises:
        NoWorkspace: There is no such task, or it has no workspace yet.
        InvalidId: No task can have this id.
        StoreError: The store failed.
    """
    records = TaskRecords(store)
    context_id = await records.context_of(task_id)
    if context_id is None:
        raise NoWorkspace(f"there is no task {task_id!r} in this store")
    ref = TaskRef(context_id, task_id)
    seen = await records.peek(ref)
    meta = seen[1] if seen else None
    try:
        info = await store.head(workspace_key(ref))
    except NotFound:
        raise NoWorkspace(f"task {task_id!r} has no workspace{_yet(meta)}") from None
    pin = Pin(info.version, info.crc32c)
    return Archive(ref, pin, info.size, pinned=meta is not None and meta.pin == pin, base=meta.base if meta else None)


def _yet(meta: TaskMeta | None) -> str:
    if meta is None or meta.open:
        return " yet: it is saved when its turn ends"
    state = meta.state.removeprefix("TASK_STATE_").lower().replace("_", "-")
    return f": it is {state}, and nothing was saved"


async def find_base(store: ObjectStore, archive: Archive) -> Archive | None:
    """The workspace that a task started from; None if that was empty.

    Where an earlier version did not record it, that of the task that the message named, or of the last
    completed one: tasks of a context follow each other, so whatever was written before this task's own
    record, by the store's clock, came before it.

    Raises:
        NoWorkspace: It is gone, or is another one by now.
    """
    if archive.base is not None:
        return await _recorded(store, archive, archive.base)
    named = await _start_named(store, archive.ref)
    if named:
        return await find_archive(store, named)
    records = [info async for info in _task_records(store, archive.ref.context_id)]
    until = next((info.updated for info in records if info.key == task_key(archive.ref)), float("inf"))
    earlier = [info for info in records if info.updated < until and _completed(info)]
    if not earlier:
        return None
    ref = parse_task(max(earlier, key=lambda info: info.updated).key)
    return await find_archive(store, ref.task_id) if ref else None


async def _recorded(store: ObjectStore, archive: Archive, base: Base) -> Archive | None:
    if not base.task_id:
        return None
    found = await find_archive(store, base.task_id)
    if found.pin.crc32c != base.crc32c:
        raise NoWorkspace(
            f"task {archive.ref.task_id!r} started from what task {base.task_id!r} held then, which was replaced since"
        )
    return found


async def _start_named(store: ObjectStore, ref: TaskRef) -> str:
    record = await TaskRecords(store).load(ref)
    if record is None or not record.task.history:
        return ""
    return str(dict(record.task.history[0].metadata).get(START_FROM, ""))


async def _task_records(store: ObjectStore, context_id: str) -> AsyncIterator[ObjectInfo]:
    prefix, page = context_prefix(context_id), None
    while True:
        listing = await store.list(prefix, page=page)
        for info in listing.objects:
            if parse_task(info.key):
                yield info
        page = listing.next
        if page is None:
            return


def _completed(info: ObjectInfo) -> bool:
    meta = TaskMeta.from_metadata(info.key, info.metadata)
    return meta.state == "TASK_STATE_COMPLETED" and meta.pin is not None
