"""Who may go on in a context: the rules of the ledger (ARCHITECTURE, *Invariants*) as functions without I/O."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from a2a.types.a2a_pb2 import Message, Task, TaskState

from a2a_gcs.layout import TaskRef
from a2a_gcs.records import ContextRecord, LastCompleted, SeenMessage, TaskMeta

ResumeFrom = Literal["completed", "terminal"]

_COMPLETED = TaskState.Name(TaskState.TASK_STATE_COMPLETED)
_CANCELED = TaskState.Name(TaskState.TASK_STATE_CANCELED)
_TERMINAL = frozenset(f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))


@dataclass(frozen=True, slots=True)
class Free:
    """A new task may claim the context, starting from `last`."""

    last: LastCompleted | None


@dataclass(frozen=True, slots=True)
class Waits:
    """The active task is parked: it is never settled, somebody has to answer or cancel it."""

    state: str


@dataclass(frozen=True, slots=True)
class Runs:
    """The active task has an open turn, or no task.json yet: its owner's heartbeat decides."""

    owner: str
    state: str


Standing = Free | Waits | Runs


def standing(record: ContextRecord, active: TaskMeta | None, resume_from: ResumeFrom) -> Standing:
    """What a context's record, and its active task's metadata if there is a task.json, allow.

    The state is taken from the metadata, which is written together with the body.
    """
    if record.active is None:
        return Free(record.last_completed)
    if active is None:
        return Runs(record.active.owner, "TASK_STATE_SUBMITTED")
    if active.state in _TERMINAL:
        return Free(_last_completed(record, record.active.task_id, active, resume_from))
    if active.open:
        return Runs(active.owner, active.state)
    return Waits(active.state)


def _last_completed(
    record: ContextRecord, task_id: str, ended: TaskMeta, resume_from: ResumeFrom
) -> LastCompleted | None:
    """The resume rule (I5): only a COMPLETED task's snapshot is started from, unless a setting widens it.

    A CANCELED task's never: its archive is written after its state, for inspection, and not pinned.
    """
    counts = ended.state == _COMPLETED or (resume_from == "terminal" and ended.state != _CANCELED)
    if not counts or ended.pin is None:
        return record.last_completed
    return LastCompleted(task_id=task_id, generation=ended.pin.generation, crc32c=ended.pin.crc32c)


def seen_before(record: ContextRecord, message: Message) -> TaskRef | None:
    """The task that the same message, by id and content, has started in this context."""
    if not message.message_id:
        return None
    wanted = digest(message)
    for seen in record.messages:
        if (seen.id, seen.digest) == (message.message_id, wanted):
            return TaskRef(record.context_id, seen.task_id)
    return None


def said_before(task: Task, message: Message) -> bool:
    """Whether the same message, by id and content, is in a task's history: the one that began it, or an answer."""
    same = [said for said in task.history if message.message_id and said.message_id == message.message_id]
    return any(digest(said) == digest(message) for said in same)


def remember(message: Message, task_id: str) -> SeenMessage:
    return SeenMessage(id=message.message_id, digest=digest(message), task_id=task_id)


def digest(message: Message) -> str:
    """A digest of what a message says: all of it but the ids that the server may have filled in."""
    content = Message()
    content.CopyFrom(message)
    content.ClearField("task_id")
    content.ClearField("context_id")
    return hashlib.sha256(content.SerializeToString(deterministic=True)).hexdigest()[:32]
