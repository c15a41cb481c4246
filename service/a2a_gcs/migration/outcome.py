"""What becomes of the tasks of one context; pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from a2a.helpers.proto_helpers import new_text_message
from a2a.types.a2a_pb2 import Role, Task, TaskState

from a2a_gcs.migration.source import Entry
from a2a_gcs.records import TURN_STRIDE, Active, ContextRecord, LastCompleted, Pin, TaskMeta
from a2a_gcs.task_json import TERMINAL, Unknown, format_task_json, state_name, status_millis

RAN = (
    "The task was migrated while running: nothing runs it any more. "
    "Its history, artifacts and workspace are kept as they were."
)
SUPERSEDED = (
    "The task was migrated while waiting for an answer, and a newer task of its context waits for one, too; a context "
    "has one task at a time. Its history, artifacts and workspace are kept as they were."
)
_STRUCTS = frozenset({"metadata", "data"})
"""Members of A2A's messages that are a Struct, or any JSON."""
_MESSAGES = uuid.uuid5(uuid.NAMESPACE_URL, "urn:a2a-gcs:messages-of-migrated-tasks")


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """The tasks of one context in the order of time, and which of them goes on waiting."""

    root: str
    context_id: str
    entries: Sequence[Entry]
    waiting: str | None

    def fails(self, entry: Entry) -> bool:
        """Whether the task becomes FAILED: it is not terminal, and it is not the one that waits."""
        return entry.state not in TERMINAL and entry.task_id != self.waiting


def planned(root: str, context_id: str, entries: Iterable[Entry]) -> ContextPlan:
    """At most one task of a context may be other than terminal (I1): the newest that waits for input."""
    ordered = sorted(entries, key=lambda entry: (entry.millis, entry.task_id))
    asking = [entry.task_id for entry in ordered if entry.state == TaskState.TASK_STATE_INPUT_REQUIRED]
    return ContextPlan(root, context_id, ordered, asking[-1] if asking else None)


def migrated(plan: ContextPlan, entry: Entry, task: Task) -> Task:
    """The task as it is stored: as it was, or FAILED with its last words in the history.

    The same source gives the same bytes, whenever it is migrated.
    """
    if not plan.fails(entry):
        return task
    asked = entry.state == TaskState.TASK_STATE_INPUT_REQUIRED
    message = new_text_message(
        SUPERSEDED if asked else RAN, context_id=task.context_id, task_id=task.id, role=Role.ROLE_AGENT
    )
    message.message_id = str(uuid.uuid5(_MESSAGES, task.id))
    if task.status.HasField("message"):
        task.history.append(task.status.message)
    task.status.state = TaskState.TASK_STATE_FAILED
    task.status.message.CopyFrom(message)
    return task


def body_of(task: Task, unknown: Unknown) -> bytes:
    """task.json's body, the same for the same task in every process: protobuf shuffles the members of a Struct."""
    members = _steady(json.loads(format_task_json(task, unknown)))
    try:
        return json.dumps(members, ensure_ascii=False, indent=2).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in a member that is only passed on
        return json.dumps(members, indent=2).encode() + b"\n"


def _steady(value: Any, *, within: bool = False) -> Any:
    if isinstance(value, list):
        return [_steady(item, within=within) for item in value]
    if isinstance(value, dict):
        items = sorted(value.items()) if within else value.items()
        return {name: _steady(item, within=within or name in _STRUCTS) for name, item in items}
    return value


def metadata_of(task: Task, pin: Pin | None) -> TaskMeta:
    """What the ledger is told: one turn, which is over, of no host."""
    return TaskMeta(turn=1, seq=TURN_STRIDE, state=state_name(task), status_time=status_millis(task), pin=pin)


def record_of(plan: ContextPlan, stored: Sequence[tuple[Entry, Pin | None]]) -> ContextRecord:
    """The context's ledger record over the tasks that were stored, in their order."""
    last = None
    for entry, pin in stored:
        if entry.state == TaskState.TASK_STATE_COMPLETED and pin is not None:
            last = LastCompleted(task_id=entry.task_id, generation=pin.generation, crc32c=pin.crc32c)
    waiting = plan.waiting if plan.waiting in {entry.task_id for entry, _ in stored} else None
    return ContextRecord(
        context_id=plan.context_id,
        epoch=len(stored),
        active=Active(task_id=waiting, owner="") if waiting else None,
        last_completed=last,
    )
