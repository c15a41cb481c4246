"""A task while it runs, for the page that shows it: small events of text, as the API's own stream tells it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import structlog
from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from a2a.utils.errors import A2AError, UnsupportedOperationError
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from a2a_gcs.console.parts import text_of
from a2a_gcs.console.rendering import state_class, state_label
from a2a_gcs.console.site import Visit
from a2a_gcs.task_json import TERMINAL

log = structlog.get_logger(__name__)

MAX_TEXT = 16_000
"""Most characters of one artifact that one event carries; the page shows the end of what streams."""
MAX_ARTIFACTS = 20


async def events(visit: Visit) -> Response:
    """Server-sent events of a task, until it ends; `data` is what `console.js` reads."""
    task_id = visit.id_in_path("task")
    stream = visit.agent.handler.on_subscribe_to_task(SubscribeToTaskRequest(id=task_id), visit.context)
    try:
        first = await anext(stream, None)
    except UnsupportedOperationError:  # it has ended, perhaps since the page was made
        first = None
    return EventSourceResponse(_sent(first, stream), headers={"X-Accel-Buffering": "no"})


async def _sent(first: Event | None, rest: AsyncGenerator[Event, None]) -> AsyncGenerator[dict[str, str], None]:
    async with aclosing(rest) as events:
        if first is not None:
            yield _line(told(first))
        try:
            async for event in events:
                yield _line(told(event))
        except A2AError as e:  # the page looks again
            log.info("console.stream_lost", error=str(e))
    yield _line({"kind": "end"})


def _line(told: dict[str, Any]) -> dict[str, str]:
    return {"data": json.dumps(told)}


def told(event: Event) -> dict[str, Any]:
    """What a page needs of an event."""
    match event:
        case Task():
            latest = list(event.artifacts)[-MAX_ARTIFACTS:]
            made = [{"id": one.artifact_id, "name": one.name, "text": text_of(one, MAX_TEXT)} for one in latest]
            return {"kind": "task", **_status(event), "artifacts": made}
        case TaskStatusUpdateEvent():
            return {"kind": "status", **_status(event)}
        case TaskArtifactUpdateEvent():
            one = event.artifact
            text = text_of(one, MAX_TEXT)
            return {"kind": "artifact", "id": one.artifact_id, "name": one.name, "text": text, "append": event.append}
        case _:
            return {"kind": "end"}


def _status(event: Task | TaskStatusUpdateEvent) -> dict[str, Any]:
    state = TaskState.Name(event.status.state)
    return {
        "state": state_class(state),
        "label": state_label(state),
        "terminal": event.status.state in TERMINAL,
        "text": text_of(event.status.message, MAX_TEXT),
    }
