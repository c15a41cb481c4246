"""What a notification looks like: the body and headers that receivers of A2A 1.0 and 0.3 know. Pure."""

from __future__ import annotations

import json
import uuid

from a2a.compat.v0_3.conversions import to_compat_task
from a2a.types.a2a_pb2 import StreamResponse, Task, TaskStatusUpdateEvent
from google.protobuf.json_format import MessageToDict

from a2a_gcs.host.empty_parts import filled
from a2a_gcs.records import PushConfigRecord
from a2a_gcs.tasks.notices import Notice

DELIVERY_ID = "X-A2A-Delivery-Id"
"""Header that every repeat of a notification carries with the same value."""
TOKEN = "X-A2A-Notification-Token"  # noqa: S105 - the header's name, as the SDK's sender has it

_DELIVERIES = uuid.UUID("3f0a8c66-6a0e-5d0b-9a52-0f3c8a1d7e41")


def delivery_id(notice: Notice) -> str:
    """The same for every try, by any host: made of the task's id and the notice's number alone."""
    return str(uuid.uuid5(_DELIVERIES, f"{notice.ref.task_id}/{notice.number}"))


def headers_of(config: PushConfigRecord, notice: Notice) -> dict[str, str]:
    """Headers of one notification: its id, and what the client gave to recognise it by."""
    headers = {"Content-Type": "application/json", DELIVERY_ID: delivery_id(notice)}
    if config.token:
        headers[TOKEN] = config.token
    if config.scheme and config.credentials:
        headers["Authorization"] = f"{config.scheme} {config.credentials}"
    return headers


def update_of(notice: Notice) -> TaskStatusUpdateEvent:
    """The event that a notice tells of, as it is stored."""
    return TaskStatusUpdateEvent(task_id=notice.ref.task_id, context_id=notice.ref.context_id, status=notice.status)


def body_of(config: PushConfigRecord, update: TaskStatusUpdateEvent) -> bytes:
    """A2A 1.0: a StreamResponse with a status update, as the SDK's sender has it. 0.3: a Task of that status.

    Neither holds artifacts or history, which may be large: the receiver gets the task.
    """
    if config.protocol == "0.3":
        task = to_compat_task(Task(id=update.task_id, context_id=update.context_id, status=filled(update).status))
        return task.model_dump_json(by_alias=True, exclude_none=True).encode()
    return json.dumps(MessageToDict(StreamResponse(status_update=update))).encode()
