"""One context: its tasks, who blocks it, and what the next task starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from a2a_gcs.errors import CorruptRecord, NotFound
from a2a_gcs.layout import context_key, context_prefix, parse_task
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import ContextRecord, Ran, TaskMeta
from a2a_gcs.task_json import TERMINAL_NAMES

PAGE = 50


@dataclass(frozen=True, slots=True)
class Past:
    """A task of a context's history.

    Attributes:
        id: Its id.
        state: Name of its state.
        open: A turn of it runs, or its host has died.
        since: When it began, in Unix milliseconds.
        changed: When its state last changed.
        turns: When its turns ran.
        pinned: Its workspace is kept with its state.
        size: Bytes of its record and workspace.
    """

    id: str
    state: str
    open: bool
    since: int
    changed: int
    turns: Sequence[Ran]
    pinned: bool
    size: int

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL_NAMES


@dataclass(frozen=True, slots=True)
class History:
    """A context.

    Attributes:
        id: Its id.
        tasks: Those of the page, newest first.
        total: How many it has.
        size: Bytes of all its objects.
        active: The task that has not ended, if there is one.
        starts_from: The task whose workspace the next one starts from; empty for an empty workspace.
        page: Which page this is, from 0.
        pages: How many there are.
    """

    id: str
    tasks: Sequence[Past]
    total: int
    size: int
    active: Past | None
    starts_from: str
    page: int
    pages: int


async def history(store: ObjectStore, context_id: str, *, page: int = 0) -> History | None:
    """A page of a context's history, by one LIST per 1,000 objects; None if there is none. Raises StoreError."""
    tasks, size = await _tasks(store, context_id)
    record = await _ledger(store, context_id)
    if not tasks and record is None:
        return None
    tasks.sort(key=lambda one: (-one.since, one.id))
    pages = max(1, -(-len(tasks) // PAGE))
    page = min(page, pages - 1)
    return History(
        context_id,
        tasks[page * PAGE : (page + 1) * PAGE],
        len(tasks),
        size,
        next((one for one in tasks if not one.terminal), None),
        _starts_from(record, tasks),
        page,
        pages,
    )


async def _tasks(store: ObjectStore, context_id: str) -> tuple[list[Past], int]:
    found: list[tuple[str, str, TaskMeta, int]] = []
    sizes: dict[str, int] = {}
    total, cursor = 0, None
    while True:
        listing = await store.list(context_prefix(context_id), page=cursor)
        for info in listing.objects:
            total += info.size
            folder = info.key.rpartition("/")[0]
            sizes[folder] = sizes.get(folder, 0) + info.size
            ref = parse_task(info.key)
            if ref and (meta := _meta(info.key, info.metadata)):
                found.append((folder, ref.task_id, meta, int(info.updated * 1000)))
        if (cursor := listing.next) is None:
            break
    return [_past(task_id, meta, updated, sizes[folder]) for folder, task_id, meta, updated in found], total


def _past(task_id: str, meta: TaskMeta, updated: int, size: int) -> Past:
    changed = meta.status_time or updated
    since = meta.turns[0].since if meta.turns else changed
    return Past(task_id, meta.state, meta.open, since, changed, meta.turns, meta.pin is not None, size)


def _meta(key: str, raw: object) -> TaskMeta | None:
    try:
        return TaskMeta.from_metadata(key, raw)  # type: ignore[arg-type]
    except CorruptRecord:
        return None


async def _ledger(store: ObjectStore, context_id: str) -> ContextRecord | None:
    key = context_key(context_id)
    try:
        return ContextRecord.parse(key, (await store.get(key)).body)
    except (NotFound, CorruptRecord):
        return None


def _starts_from(record: ContextRecord | None, tasks: Sequence[Past]) -> str:
    """The ledger learns of a completed task only with the next claim, so the active one counts before it."""
    if record is None:
        return ""
    newest = record.active.task_id if record.active else ""
    if any(one.id == newest and one.state == "TASK_STATE_COMPLETED" and one.pinned for one in tasks):
        return newest
    return record.last_completed.task_id if record.last_completed else ""
