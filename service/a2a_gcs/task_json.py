"""task.json's body: an A2A Task as ProtoJSON (A2A 1.0), readable as it is; pure.

A body written by an A2A 0.3 server is read too, and comes back as 1.0. Members
that this version's Task does not have are kept beside it and written back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from a2a.compat.v0_3 import types as v03
from a2a.compat.v0_3.conversions import to_core_task
from a2a.types.a2a_pb2 import Task, TaskState
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from a2a_gcs.errors import CorruptRecord

TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
TERMINAL_NAMES = frozenset(TaskState.Name(state) for state in TERMINAL)
"""As they stand in metadata."""

INTERRUPTED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})

_NO_STATE = {None, 0, "unknown", "TASK_STATE_UNSPECIFIED"}

_LONG_TEXT = 1024

Unknown = Mapping[str, Any]
M = TypeVar("M", bound=Message)


def parse_task_json(key: str, body: bytes) -> tuple[Task, Unknown]:
    """Reads a task.json of A2A 1.0 or 0.3.

    Returns:
        The Task, and the members that it has no field for, in their places.

    Raises:
        CorruptRecord: It is no Task.
    """
    try:
        raw = json.loads(body)
        if not isinstance(raw, dict):
            raise CorruptRecord(key, "it is no JSON object")
        if raw.get("kind") == "task":
            task, unknown = to_core_task(v03.Task.model_validate(raw)), {}
        else:
            task = _to_task(raw)
            unknown = _unknown_members(raw, task.DESCRIPTOR)
    except CorruptRecord:
        raise
    except Exception as e:
        raise CorruptRecord(key, e) from e
    _check_state(key, raw, task)
    if not task.id or not task.context_id:
        raise CorruptRecord(key, "it has no id or no contextId")
    return task, unknown


def _to_task(raw: dict[str, Any]) -> Task:
    """The Task of a JSON object; its long texts are taken out of the object.

    ParseDict looks at every character of a string, which takes 5 s for 50 MB. They are set past it, and are
    checked where they are set. Raises what ParseDict raises.
    """
    long = []
    for holder, parts in enumerate(_parts(raw)):
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and len(text) > _LONG_TEXT:
                part["text"] = ""
                long.append((holder, number, text))
    task = ParseDict(raw, Task(), ignore_unknown_fields=True)
    holders = [*(one.parts for one in task.history), *(one.parts for one in task.artifacts), task.status.message.parts]
    for holder, number, text in long:
        holders[holder][number].text = text
    return task


def _parts(raw: Mapping[str, Any]) -> list[Any]:
    """The lists of parts of all messages and artifacts, in the order in which `_to_task` finds them again."""
    holders = [one for name in ("history", "artifacts") for one in raw.get(name) or () if isinstance(one, dict)]
    status = raw.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    return [one.get("parts") for one in (*holders, message if isinstance(message, dict) else {})]


def format_task_json(task: Task, unknown: Unknown) -> bytes:
    """Writes a task.json of A2A 1.0, indented."""
    body = MessageToDict(task)
    _merge(body, unknown, task.DESCRIPTOR)
    try:
        return json.dumps(body, ensure_ascii=False, indent=2).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate in a member that we only pass on
        return json.dumps(body, indent=2).encode() + b"\n"


def state_name(task: Task) -> str:
    return str(TaskState.Name(task.status.state))


def status_millis(task: Task) -> int:
    """The status timestamp in Unix milliseconds."""
    return int(task.status.timestamp.ToMilliseconds())


def stamp(task: Task, now: datetime) -> None:
    """Sets the status timestamp to `now`, in whole milliseconds (A2A's resolution)."""
    task.status.timestamp.FromDatetime(now.astimezone(UTC).replace(microsecond=now.microsecond // 1000 * 1000))


def without(message: M, name: str) -> M:
    """A copy of all but one field.

    Clearing a field, or putting something small in its place, gives no memory back: whatever a message has ever held
    lives as long as it.
    """
    others = FieldMask(paths=[field.name for field, _ in message.ListFields() if field.name != name])
    copy = type(message)()
    others.MergeMessage(message, copy)
    return copy


def _check_state(key: str, raw: Mapping[str, Any], task: Task) -> None:
    """A state that this version does not know would be lost with the next write, so such a task is not read."""
    status = raw.get("status")
    named = status.get("state") if isinstance(status, dict) else None
    lost = task.status.state == TaskState.TASK_STATE_UNSPECIFIED and named not in _NO_STATE
    if lost or task.status.state not in TaskState.values():
        raise CorruptRecord(key, f"its state is {named!r}")


def _unknown_members(raw: Mapping[str, Any], descriptor: Any) -> dict[str, Any]:
    """Members without a field, also inside of singular messages; lists are taken as they are known."""
    by_name = {**descriptor.fields_by_name, **descriptor.fields_by_camelcase_name}
    found: dict[str, Any] = {}
    for name, value in raw.items():
        known = by_name.get(name)
        if known is None:
            found[name] = value
        elif isinstance(value, dict) and _is_plain_message(known):
            inner = _unknown_members(value, known.message_type)
            if inner:
                found[name] = inner
    return found


def _is_plain_message(known: FieldDescriptor) -> bool:
    """A singular message that is an object in JSON; the well-known types, such as Struct, have forms of their own."""
    return (
        known.type == FieldDescriptor.TYPE_MESSAGE
        and not known.is_repeated
        and known.message_type is not None
        and not known.message_type.full_name.startswith("google.protobuf.")
    )


def _merge(into: dict[str, Any], more: Unknown, descriptor: Any) -> None:
    """Puts unknown members back; those of a message that the task has no longer go with it."""
    for name, value in more.items():
        known = descriptor.fields_by_name.get(name)
        if known is None:
            into.setdefault(name, value)
        elif name in into:
            _merge(into[name], value, known.message_type)
