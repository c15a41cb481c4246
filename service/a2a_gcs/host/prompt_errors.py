"""Streams that fail before their first event answer with a plain error, on every binding.

The SDK looks at the first event before it starts to stream for A2A 1.0, but not
for 0.3: there JSON-RPC wraps a refusal into an event stream, and REST answers 200
and breaks off, so that the client never learns what was wrong (FACTS 4).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from a2a.utils.error_handlers import rest_error_handler
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route


def with_prompt_errors(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """The same routes; each stream is answered only once its first event, or what went wrong instead, is known."""
    return [_prompt(route) if isinstance(route, Route) else route for route in routes]


def _prompt(route: Route) -> Route:
    @rest_error_handler
    async def endpoint(request: Request) -> Response:
        response: Response = await route.endpoint(request)
        return await _started(response) if isinstance(response, EventSourceResponse) else response

    return Route(route.path, endpoint, methods=sorted(route.methods or ()))


async def _started(response: EventSourceResponse) -> Response:
    """The response with its first event in hand. Raises what the stream raises before that."""
    events = aiter(response.body_iterator)
    try:
        first = await anext(events)
    except StopAsyncIteration:
        return response
    if (error := _json_rpc_error(first)) is not None:
        return JSONResponse(error)
    response.body_iterator = _resumed(first, events)
    return response


def _json_rpc_error(event: Any) -> dict[str, Any] | None:
    data = event.get("data") if isinstance(event, dict) else None
    body = json.loads(data) if isinstance(data, str) else None
    return body if isinstance(body, dict) and "jsonrpc" in body and "error" in body else None


async def _resumed(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for event in rest:
        yield event
