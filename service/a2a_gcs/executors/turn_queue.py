"""The event queue that an agent is given for one turn, between it and the SDK.

It keeps invariant I4 (ARCHITECTURE, *Invariants*): terminal and input-required states are held
back until the workspace is stored. What is too large for task.json is put beside
the task first (`large_parts`). It also turns what the SDK would answer
with a broken task (ARCHITECTURE, *Where the SDK needs guarding*) into what the agent meant, or into an error that
the agent gets where it made the mistake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import TypeVar

import structlog
from a2a.helpers.proto_helpers import get_message_text, new_text_message
from a2a.server.events.event_queue import Event, EventQueue
from a2a.types.a2a_pb2 import (
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.struct_pb2 import Struct

from a2a_gcs.clock import utcnow
from a2a_gcs.errors import A2AGcsError, StoreError
from a2a_gcs.executors.large_parts import GATHER_SECONDS, LargeParts
from a2a_gcs.layout import TaskRef
from a2a_gcs.task_json import TERMINAL

log = structlog.get_logger(__name__)

E = TypeVar("E", bound=TaskStatusUpdateEvent | TaskArtifactUpdateEvent)

HELD = TERMINAL | {TaskState.TASK_STATE_INPUT_REQUIRED}
"""States that end a turn: nobody hears of them before the workspace is stored."""


class AgentMistake(A2AGcsError):
    """An agent emitted something that is not allowed here; it is raised at the call that did."""


class TaskTooLarge(A2AGcsError):
    """What the agent emitted would make the task larger than the host keeps; the text is what the caller reads."""


class TurnQueue(EventQueue):
    """Takes the agent's events of one turn.

    Args:
        out: The SDK's queue.
        ref: The task of the turn.
        message: The message that the turn answers; the first of a new task's history.
        current: The task so far; None in a new task.
        release: Frees the context, for an answer without a task; None where every message becomes a task.
        large: Puts beside the task what is too large; None where everything stays in it.
        max_bytes: Most that the task may hold, as protobuf counts.

    Attributes:
        too_large: Why the task can only fail, once it would have held more.
        raised: What the agent raised, if that is why the task fails; what it says is the agent's, and not for a log.
    """

    def __init__(  # noqa: PLR0917 - what a turn is made of
        self,
        out: EventQueue,
        ref: TaskRef,
        message: Message,
        current: Task | None,
        release: Callable[[], Awaitable[None]] | None,
        large: LargeParts | None = None,
        max_bytes: float = float("inf"),
    ) -> None:
        self._out = out
        self._ref = ref
        self._message = message
        self._release = release
        self._artifacts = {a.artifact_id for a in current.artifacts} if current else set()
        self._closed = self._dropped = False
        self._large = large
        self._max_bytes = max_bytes
        self._bytes = (current or message).ByteSize()
        self._one_at_a_time = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self.too_large: str | None = None
        if self._bytes > max_bytes:
            self._refuse("the message to it")
        self.published = current is not None
        self.held: TaskStatus | None = None
        self._held_metadata = Struct()
        self.last: TaskStatus | None = None
        self.answered = False
        self.said_something = False
        self.raised: BaseException | None = None

    def close(self) -> None:
        """Takes no more: the turn is over. What an agent emits later is dropped, and logged."""
        self._closed = True
        if self._flushing is not None and not self._one_at_a_time.locked():  # it sleeps; else it ends by itself
            self._flushing.cancel()

    async def publish(self) -> Task:
        """Publishes the task in state working, as the first event of a new task."""
        task = Task(id=self._ref.task_id, context_id=self._ref.context_id)
        task.history.add().CopyFrom(self._message)
        task.status.CopyFrom(now(TaskStatus(state=TaskState.TASK_STATE_WORKING)))
        self.published = True
        await self._out.enqueue_event(deepcopy(task))  # the SDK goes on changing the one that it is given
        return task

    async def enqueue_event(self, event: Event) -> None:
        """Takes one event from the agent.

        Raises:
            AgentMistake: It is for another task, or appends to an artifact that does not exist.
            TaskTooLarge: The task would hold more than the host keeps; nothing of the event was taken.
            StoreError: A large part could not be stored.
        """
        async with self._one_at_a_time:
            await self._take(event)

    async def _take(self, event: Event) -> None:
        if self._closed or self.ended:
            await self._drop(event)
            return
        self.said_something = True
        if not isinstance(event, TaskArtifactUpdateEvent):
            await self._flush()  # everything stays in its order
        if isinstance(event, Message):
            await self._take_message(event)
        elif isinstance(event, Task):
            await self._take_task(event)
        elif isinstance(event, TaskStatusUpdateEvent):
            self._check(event.task_id)
            await self._take_status(event)
        else:
            self._check(event.task_id)
            await self._take_artifact(event)

    async def _drop(self, event: Event) -> None:
        if not self._dropped:  # once is enough to tell: an agent may go on for ever
            log.warning("agent.event_after_end", task_id=self._ref.task_id, event_type=type(event).__name__)
            self._dropped = True
        await asyncio.sleep(0)  # an agent that does nothing but emit is only cancelled where it waits

    async def finish(self, status: TaskStatus, announce: Callable[[Event, str | None], None] | None = None) -> None:
        """Emits the state that the turn ends in; the workspace is stored by now.

        Args:
            status: The state.
            announce: Is given the very event before anybody else sees it, and the reason if it is FAILED.
        """
        self.close()
        if not self.published:
            await self.publish()
        try:
            async with self._one_at_a_time:
                await self._flush()
        except TaskTooLarge as e:
            status = failed(self._ref, str(e))
        except StoreError as e:
            log.error("artifact.end_not_stored", task_id=self._ref.task_id, error=str(e))  # noqa: TRY400
            status = failed(self._ref, f"The end of an artifact could not be stored: {e}. What came before is kept.")
        final = self._addressed(TaskStatusUpdateEvent(status=status))
        if status is self.held:
            final.metadata.CopyFrom(self._held_metadata)
        if announce is not None:
            announce(final, self._reason(status))
        await self._out.enqueue_event(final)

    def _reason(self, status: TaskStatus) -> str | None:
        """Why the turn ends in FAILED, without what the agent says: that is logged nowhere."""
        if status.state != TaskState.TASK_STATE_FAILED:
            return None
        if status is self.held:
            return "the agent said so"
        if self.raised is not None and not isinstance(self.raised, A2AGcsError):
            return f"the agent raised {type(self.raised).__name__}"
        return get_message_text(status.message)

    async def announce(self, text: str) -> None:
        """Says something on the host's behalf, before the agent has its turn; the task stays in state working."""
        if not self.published:
            await self.publish()
        await self._emit(TaskStatusUpdateEvent(status=_saying(TaskState.TASK_STATE_WORKING, self._ref, text)))

    @property
    def ended(self) -> bool:
        """The agent has emitted a terminal state."""
        return self.held is not None and self.held.state in TERMINAL

    def _check(self, task_id: str) -> None:
        if task_id and task_id != self._ref.task_id:
            raise AgentMistake(f"the agent emitted an event of task {task_id} while it ran task {self._ref.task_id}")

    async def _take_message(self, message: Message) -> None:
        """A plain Message ends the run: as the answer where no task exists yet, else as the completed task's status."""
        if self._release is not None and not self.published:
            await self._release()
            self.answered = True
            self.close()
            await self._out.enqueue_event(message)
            return
        said = Message()
        said.CopyFrom(message)
        said.task_id, said.context_id = self._ref.task_id, self._ref.context_id
        await self._take_status(
            TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED, message=said))
        )

    async def _take_task(self, task: Task) -> None:
        """What a whole Task adds to the one that the host published: its artifacts and its state."""
        self._check(task.id)
        if not self.published:
            await self.publish()
        for artifact in task.artifacts:
            await self._take_artifact(TaskArtifactUpdateEvent(artifact=artifact, last_chunk=True))
        if task.status.state not in {TaskState.TASK_STATE_UNSPECIFIED, TaskState.TASK_STATE_SUBMITTED}:
            await self._take_status(TaskStatusUpdateEvent(status=task.status))

    async def _take_status(self, event: TaskStatusUpdateEvent) -> None:
        if event.status.state == TaskState.TASK_STATE_UNSPECIFIED:
            raise AgentMistake("the agent emitted a status without a state")
        if self._large is not None and event.status.HasField("message"):
            kept = await self._large.message(event.status.message)
            event = deepcopy(event)
            event.status.message.CopyFrom(kept)
        if event.status.state in HELD:
            self._grow(event, "its last message")
            self.held, self._held_metadata = now(event.status), deepcopy(event.metadata)
            return
        self.held = None  # the agent goes on after it asked for input
        if not self.published:
            await self.publish()
        self.last = now(event.status)
        await self._emit(event)

    async def _take_artifact(self, event: TaskArtifactUpdateEvent) -> None:
        artifact_id = event.artifact.artifact_id
        if not artifact_id:
            raise AgentMistake("the agent emitted an artifact without an artifactId")
        if event.append and artifact_id not in self._artifacts:
            raise AgentMistake(f"the agent appended to artifact {artifact_id}, which does not exist; create it first")
        if not self.published:
            await self.publish()
        self._artifacts.add(artifact_id)
        if self._large is None:
            await self._emit(event)
            return
        await self._large.artifact(self._addressed(event))
        await self._tell(self._large)
        if self._large.waiting and (self._flushing is None or self._flushing.done()):
            self._flushing = asyncio.create_task(self._flush_later(), name=f"gather:{self._ref.task_id}")

    async def _flush_later(self) -> None:
        """Tells of what was gathered, though no more comes. What cannot be stored is tried again with what follows."""
        await asyncio.sleep(GATHER_SECONDS)
        async with self._one_at_a_time:
            if self._closed:
                return
            try:
                await self._flush()
            except (StoreError, TaskTooLarge) as e:
                log.warning("artifact.not_stored_yet", task_id=self._ref.task_id, error=str(e))

    async def _flush(self) -> None:
        if self._large is not None:
            await self._large.flush()
            await self._tell(self._large)

    async def _tell(self, large: LargeParts) -> None:
        """Passes on what is stored; what an interruption left comes first."""
        while large.told:
            await self._emit(large.told[0])
            del large.told[0]

    async def _emit(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        what = "a message" if isinstance(event, TaskStatusUpdateEvent) else f"artifact {event.artifact.artifact_id}"
        self._grow(event, what)
        await self._out.enqueue_event(self._addressed(event))

    def _grow(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent, what: str) -> None:
        """Counts an event in. Raises TaskTooLarge where that is too much, and ever after."""
        size = event.ByteSize()
        if self.too_large is None and self._bytes + size > self._max_bytes:
            self._refuse(what)
        if self.too_large is not None:
            raise TaskTooLarge(self.too_large)
        self._bytes += size

    def _refuse(self, what: str) -> None:
        self.too_large = (
            f"With {what} the task would hold more than the {self._max_bytes} bytes that the host allows "
            "(max_task_bytes). What came before is kept, and its files are saved; the next task of "
            "this context starts from the last completed workspace."
        )

    def _addressed(self, event: E) -> E:
        copy = deepcopy(event)
        copy.task_id, copy.context_id = self._ref.task_id, self._ref.context_id
        if isinstance(copy, TaskStatusUpdateEvent):
            copy.status.CopyFrom(now(copy.status))
        return copy


def now(status: TaskStatus) -> TaskStatus:
    """The status with a timestamp: its own, or the present in whole milliseconds."""
    copy = TaskStatus()
    copy.CopyFrom(status)
    if not copy.HasField("timestamp"):
        moment = utcnow()
        copy.timestamp.FromDatetime(moment.replace(microsecond=moment.microsecond // 1000 * 1000))
    return copy


def failed(ref: TaskRef, text: str) -> TaskStatus:
    """A FAILED status that says why."""
    return _saying(TaskState.TASK_STATE_FAILED, ref, text)


def parked(ref: TaskRef, text: str) -> TaskStatus:
    """An INPUT_REQUIRED status that says what to do."""
    return _saying(TaskState.TASK_STATE_INPUT_REQUIRED, ref, text)


def _saying(state: TaskState, ref: TaskRef, text: str) -> TaskStatus:
    message = new_text_message(text, context_id=ref.context_id, task_id=ref.task_id, role=Role.ROLE_AGENT)
    return now(TaskStatus(state=state, message=message))
