"""The contexts of a root, newest first: one listing of the pointers for all, three requests for each that is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from a2a_gcs.errors import CorruptRecord, NotFound
from a2a_gcs.layout import TaskRef, context_key, context_prefix, parse_pointer
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.pointers import PointerMeta
from a2a_gcs.records import ContextRecord
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.tasks.index import each_page

PAGE = 25
_MOST_LISTED = 3
"""Pages of 1,000 objects that are read for the size of one context."""

_MOST_STRANGERS = 200
"""Pointers without our metadata that are read."""


@dataclass(slots=True)
class Known:
    """A context, as far as the pointers tell: when something last happened, and how many tasks it has."""

    id: str
    latest: float = 0.0
    tasks: int = 0
    matches: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A context on the page.

    Attributes:
        id: Its id.
        latest: When its newest task began or changed, in Unix seconds of the store's clock.
        tasks: How many it has.
        task_id: Its newest one.
        state: That one's state; empty if that is not known.
        size: Bytes of all its objects.
        larger: There are more objects than were counted.
    """

    id: str
    latest: float
    tasks: int
    task_id: str
    state: str
    size: int
    larger: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """One page of contexts."""

    contexts: Sequence[Shown]
    total: int
    tasks: int
    page: int
    pages: int


async def overview(store: ObjectStore, *, search: str = "", page: int = 0) -> Overview:
    """A page of the contexts whose id, or the id of one of whose tasks, contains `search`. Raises StoreError."""
    known = await _known(store, search.strip())
    found = sorted((one for one in known.values() if one.matches), key=lambda one: (-one.latest, one.id))
    pages = max(1, -(-len(found) // PAGE))
    page = min(page, pages - 1)
    shown = await asyncio.gather(*(_shown(store, one) for one in found[page * PAGE : (page + 1) * PAGE]))
    return Overview(shown, len(found), sum(one.tasks for one in found), page, pages)


async def _known(store: ObjectStore, search: str) -> dict[str, Known]:
    contexts: dict[str, Known] = {}
    strangers: list[tuple[str, float]] = []

    async def take(pointers: Sequence[ObjectInfo]) -> None:
        for info in pointers:
            task_id, meta = parse_pointer(info.key), PointerMeta.from_metadata(info.metadata)
            if task_id is not None and meta.context_id is None:
                strangers.append((task_id, info.updated))
            elif task_id is not None and meta.context_id is not None:
                _count(contexts, meta.context_id, task_id, meta.status_time / 1000 or info.updated, search)

    await each_page(store, take)
    records = TaskRecords(store)
    for task_id, updated in strangers[:_MOST_STRANGERS]:
        if (found := await _context_of(records, task_id)) is not None:
            _count(contexts, found, task_id, updated, search)
    return contexts


def _count(contexts: dict[str, Known], context_id: str, task_id: str, updated: float, search: str) -> None:
    one = contexts.setdefault(context_id, Known(context_id))
    one.tasks += 1
    one.latest = max(one.latest, updated)
    one.matches = one.matches or search in context_id or search in task_id


async def _context_of(records: TaskRecords, task_id: str) -> str | None:
    """Where only the body of a pointer tells it: one that something else has written."""
    try:
        return await records.context_of(task_id)
    except CorruptRecord:
        return None


async def _shown(store: ObjectStore, one: Known) -> Shown:
    (task_id, state, latest), (size, larger) = await asyncio.gather(_newest(store, one.id), _size(store, one.id))
    return Shown(one.id, max(one.latest, latest), one.tasks, task_id, state, size, larger)


async def _newest(store: ObjectStore, context_id: str) -> tuple[str, str, float]:
    """The task that the ledger names as the newest, its state, and when it came to that (Unix seconds)."""
    key = context_key(context_id)
    try:
        record = ContextRecord.parse(key, (await store.get(key)).body)
        if record.active is None:
            return "", "", 0.0
        found = await TaskRecords(store).peek(TaskRef(context_id, record.active.task_id))
    except (NotFound, CorruptRecord):
        return "", "", 0.0
    if found is None:  # claimed, and not stored yet
        return record.active.task_id, "TASK_STATE_SUBMITTED", 0.0
    return record.active.task_id, found[1].state, found[1].status_time / 1000


async def _size(store: ObjectStore, context_id: str) -> tuple[int, bool]:
    size, cursor = 0, None
    for _ in range(_MOST_LISTED):
        listing = await store.list(context_prefix(context_id), page=cursor)
        size += sum(info.size for info in listing.objects)
        if (cursor := listing.next) is None:
            return size, False
    return size, True
