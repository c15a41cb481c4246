"""One root under examination, and the repairs that are safe beside running hosts, as each is a conditional write."""

from __future__ import annotations

from a2a.types.a2a_pb2 import TaskState

from a2a_gcs.claims import ClaimTable
from a2a_gcs.doctor.checks import LeftAlone
from a2a_gcs.doctor.inventory import Root
from a2a_gcs.errors import Conflict, CorruptRecord, NotFound
from a2a_gcs.journal import Journal
from a2a_gcs.layout import TaskRef, context_key, pointer_key
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.objectstore.port import IF_ABSENT, ObjectInfo, ObjectStore
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.records import Active, ContextRecord, LastCompleted, Record
from a2a_gcs.relocation import live_hosts
from a2a_gcs.task_json import TERMINAL
from a2a_gcs.task_records import TaskRecord, TaskRecords, UnreadableTask


class Ground:
    """A root.

    Args:
        bucket: The bucket at its prefix.
        name: The root; empty for the prefix itself.
        root: What is below it.
        liveness: Which hosts are dead.
        table: The doctor's own claims, of which there are none.
    """

    def __init__(self, bucket: ObjectStore, name: str, root: Root, liveness: Liveness, table: ClaimTable) -> None:
        self.root = root
        self._bucket = bucket
        self._name = name
        self._store = PrefixStore(bucket, name) if name else bucket
        self.records = TaskRecords(self._store)
        self.settler = Settler(self.records, Journal(self._store), liveness, table)

    def key(self, key: str) -> str:
        """A key of this root as it is in the bucket."""
        return key if not self._name or key.startswith(f"{self._name}/") else f"{self._name}/{key}"

    async def info(self, key: str) -> ObjectInfo | None:
        try:
            return await self._store.head(key)
        except NotFound:
            return None

    async def exists(self, ref: TaskRef) -> bool:
        return await self.records.peek(ref) is not None

    async def context_of(self, task_id: str) -> str | None:
        """The context that a task's pointer names; None if it names none."""
        try:
            return await self.records.context_of(task_id)
        except CorruptRecord:
            return None

    async def fault_of_task(self, ref: TaskRef) -> CorruptRecord | None:
        """Why a task.json cannot be read, if so."""
        try:
            await self.records.load(ref)
        except CorruptRecord as e:
            return e
        return None

    async def fault_of_context(self, context_id: str) -> CorruptRecord | None:
        """Why a context.json cannot be read, if so."""
        return await fault_of(self._store, context_key(context_id), ContextRecord)

    async def hosts_live(self) -> bool:
        return bool(await live_hosts(self._bucket))

    async def recorded(self, context_id: str) -> bool:
        return await self.info(context_key(context_id)) is not None

    async def claimed_by(self, ref: TaskRef) -> str | None:
        """The owner of the claim that the context's record names for this task, if it does."""
        key = context_key(ref.context_id)
        try:
            record = ContextRecord.parse(key, (await self._store.get(key)).body)
        except (NotFound, CorruptRecord):
            return None
        return record.active.owner if record.active and record.active.task_id == ref.task_id else None

    # ------------------------------------------------------------------ repairs

    async def bury(self, ref: TaskRef) -> str:
        """Ends a dead host's task as failed, with or without a task.json, as any host would."""
        await self.settler.bury(ref, await self.claimed_by(ref) or "")
        record = await self.records.load(ref)
        return f"task {ref.task_id} is {'stored as ' + TaskState.Name(record.task.status.state) if record else 'gone'}"

    async def unpoint(self, ref: TaskRef) -> str:
        """Removes a pointer that nobody needs, if it is still the one that was looked at."""
        try:
            await self._store.delete(pointer_key(ref.task_id), version=self.root.pointers[ref.task_id].version)
        except (Conflict, NotFound):
            return f"the pointer of task {ref.task_id} has changed meanwhile; it was left alone"
        return f"removed the pointer of task {ref.task_id}"

    async def point(self, ref: TaskRef) -> str:
        try:
            await self.records.point(ref)
        except Conflict:
            return f"task {ref.task_id} has a pointer by now"
        return f"wrote the pointer of task {ref.task_id}"

    async def record(self, context_id: str) -> str:
        """Writes a context's record if there is none: an open task blocks it, what completed last is started from.

        Raises:
            LeftAlone: A task of it cannot be read, so nobody knows what the record has to say.
        """
        tasks = []
        for ref in self.root.tasks:
            if ref.context_id == context_id:
                try:
                    tasks.append(await self.records.load(ref))
                except UnreadableTask as e:
                    raise LeftAlone(f"context {context_id} was left alone, as {self.key(e.key)} cannot be read") from e
        record = rebuilt(context_id, [task for task in tasks if task is not None])
        try:
            await self._store.put(
                context_key(context_id), record.to_bytes(), IF_ABSENT, content_type="application/json"
            )
        except Conflict:
            return f"context {context_id} has a record by now"
        return f"wrote the record of context {context_id}"


async def fault_of(store: ObjectStore, key: str, kind: type[Record]) -> CorruptRecord | None:
    """Why a record cannot be read; None if it can, or is not there."""
    try:
        kind.parse(key, (await store.get(key)).body)
    except NotFound:
        return None
    except CorruptRecord as e:
        return e
    return None


def rebuilt(context_id: str, tasks: list[TaskRecord]) -> ContextRecord:
    """The record of a context that has lost it, by its tasks; pure."""
    newest = sorted(tasks, key=lambda task: task.meta.status_time, reverse=True)
    open_ = next((task for task in newest if task.task.status.state not in TERMINAL), None)
    done = next(
        (task for task in newest if task.task.status.state == TaskState.TASK_STATE_COMPLETED and task.meta.pin), None
    )
    last = None
    if done is not None and done.meta.pin is not None:
        last = LastCompleted(task_id=done.ref.task_id, generation=done.meta.pin.generation, crc32c=done.meta.pin.crc32c)
    active = Active(task_id=open_.ref.task_id, owner=open_.meta.owner) if open_ else None
    return ContextRecord(context_id=context_id, epoch=len(tasks), active=active, last_completed=last)
