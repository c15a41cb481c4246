"""task.json and its pointer, as records: read by id, written only over what was read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from a2a.types.a2a_pb2 import Task, TaskState
from google.protobuf.json_format import MessageToDict

from a2a_gcs import telemetry
from a2a_gcs.clock import unix_millis, utcnow
from a2a_gcs.errors import Conflict, CorruptRecord, InvalidId, NotFound
from a2a_gcs.layout import TaskRef, context_key, encode_segment, owed_key, pointer_key, task_key
from a2a_gcs.objectstore.port import IF_ABSENT, IfVersion, Mode, ObjectInfo, ObjectStore
from a2a_gcs.pointers import PointerIndex, put_pointer
from a2a_gcs.records import ContextRecord, OwedRecord, TaskMeta
from a2a_gcs.task_json import TERMINAL, Unknown, format_task_json, parse_task_json, state_name, status_millis

_REMEMBERED_POINTERS = 10_000
_SUBMITTED = TaskState.Name(TaskState.TASK_STATE_SUBMITTED)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A stored task.

    Attributes:
        ref: Where it lives.
        task: The body. Treat as read-only; `copy_task` gives one to change.
        meta: What the ledger knows about it.
        version: Generation of task.json; 0 for one that is not stored yet.
        unknown: Members of the body that this version has no field for.
        age: Seconds between the write of this version and its reading, by the store's clock.
    """

    ref: TaskRef
    task: Task
    meta: TaskMeta
    version: int
    unknown: Unknown
    age: float = 0.0

    @property
    def terminal(self) -> bool:
        return self.task.status.state in TERMINAL

    @property
    def parked(self) -> bool:
        """Waits for somebody: neither terminal nor has anyone claimed its next turn."""
        return not self.terminal and not self.meta.open

    @property
    def overdue(self) -> bool:
        """Parked for longer than its host allowed, by the store's clock: hosts' clocks may be wrong by hours."""
        return self.parked and 0 < self.meta.patience < self.age

    def copy_task(self) -> Task:
        copy = Task()
        copy.CopyFrom(self.task)
        return copy


class UnreadableTask(CorruptRecord):
    """A task.json whose body cannot be parsed; its metadata may still tell how it ended.

    Attributes:
        ref: Where it lives.
        meta: Its metadata; all defaults if that is unreadable too.
    """

    def __init__(self, ref: TaskRef, cause: CorruptRecord, meta: TaskMeta) -> None:
        super().__init__(cause.key, cause.cause, newer=cause.newer)
        self.ref = ref
        self.meta = meta


class TaskRecords:
    """Reads and writes the pointer and task.json of each task below one root.

    The pointer is written before task.json, so every task.json has one (I3).
    What a pointer points to never changes, so it is read once.

    Args:
        store: The root.
        announce: Called with every record, read or written, that tells a state which push configurations may wait for.
        index: Is told of every task that stands still; None for those who only read.
    """

    def __init__(
        self,
        store: ObjectStore,
        announce: Callable[[TaskRecord], None] | None = None,
        *,
        index: PointerIndex | None = None,
    ) -> None:
        self._store = store
        self._announce = announce
        self._index = index
        self._contexts: dict[str, str] = {}

    async def context_of(self, task_id: str) -> str | None:
        """The context of a task, by its pointer; None if there is no pointer."""
        if (known := self._contexts.get(task_id)) is not None:
            return known
        try:
            body = (await self._store.get(pointer_key(task_id))).body
            context_id = body.decode()
            encode_segment(context_id)
        except NotFound:
            return None
        except (ValueError, InvalidId) as e:
            raise CorruptRecord(pointer_key(task_id), e) from e
        self._remember(task_id, context_id)
        return context_id

    async def point(self, ref: TaskRef) -> ObjectInfo:
        """Writes the pointer of a task that is about to be created.

        Raises:
            Conflict: There is one already.
        """
        return await self._put_pointer(ref, IF_ABSENT)

    async def _put_pointer(self, ref: TaskRef, mode: Mode) -> ObjectInfo:
        return await put_pointer(self._store, ref, mode, _SUBMITTED, int(utcnow().timestamp() * 1000))

    async def take_over_pointer(self, ref: TaskRef) -> None:
        """Makes the pointer one that the claim it came with cannot take back any more.

        Whoever settles a claim calls this before task.json is created: the claim may
        be alive after all, and be released at this moment (I3).
        """
        while True:
            try:
                await self.point(ref)
            except Conflict:
                pass
            else:
                return
            try:
                info = await self._store.head(pointer_key(ref.task_id))
                await self._put_pointer(ref, IfVersion(info.version))
            except (NotFound, Conflict):  # taken back, or taken over by somebody else: look again
                continue
            else:
                return

    async def unpoint(self, pointer: ObjectInfo, task_id: str) -> None:
        """Takes back the pointer of a claim that left no task, unless a settler has taken it over."""
        self._contexts.pop(task_id, None)
        try:
            await self._store.delete(pointer_key(task_id), version=pointer.version)
        except (NotFound, Conflict):
            return

    async def find(self, task_id: str) -> TaskRecord | None:
        """Reads a task by its id alone. Raises UnreadableTask and StoreError."""
        context_id = await self.context_of(task_id)
        return await self.load(TaskRef(context_id, task_id)) if context_id is not None else None

    async def load(self, ref: TaskRef) -> TaskRecord | None:
        """Reads a task; None if there is no task.json. Raises UnreadableTask and StoreError."""
        key = task_key(ref)
        try:
            blob = await self._store.get(key, with_metadata=True)
        except NotFound:
            return None
        meta = TaskMeta()
        try:
            meta = TaskMeta.from_metadata(key, blob.info.metadata)
            # Off the loop: parsing a task of 50 MB takes seconds, and other tasks of this host go on meanwhile.
            task, unknown = await _parse_of(ref, blob.body)
        except CorruptRecord as e:
            raise UnreadableTask(ref, e, meta) from e
        if not meta.state:  # written, or copied, by something that knows nothing of our metadata
            meta = meta.with_(state=state_name(task), status_time=status_millis(task))
        return self._announced(TaskRecord(ref, task, meta, blob.info.version, unknown, blob.info.age))

    async def body(self, ref: TaskRef) -> Task | None:
        """The body of task.json alone, for one class B request where `load` takes two; None if there is none.

        Raises:
            UnreadableTask: It is no task, or another one.
            StoreError: The store failed.
        """
        key = task_key(ref)
        try:
            blob = await self._store.get(key)
        except NotFound:
            return None
        try:
            return (await _parse_of(ref, blob.body))[0]
        except CorruptRecord as e:
            raise UnreadableTask(ref, e, TaskMeta()) from e

    async def peek(self, ref: TaskRef) -> tuple[int, TaskMeta] | None:
        """Version and metadata of task.json, for one class B request; None if there is none."""
        key = task_key(ref)
        try:
            info = await self._store.head(key)
        except NotFound:
            return None
        return info.version, TaskMeta.from_metadata(key, info.metadata)

    async def claimed_by(self, ref: TaskRef, owner: str) -> bool:
        """Whether the context's ledger names this very claim as its newest. Raises CorruptRecord and StoreError."""
        return await self.claimant(ref) == owner

    async def claimant(self, ref: TaskRef) -> str | None:
        """Who holds the context's newest claim, if that is for this task. Raises CorruptRecord and StoreError."""
        key = context_key(ref.context_id)
        try:
            record = ContextRecord.parse(key, (await self._store.get(key)).body)
        except NotFound:
            return None
        return record.active.owner if record.active is not None and record.active.task_id == ref.task_id else None

    async def write(self, seen: TaskRecord, task: Task, meta: TaskMeta) -> TaskRecord:
        """Writes `task` over the record that was `seen`; one of version 0 is created.

        A state that push has to tell is kept before it is written over, so that no crash loses it.

        Raises:
            Conflict: It changed meanwhile.
            StoreError: `ambiguous` tells whether it may have been written.
        """
        meta = meta.with_(state=state_name(task), status_time=status_millis(task)).timed(unix_millis())
        if seen.meta.push and seen.meta.notice and meta.notice != seen.meta.notice:
            await self._keep_owed(seen)
        mode = IfVersion(seen.version) if seen.version else IF_ABSENT
        info = await self._store.put(
            task_key(seen.ref),
            await _format(task, seen.unknown),
            mode,
            metadata=meta.to_metadata(),
            content_type="application/json",
        )
        self._remember(seen.ref.task_id, seen.ref.context_id)
        if not seen.version or meta.state != seen.meta.state:
            telemetry.task_transitions.add(1, {"state": meta.state})
        if not meta.open:
            self.mark(seen.ref, meta.state, meta.status_time)
        return self._announced(TaskRecord(seen.ref, task, meta, info.version, seen.unknown))

    async def _keep_owed(self, seen: TaskRecord) -> None:
        body = OwedRecord(status=MessageToDict(seen.task.status)).to_bytes()
        try:
            await self._store.put(
                owed_key(seen.ref, seen.meta.notice), body, IF_ABSENT, content_type="application/json"
            )
        except Conflict:  # somebody else is writing over the same record, or did and died
            return

    def _announced(self, record: TaskRecord) -> TaskRecord:
        if self._announce is not None and record.meta.push and record.meta.notice:
            self._announce(record)
        return record

    def mark(self, ref: TaskRef, state: str, status_time: int) -> None:
        """Has the pointer of a stored task say how it stands, some time later."""
        if self._index is not None:
            self._index.note(ref, state, status_time)

    def _remember(self, task_id: str, context_id: str) -> None:
        if len(self._contexts) >= _REMEMBERED_POINTERS:
            self._contexts.pop(next(iter(self._contexts)))
        self._contexts[task_id] = context_id


_LARGE = 256 * 1024


async def _format(task: Task, unknown: Unknown) -> bytes:
    if task.ByteSize() < _LARGE:
        return format_task_json(task, unknown)
    return await asyncio.to_thread(format_task_json, task, unknown)


async def _parse_of(ref: TaskRef, body: bytes) -> tuple[Task, Unknown]:
    key = task_key(ref)
    parse = parse_task_json(key, body) if len(body) < _LARGE else await asyncio.to_thread(parse_task_json, key, body)
    task, unknown = parse
    if (task.context_id, task.id) != ref:
        raise CorruptRecord(key, f"it holds task {task.id!r} of context {task.context_id!r}")
    return task, unknown
