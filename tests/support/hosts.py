"""Hosts without a server: the ledger, store and stream of a process, any number of them over one bucket.

bucket = Bucket()
a, b = await bucket.host("a"), await bucket.host("b")
claim = await a.start("ctx")                # a new task, saved as working
await a.end(claim)                          # COMPLETED
await a.die()                               # its heartbeat is gone
"""

from __future__ import annotations

import uuid

from a2a.helpers import new_text_message
from a2a.server.cluster import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.server.tasks.task_manager import TaskManager
from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

from a2a_gcs.claims import Claim, ClaimTable
from a2a_gcs.errors import NotFound
from a2a_gcs.journal import Journal
from a2a_gcs.layout import TaskRef, context_key, heartbeat_key, task_key
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.ledger.ledger import Ledger
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.objectstore import MemoryStore, ObjectStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.pointers import PointerIndex
from a2a_gcs.records import ContextRecord, HeartbeatRecord, Pin
from a2a_gcs.task_records import TaskRecord, TaskRecords
from a2a_gcs.tasks.store import BucketTaskStore
from a2a_gcs.tasks.stream import BucketEventStream
from a2a_gcs.tasks.turn_writer import Pace

WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
REJECTED = TaskState.TASK_STATE_REJECTED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
AUTH_REQUIRED = TaskState.TASK_STATE_AUTH_REQUIRED
SUBMITTED = TaskState.TASK_STATE_SUBMITTED

LEASE = 30.0
PACE = Pace(journal_after=0.01, retry_after=0.0)


class Clock:
    """The store's clock, moved by hand."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def message(text: str = "hello", message_id: str | None = None) -> Message:
    said = new_text_message(text, role=Role.ROLE_USER)
    said.message_id = message_id or uuid.uuid4().hex
    return said


def ref(context_id: str = "ctx", task_id: str | None = None) -> TaskRef:
    return TaskRef(context_id, task_id or f"task-{uuid.uuid4().hex[:8]}")


def artifact(name: str = "a", text: str = "content") -> Artifact:
    return Artifact(artifact_id=name, parts=[Part(text=text)])


class Host:
    """One process: what it knows by itself, over a store that it shares."""

    def __init__(
        self, store: ObjectStore, name: str, *, keep_batches: float = 0.0, pace: Pace = PACE, **ledger_options
    ) -> None:
        self.name = name
        self.bucket = store
        self.table = ClaimTable(name)
        self.index = PointerIndex(store, apart=0.0)
        self.records = TaskRecords(store, index=self.index)
        self.liveness = Liveness(store, self.table)
        self.journal = Journal(store)
        self.settler = Settler(self.records, self.journal, self.liveness, self.table)
        options = {"repeat_wait": 0.0, **ledger_options}
        self.ledger = Ledger(store, self.records, self.settler, self.table, **options)
        self.tasks = BucketTaskStore(
            store, self.records, self.journal, self.table, self.settler.settled, pace=pace, keep_batches=keep_batches
        )
        self.stream = BucketEventStream(self.tasks, self.records, self.journal, self.table, poll=0.01)

    async def beat(self) -> None:
        """Renews the heartbeat: what is open now is listed, what was given back is not."""
        following, still_open = self.table.snapshot()
        record = HeartbeatRecord(host=self.name, lease_seconds=LEASE).renewed(following, still_open)
        await self.bucket.put(heartbeat_key(self.name), record.to_bytes(), OVERWRITE)

    async def die(self) -> None:
        try:
            await self.bucket.delete(heartbeat_key(self.name))
        except NotFound:
            return

    async def claim(self, context_id: str = "ctx", said: Message | None = None, task_id: str | None = None) -> Claim:
        return await self.ledger.claim(ref(context_id, task_id), said or message())

    async def start(self, context_id: str = "ctx", said: Message | None = None, task_id: str | None = None) -> Claim:
        claim = await self.claim(context_id, said, task_id)
        await self.save(claim, WORKING)
        return claim

    async def save(self, claim: Claim, state: TaskState | None = None, *artifacts: Artifact) -> TaskVersion:
        """What the SDK does with an event: the whole task, as this process knows it, with a change."""
        task = claim.record.copy_task()
        task.artifacts.extend(artifacts)
        if state is not None:
            task.status.CopyFrom(status(state))
        return await self.save_task(task)

    async def save_task(self, task: Task, event: object = None) -> TaskVersion:
        context = ServerCallContext()
        return await self.tasks.save(task, event=event, prev=None, prev_version=TaskVersion.MISSING, context=context)

    def sdk(self, claim: Claim) -> TaskManager:
        """The SDK's own task manager, as its consumer drives it: it caches the task and changes it in place."""
        return TaskManager(self.tasks, ServerCallContext(), claim.ref.task_id, claim.ref.context_id, None)

    async def end(self, claim: Claim, state: TaskState = COMPLETED, pin: Pin | None = None) -> TaskVersion:
        claim.pin = pin
        return await self.save(claim, state)

    async def park(self, claim: Claim, state: TaskState = INPUT_REQUIRED, pin: Pin | None = None) -> TaskVersion:
        """What the executor does at the end of a turn that waits for somebody."""
        claim.pin = pin
        task = claim.record.copy_task()
        task.status.CopyFrom(status(state))
        event = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
        claim.park_with(event)
        return await self.save_task(task, event)

    async def run(self, context_id: str = "ctx", state: TaskState = COMPLETED, pin: Pin | None = None) -> Claim:
        """A whole task, from its claim to its end."""
        claim = await self.start(context_id)
        await self.end(claim, state, pin)
        return claim

    async def answer(self, task_id: str, said: Message | None = None) -> Claim:
        return await self.ledger.take_turn(task_id, None, said or message("answer"))

    async def record(self, task_id: str) -> TaskRecord:
        """task.json as it is stored; nothing is settled."""
        found = await self.records.find(task_id)
        assert found is not None
        return found


class Bucket:
    """A store that hosts share, and a look behind it."""

    def __init__(self, store: ObjectStore | None = None) -> None:
        self.clock = Clock()
        self.store = store or MemoryStore(now=self.clock)

    async def host(self, name: str, store: ObjectStore | None = None, **options) -> Host:
        """A host that lives; `store` is what it sees of the bucket, where that is not the bucket itself."""
        host = Host(store or self.store, name, **options)
        await host.beat()
        return host

    async def keys(self) -> list[str]:
        """All keys but the heartbeats'."""
        return [info.key for info in (await self.store.list("")).objects if not info.key.startswith("hosts/")]

    async def context(self, context_id: str = "ctx") -> ContextRecord:
        key = context_key(context_id)
        return ContextRecord.parse(key, (await self.store.get(key)).body)

    async def overwrite_task(self, where: TaskRef, body: bytes, metadata: dict[str, str] | None = None) -> None:
        await self.store.put(task_key(where), body, OVERWRITE, metadata=metadata)


def status(state: TaskState, seconds: int = 1_800_000_000) -> TaskStatus:
    made = TaskStatus(state=state)
    made.timestamp.FromSeconds(seconds)
    return made


def says(claim: Claim, state: TaskState) -> TaskStatusUpdateEvent:
    """An agent's status update."""
    return TaskStatusUpdateEvent(task_id=claim.ref.task_id, context_id=claim.ref.context_id, status=status(state))


def makes(claim: Claim, name: str, text: str = "content", *, append: bool = False) -> TaskArtifactUpdateEvent:
    """An agent's artifact, or one more chunk of it."""
    return TaskArtifactUpdateEvent(
        task_id=claim.ref.task_id, context_id=claim.ref.context_id, artifact=artifact(name, text), append=append
    )
