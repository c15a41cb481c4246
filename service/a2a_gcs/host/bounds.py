"""What one request may ask for: its size in bytes, and the sizes of what it holds.

Cloud Run cuts HTTP/1 requests off at 32 MiB with an answer of its own
(service/docs/limits.md); ours comes before that, and says what was too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import GetTaskRequest, ListTasksRequest, SendMessageRequest
from a2a.utils.errors import InvalidParamsError
from google.protobuf.message import Message as Proto
from google.protobuf.struct_pb2 import Struct, Value
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from a2a_gcs.host.checked import Check
from a2a_gcs.host.empty_parts import is_empty

MAX_ID_BYTES = 240
"""As layout.MAX_SEGMENT_BYTES, for those ids that do not become part of a key."""
MAX_LISTED = 100
"""Referenced tasks, extensions, accepted output modes: lists that people write by hand."""
MAX_HISTORY = 100_000
"""Most messages that a request may ask for; no task has as many."""


class RequestTooLarge(HTTPException):
    """A body went over the limit while it was read."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"the request is larger than {limit} bytes, which is the most this host takes")
        self.limit = limit


class BodyLimit:
    """Answers 413 to a request over the limit, at once if it says so itself, else as soon as it is seen.

    Args:
        app: The application; it lets RequestTooLarge through to `answer_too_large`.
        limit: Bytes of a body.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "")
        if said.isascii() and said.isdigit() and int(said) > self._limit:
            response = await answer_too_large(Request(scope), RequestTooLarge(self._limit))
            await response(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limit:
                raise RequestTooLarge(self._limit)
            return message

        await self._app(scope, counted, send)


async def answer_too_large(_request: Request, error: Exception) -> JSONResponse:
    """The 413, in the form of the REST binding's errors."""
    assert isinstance(error, RequestTooLarge)
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "REQUEST_TOO_LARGE",
        "domain": "a2a-protocol.org",
        "metadata": {"maxRequestBytes": str(error.limit)},
    }
    body = {"code": 413, "status": "OUT_OF_RANGE", "message": error.detail, "details": [info]}
    return JSONResponse({"error": body}, status_code=413)


def within_bounds(*, max_parts: int) -> Check:
    """The check of what a request holds. Its errors are InvalidParamsError and name the field."""

    def check(params: Proto, _context: ServerCallContext) -> None:
        _short_ids(params)
        if isinstance(params, SendMessageRequest):
            _within(params, max_parts)
        elif isinstance(params, GetTaskRequest | ListTasksRequest):
            _sensible_history(params)

    return check


def _within(params: SendMessageRequest, max_parts: int) -> None:
    message = params.message
    if len(message.parts) > max_parts:
        raise InvalidParamsError(f"message.parts: {len(message.parts)} of them; at most {max_parts} are allowed")
    _short_ids(message)
    modes = params.configuration.accepted_output_modes
    lists: Mapping[str, Iterable[str]] = {
        "message.referenceTaskIds": message.reference_task_ids,
        "message.extensions": message.extensions,
        "configuration.acceptedOutputModes": modes,
    }
    for name, values in lists.items():
        _short_list(name, list(values))
    _sensible_history(params.configuration)
    for struct in (params.metadata, message.metadata, *(part.metadata for part in message.parts)):
        _real_numbers(struct)
    for number, part in enumerate(message.parts):
        if is_empty(part):
            raise InvalidParamsError(f"message.parts[{number}]: has no content; a part is a text, raw, url or data")
        if part.HasField("data"):
            _real_numbers(part.data)


def _short_ids(params: Proto) -> None:
    for field, value in params.ListFields():
        if isinstance(value, str) and (field.name == "id" or field.name.endswith("_id")):
            _short(field.camelcase_name, value)


def _short_list(name: str, values: list[str]) -> None:
    if len(values) > MAX_LISTED:
        raise InvalidParamsError(f"{name}: {len(values)} of them; at most {MAX_LISTED} are allowed")
    for value in values:
        _short(name, value)


def _short(name: str, value: str) -> None:
    if (size := len(value.encode())) > MAX_ID_BYTES:
        raise InvalidParamsError(f"{name}: takes {size} bytes; at most {MAX_ID_BYTES} are allowed")


def _sensible_history(params: Proto) -> None:
    if params.HasField("history_length"):
        length = params.history_length  # type: ignore[attr-defined]  # three kinds of request have it
        if not 0 <= length <= MAX_HISTORY:
            raise InvalidParamsError(f"historyLength: {length} is not between 0 and {MAX_HISTORY}")


def _real_numbers(value: Struct | Value) -> None:
    """JSON has no NaN and no infinities, and a task is stored as JSON; only gRPC could bring them."""
    if isinstance(value, Struct):
        for inner in value.fields.values():
            _real_numbers(inner)
        return
    match value.WhichOneof("kind"):
        case "number_value" if not math.isfinite(value.number_value):
            raise InvalidParamsError("NaN and infinite numbers cannot be kept, as JSON has none")
        case "struct_value":
            _real_numbers(value.struct_value)
        case "list_value":
            for inner in value.list_value.values:
                _real_numbers(inner)
        case _:
            return
