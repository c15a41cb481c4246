"""ListTasks: newest status first, ties by id, with a cursor that stays put while tasks change.

Of a task that has ended the metadata of an object tells all that a listing needs: of task.json
within a context, of the pointer across contexts (`a2a_gcs.pointers`). Tasks that have not are
looked at one by one. Only the tasks of the page are read whole, and only they are held.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

import structlog
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.errors import InvalidParamsError

from a2a_gcs.errors import CorruptRecord, InvalidId
from a2a_gcs.layout import TaskRef, context_prefix, parse_pointer, parse_task
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.pointers import TERMINAL_NAMES, PointerMeta
from a2a_gcs.records import TaskMeta
from a2a_gcs.task_json import state_name, status_millis, without
from a2a_gcs.task_records import TaskRecord, TaskRecords, UnreadableTask
from a2a_gcs.tasks.index import each_page

log = structlog.get_logger(__name__)

Settle = Callable[[TaskRecord], Awaitable[TaskRecord]]

DEFAULT_PAGE = 50
_READS_AT_ONCE = 16
_MENDED_POINTERS = 100
"""Most pointers that one listing brings up to date: those of a host that died, or of earlier versions."""

Order = tuple[int, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A task in a listing, before it is read.

    Attributes:
        task_id: Its id.
        ref: Where it is; None for a context that only the pointer's body tells.
        state: Name of its state.
        status_time: Timestamp of that state in Unix milliseconds.
        task: The task itself, where it had to be read anyway.
    """

    task_id: str
    ref: TaskRef | None
    state: str
    status_time: int
    task: Task | None = None

    @property
    def order(self) -> Order:
        return -self.status_time, self.task_id


_Look = Callable[[], Awaitable[Entry | None]]


@dataclass(slots=True)
class Selection:
    """What matches, counted, and the first of it after a cursor; the rest is forgotten.

    Attributes:
        wanted: The filters.
        size: Entries of the page.
        after: The cursor.
        since: Earliest timestamp that matches, in Unix milliseconds; None for any.
        total: How many match, before paging.
    """

    wanted: ListTasksRequest
    size: int
    after: Order | None
    since: int | None = None
    total: int = 0
    _best: list[Entry] = field(default_factory=list)
    _worst: Order | None = None

    def add(self, entry: Entry) -> None:
        if not self.matches(entry.state, entry.status_time):
            return
        self.total += 1
        order = entry.order
        if (self.after is None or order > self.after) and (self._worst is None or order < self._worst):
            self._best.append(entry)
            if len(self._best) >= 4 * (self.size + 1):
                self._prune()

    def matches(self, state: str, status_time: int) -> bool:
        if self.wanted.status and state != TaskState.Name(self.wanted.status):
            return False
        return self.since is None or status_time >= self.since  # inclusive, as the SDK's own stores have it

    def page(self) -> tuple[list[Entry], bool]:
        """The page, and whether there is more after it."""
        self._prune()
        return self._best[: self.size], len(self._best) > self.size

    def _prune(self) -> None:
        self._best.sort(key=lambda e: e.order)
        del self._best[self.size + 1 :]
        if len(self._best) > self.size:
            self._worst = self._best[-1].order


async def list_tasks(
    store: ObjectStore, records: TaskRecords, settle: Settle, params: ListTasksRequest
) -> ListTasksResponse:
    """One page of tasks; `total_size` counts all that match, as far as they are known to be tasks.

    Open tasks of dead hosts are settled first. A task.json that cannot be parsed
    is logged and left out, and not counted by the call that came upon it.

    Raises:
        InvalidParamsError: The page token is not one of ours, or a filter names what cannot be.
        StoreError: Nothing is listed rather than a part.
    """
    if params.status not in TaskState.values():
        raise InvalidParamsError(message=f"there is no task state {params.status}")
    selection = Selection(params, params.page_size or DEFAULT_PAGE, _decode_cursor(params.page_token), _since(params))
    listing = _Listing(store, records, settle, selection)
    if params.context_id:
        await listing.go_through_context(params.context_id)
    else:
        await each_page(store, listing.take_pointers)
    page, more = selection.page()
    tasks = await listing.read(page)
    return ListTasksResponse(
        tasks=tasks,
        total_size=selection.total - (len(page) - len(tasks)),
        page_size=selection.size,
        next_page_token=_encode_cursor(page[-1]) if more else "",
    )


class _Listing:
    """One call's way through the bucket."""

    def __init__(self, store: ObjectStore, records: TaskRecords, settle: Settle, selection: Selection) -> None:
        self._store = store
        self._records = records
        self._settle = settle
        self._selection = selection
        self._gate = asyncio.Semaphore(_READS_AT_ONCE)
        self._mends = _MENDED_POINTERS

    # ------------------------------------------------------------------ finding

    async def go_through_context(self, context_id: str) -> None:
        try:
            prefix = context_prefix(context_id)
        except InvalidId as e:
            raise InvalidParamsError(message=str(e)) from e
        cursor: str | None = None
        while True:
            listing = await self._store.list(prefix, page=cursor)
            found = [(ref, info) for info in listing.objects if (ref := parse_task(info.key)) is not None]
            await self._add_all([partial(self._of_metadata, ref, info.key, info.metadata) for ref, info in found])
            if (cursor := listing.next) is None:
                return

    async def take_pointers(self, pointers: Sequence[ObjectInfo]) -> None:
        looks: list[_Look] = []
        for info in pointers:
            if (task_id := parse_pointer(info.key)) is None:
                continue
            meta = PointerMeta.from_metadata(info.metadata)
            ref = TaskRef(meta.context_id, task_id) if meta.context_id is not None else None
            if meta.final:
                self._selection.add(Entry(task_id, ref, meta.state, meta.status_time))
            else:
                looks.append(partial(self._behind_pointer, task_id, ref))
        await self._add_all(looks)

    async def _add_all(self, looks: Sequence[_Look]) -> None:
        for entry in await self._each(looks):
            if entry is not None:
                self._selection.add(entry)

    async def _behind_pointer(self, task_id: str, ref: TaskRef | None) -> Entry | None:
        """What a pointer that is not final points to: the task as it is, None if there is none (yet)."""
        try:
            if ref is None and (ref := await self._where(task_id)) is None:
                return None
            if (stored := await self._records.peek(ref)) is None:
                return None
            entry = await self._of_meta(ref, stored[1])
        except CorruptRecord as e:
            log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            return None
        if entry is not None and entry.state in TERMINAL_NAMES and self._mends > 0:
            self._mends -= 1
            self._records.mark(ref, entry.state, entry.status_time)
        return entry

    async def _where(self, task_id: str) -> TaskRef | None:
        context_id = await self._records.context_of(task_id)
        return TaskRef(context_id, task_id) if context_id is not None else None

    async def _of_metadata(self, ref: TaskRef, key: str, raw: Mapping[str, str]) -> Entry | None:
        try:
            meta = TaskMeta.from_metadata(key, raw)
        except CorruptRecord:
            meta = TaskMeta()
        return await self._of_meta(ref, meta)

    async def _of_meta(self, ref: TaskRef, meta: TaskMeta) -> Entry | None:
        """A task by its metadata; where that cannot tell, or may be overtaken by a death or a deadline, by the task."""
        if meta.state in TERMINAL_NAMES or (meta.state and not meta.open and not meta.patience):
            return Entry(ref.task_id, ref, meta.state, meta.status_time)
        try:
            if (record := await self._records.load(ref)) is None:
                return None
            record = await self._settle(record)
        except UnreadableTask as e:
            log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            return None
        task = self._wanted(record.task)
        return Entry(ref.task_id, ref, state_name(task), status_millis(task), task)

    # ------------------------------------------------------------------ reading

    async def read(self, page: Sequence[Entry]) -> list[Task]:
        """The tasks of a page, but those that are gone, cannot be parsed, or do not match any more."""
        found = await self._each([partial(self._read, entry) for entry in page])
        return [task for task in found if task is not None]

    async def _read(self, entry: Entry) -> Task | None:
        if entry.task is not None:
            return entry.task
        try:
            ref = entry.ref or await self._where(entry.task_id)
            task = await self._records.body(ref) if ref is not None else None
        except CorruptRecord as e:
            log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            return None
        if task is None or not self._selection.matches(state_name(task), status_millis(task)):
            return None
        return self._wanted(task)

    def _wanted(self, task: Task) -> Task:
        """What was asked for of a task that nobody else has: a page of artifacts in vain may be gigabytes."""
        return task if self._selection.wanted.include_artifacts else without(task, "artifacts")

    async def _each(self, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """The results in order. After an error nothing more is begun, and it is raised."""
        failures: list[BaseException] = []

        async def one(call: Callable[[], Awaitable[T]]) -> T | None:
            async with self._gate:
                if failures:
                    return None
                try:
                    return await call()
                except Exception as e:  # noqa: BLE001 - raised below
                    failures.append(e)
                    return None

        results = await asyncio.gather(*map(one, calls))
        if failures:
            raise failures[0]
        return cast("list[T]", results)


def _since(params: ListTasksRequest) -> int | None:
    if not params.HasField("status_timestamp_after"):
        return None
    try:
        return int(params.status_timestamp_after.ToMilliseconds())
    except ValueError as e:  # gRPC brings any numbers
        raise InvalidParamsError(message=f"statusTimestampAfter is no point in time: {e}") from e


def _encode_cursor(last: Entry) -> str:
    return base64.urlsafe_b64encode(json.dumps(last.order).encode()).decode()


def _decode_cursor(token: str) -> Order | None:
    if not token:
        return None
    try:
        status_time, task_id = json.loads(base64.urlsafe_b64decode(token.encode()))
        return int(status_time), str(task_id)
    except (ValueError, TypeError, OverflowError, RecursionError) as e:
        raise InvalidParamsError(message="pageToken is not one that this server gave") from e
