"""ListTasks: newest status first, ties by id, with a cursor that stays put while tasks change.

First form: one listing of a context, or of all contexts, by the metadata of
each task.json; only the page's tasks are read.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import structlog
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, TaskState
from a2a.utils.errors import InvalidParamsError

from a2a_gcs.errors import CorruptRecord, InvalidId
from a2a_gcs.layout import CONTEXTS_PREFIX, TaskRef, context_prefix, parse_task
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import TaskMeta
from a2a_gcs.task_records import TaskRecord, TaskRecords, UnreadableTask

log = structlog.get_logger(__name__)

Settle = Callable[[TaskRecord], Awaitable[TaskRecord]]

DEFAULT_PAGE = 50
_READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """A task in a listing, before it is read."""

    ref: TaskRef
    state: str
    status_time: int
    open: bool

    @property
    def order(self) -> tuple[int, str]:
        return -self.status_time, self.ref.task_id


async def list_tasks(
    store: ObjectStore, records: TaskRecords, settle: Settle, params: ListTasksRequest
) -> ListTasksResponse:
    """One page of tasks; `total_size` counts all that match.

    Open tasks of dead hosts are settled first. A task.json that cannot be parsed
    is logged and left out.

    Raises:
        InvalidParamsError: The page token is not one of ours.
        StoreError: Nothing is listed rather than a part.
    """
    after = _decode_cursor(params.page_token)
    if params.status not in TaskState.values():
        raise InvalidParamsError(message=f"there is no task state {params.status}")
    found = [e async for e in _entries(store, records, settle, params.context_id) if _matches(e, params)]
    found.sort(key=lambda e: e.order)
    size = params.page_size or DEFAULT_PAGE
    rest = [e for e in found if after is None or e.order > after]
    page = rest[:size]
    tasks = [r.copy_task() for r in await _read_all(records, [e.ref for e in page]) if r is not None]
    return ListTasksResponse(
        tasks=tasks,
        total_size=len(found),
        page_size=size,
        next_page_token=_encode_cursor(page[-1]) if len(rest) > size else "",
    )


async def _entries(store: ObjectStore, records: TaskRecords, settle: Settle, context_id: str) -> AsyncIterator[Entry]:
    try:
        prefix = context_prefix(context_id) if context_id else CONTEXTS_PREFIX
    except InvalidId as e:
        raise InvalidParamsError(message=str(e)) from e
    cursor: str | None = None
    while True:
        listing = await store.list(prefix, page=cursor)
        for info in listing.objects:
            if (ref := parse_task(info.key)) is not None:
                entry = _from_metadata(ref, info.key, info.metadata)
                if entry is None or entry.open:
                    entry = await _from_record(records, settle, ref)
                if entry is not None:
                    yield entry
        if (cursor := listing.next) is None:
            return


def _from_metadata(ref: TaskRef, key: str, raw: object) -> Entry | None:
    try:
        meta = TaskMeta.from_metadata(key, raw)  # type: ignore[arg-type]
    except CorruptRecord:
        return None
    return Entry(ref, meta.state, meta.status_time, meta.open) if meta.state else None


async def _from_record(records: TaskRecords, settle: Settle, ref: TaskRef) -> Entry | None:
    """What only the record tells: of tasks written by something else, and of those that may be abandoned."""
    try:
        if (record := await records.load(ref)) is None:
            return None
        record = await settle(record)
    except UnreadableTask as e:
        log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
        return None
    state = TaskState.Name(record.task.status.state)
    return Entry(ref, state, record.task.status.timestamp.ToMilliseconds(), record.meta.open)


def _matches(entry: Entry, params: ListTasksRequest) -> bool:
    if params.status and entry.state != TaskState.Name(params.status):
        return False
    if params.HasField("status_timestamp_after"):  # inclusive, as the SDK's own stores have it
        return entry.status_time >= params.status_timestamp_after.ToMilliseconds()
    return True


async def _read_all(records: TaskRecords, refs: list[TaskRef]) -> list[TaskRecord | None]:
    gate = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(ref: TaskRef) -> TaskRecord | None:
        async with gate:
            try:
                return await records.load(ref)
            except UnreadableTask as e:
                log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
                return None

    return list(await asyncio.gather(*map(read, refs)))


def _encode_cursor(last: Entry) -> str:
    return base64.urlsafe_b64encode(json.dumps(last.order).encode()).decode()


def _decode_cursor(token: str) -> tuple[int, str] | None:
    if not token:
        return None
    try:
        status_time, task_id = json.loads(base64.urlsafe_b64decode(token.encode()))
        return int(status_time), str(task_id)
    except (ValueError, TypeError, OverflowError, RecursionError) as e:
        raise InvalidParamsError(message="pageToken is not one that this server gave") from e
