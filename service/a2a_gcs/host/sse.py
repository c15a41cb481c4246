"""Ids of server-sent events: each event of a stream says where it stands, and a client may go on from there.

The handler notes the id of an event in the call's context right before it
yields it; the streams of all HTTP bindings pull one event after the other, so
it is still there when the event has become one of the response's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse

from a2a_gcs.tasks.event_ids import event_id, position
from a2a_gcs.tasks.stream import Told

_ID_STATE = "a2a_gcs.event_id"
_LAST_EVENT_ID = "last-event-id"


def noted(context: ServerCallContext, task_id: str, told: Told) -> Event:
    """The event itself, with its id noted for the response."""
    context.state[_ID_STATE] = event_id(task_id, told.seq, last=told.last) if told.seq else None
    return told.event


def resumes_after(context: ServerCallContext, task_id: str) -> int | None:
    """The version after which a client that reconnects wants to go on; None without a Last-Event-ID of this task."""
    headers = cast("Mapping[str, str]", context.state.get("headers", {}))
    return position(task_id, headers.get(_LAST_EVENT_ID, ""))


def with_ids(response: EventSourceResponse, context: ServerCallContext | None) -> EventSourceResponse:
    """The response, whose events carry the ids that were noted for them."""
    if context is not None:
        response.body_iterator = _with_ids(aiter(response.body_iterator), context)
    return response


async def _with_ids(events: AsyncIterator[Any], context: ServerCallContext) -> AsyncIterator[Any]:
    async for event in events:
        identified = context.state.pop(_ID_STATE, None)
        if identified is None:
            yield event
        elif isinstance(event, ServerSentEvent):
            event.id = identified
            yield event
        else:
            yield {**(event if isinstance(event, dict) else {"data": event}), "id": identified}
