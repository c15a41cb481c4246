"""What a store holds, read and never changed: dead hosts' tasks are shown as they are, and settled by hosts alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from a2a.types.a2a_pb2 import ListTasksRequest, Task, TaskState
from a2a.utils.errors import InvalidParamsError

from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.errors import ConfigError, CorruptRecord, InvalidId, NotFound
from a2a_gcs.journal import Journal
from a2a_gcs.layout import CONTEXTS_PREFIX, TaskRef, context_above, parse_context, parse_task, workspace_key
from a2a_gcs.records import TaskMeta
from a2a_gcs.task_json import TERMINAL
from a2a_gcs.task_records import TaskRecord, TaskRecords
from a2a_gcs.tasks.listing import list_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from a2a_gcs.objectstore import ObjectInfo, ObjectStore

STATES = {
    name.removeprefix("TASK_STATE_").lower().replace("_", "-"): value
    for name, value in TaskState.items()
    if value != TaskState.TASK_STATE_UNSPECIFIED
}
"""States by the names that people give them."""

_TERMINAL_NAMES = frozenset(TaskState.Name(state) for state in TERMINAL)


@dataclass(slots=True)
class ContextSummary:
    """One context, by the metadata of its objects alone.

    Attributes:
        context_id: Its id.
        tasks: How many tasks it has.
        newest: The task whose state is the most recent one; empty if there is none.
        state: That state.
        status_time: When it came about, in Unix milliseconds.
        unfinished: How many of its tasks are not terminal.
        size: Bytes of all its objects.
        ledger: It has a context.json.
    """

    context_id: str
    tasks: int = 0
    newest: str = ""
    state: str = ""
    status_time: int = 0
    unfinished: int = 0
    size: int = 0
    ledger: bool = False

    def enter(self, ref: TaskRef, info: ObjectInfo) -> None:
        """Takes a task.json into account; one whose metadata is not ours only counts."""
        self.tasks += 1
        try:
            meta = TaskMeta.from_metadata(info.key, info.metadata)
        except CorruptRecord:
            return
        self.unfinished += meta.state not in _TERMINAL_NAMES
        if not self.newest or meta.status_time >= self.status_time:
            self.newest, self.state, self.status_time = ref.task_id, meta.state, meta.status_time


async def contexts(store: ObjectStore, seen: Callable[[int], None]) -> AsyncIterator[ContextSummary]:
    """The contexts of a root in the order of their keys, for one LIST per 1,000 objects.

    Args:
        store: The root.
        seen: Told how many objects have been looked at.

    Raises:
        StoreError: The store failed.
    """
    current, count, page = None, 0, None
    while True:
        listing = await store.list(CONTEXTS_PREFIX, page=page)
        for info in listing.objects:
            if (context_id := context_above(info.key)) is None:
                continue
            if current is None or current.context_id != context_id:
                if current is not None:
                    yield current
                current = ContextSummary(context_id)
            current.size += info.size
            current.ledger |= parse_context(info.key) is not None
            if (ref := parse_task(info.key)) is not None:
                current.enter(ref, info)
        seen(count := count + len(listing.objects))
        if (page := listing.next) is None:
            break
    if current is not None:
        yield current


@dataclass(frozen=True, slots=True)
class Found:
    """Tasks of a listing.

    Attributes:
        tasks: Those asked for, newest status first, without artifacts.
        total: How many match.
    """

    tasks: list[Task]
    total: int


async def tasks(store: ObjectStore, context: str | None, state: str | None, limit: int) -> Found:
    """The newest tasks of a root or a context. Raises StoreError, and ConfigError for an id that cannot be."""
    records, journal = TaskRecords(store), Journal(store)
    wanted = ListTasksRequest(context_id=context or "", page_size=limit)
    if state is not None:
        wanted.status = STATES[state]  # type: ignore[assignment]
    try:
        answer = await list_tasks(store, records, journal.current, wanted)
    except InvalidParamsError as error:
        raise ConfigError(f"--context: {error.message}") from error
    return Found(list(answer.tasks), answer.total_size)


@dataclass(frozen=True, slots=True)
class Stored:
    """A task with all that is known of it.

    Attributes:
        record: task.json, with its journal.
        workspace: Its archive; None if it left none.
    """

    record: TaskRecord
    workspace: ObjectInfo | None


async def task(store: ObjectStore, task_id: str) -> Stored:
    """One task. Raises CommandFailed if there is none, UnreadableTask and StoreError."""
    try:
        record = await TaskRecords(store).find(task_id)
    except InvalidId as error:
        raise ConfigError(str(error)) from error
    if record is None:
        raise CommandFailed(f"there is no task {task_id!r} in this store; below another root? see --root")
    record = await Journal(store).current(record)
    try:
        workspace = await store.head(workspace_key(record.ref))
    except NotFound:
        workspace = None
    return Stored(record, workspace)
