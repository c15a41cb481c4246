"""The faults of a2a-sdk 1.3.0's HTTP bindings, each worked around here and nowhere else.

No release mends any of them yet: each is to be tried again with every a2a-sdk
after 1.3.0, and what `tests/integration/test_sdk_faults.py` shows to be gone
without its work-around goes from here. gRPC's are in `a2a_gcs.host.grpc.servicers`.

- `_started`: 0.3 streams that fail before their first event answer 200, and break off (REST) or wrap the
  error into an event (JSON-RPC); so does resubscribing to an unknown task.
- `_Adapter03`: invalid params are -32600 where -32602 is due; deleting a push configuration answers
  without `result`; a version that is not supported is -32603, as 0.3 has no code for it.
- `_take_field_names`: 0.3 REST ignores `history_length`, the field's name, beside `historyLength`.
- `_delete_push_config_03`: 0.3 REST has no DELETE route for push configurations.
- `required_extensions`: they are not enforced.
- `push_configs`: a message that brings a push configuration is let pass where there is no push.
- `_known_state`: a listing's `status` that is no state is passed over, and everything listed (JSON-RPC, REST).
- `_known_booleans`: REST takes any value of a boolean in a query for false.
- `strict_json`: bodies that are no UTF-8, nested too deeply, or hold NaN or lone surrogates are -32603 or 500.
- `_blamed`: so is what cannot be converted to a request.
- `_below_tenants`: the mount at `/{tenant}` swallows the routes of others.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pydantic
from a2a.compat.v0_3 import types as types_03
from a2a.compat.v0_3.context_builders import V03ServerCallContextBuilder
from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.compat.v0_3.request_handler import RequestHandler03
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes import create_rest_routes
from a2a.server.routes.common import DefaultServerCallContextBuilder, ServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types.a2a_pb2 import AgentCard, ListTasksRequest, SendMessageRequest, TaskState
from a2a.utils.constants import PROTOCOL_VERSION_0_3
from a2a.utils.error_handlers import build_rest_error_payload, rest_error_handler
from a2a.utils.errors import (
    A2AError,
    ExtensionSupportRequiredError,
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    VersionNotSupportedError,
)
from a2a.utils.version_validator import validate_version
from google.protobuf.message import Message as Proto
from sse_starlette.sse import EventSourceResponse
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from a2a_gcs.host.checked import REACHED_STATE, Check
from a2a_gcs.host.sse import with_ids
from a2a_gcs.host.versions import is_03

Endpoint = Callable[[Request], Awaitable[Response]]

_INTERNAL = -32603
_PARSE_ERROR = -32700
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STATES = frozenset(TaskState.DESCRIPTOR.values_by_name)
_NUMBER = re.compile(r"\s*-?\d+\s*")
_UNINTELLIGIBLE = "the request cannot be understood"

# ---------------------------------------------------------------------- routes


def jsonrpc_routes(
    handler: RequestHandler, path: str, context_builder: ServerCallContextBuilder | None = None
) -> list[BaseRoute]:
    """JSON-RPC 1.0 and 0.3 at one path."""
    builder = _Noting(context_builder or DefaultServerCallContextBuilder())
    dispatcher = JsonRpcDispatcher(handler, context_builder=builder, enable_v0_3_compat=True)
    dispatcher._v03_adapter = _Adapter03(handler, builder)  # noqa: SLF001 - it cannot be given one

    async def endpoint(request: Request) -> Response:
        try:
            body = strict_json(await request.body())
        except InvalidJson as e:
            return JSONResponse(_rpc_error(None, _PARSE_ERROR, str(e)))
        if isinstance(body, dict) and body.get("method") == "ListTasks" and isinstance(body.get("params"), dict):
            try:
                _known_state(body["params"].get("status"))
            except InvalidParamsError as e:
                return JSONResponse(build_error_response(body.get("id"), e))
        response = await dispatcher.handle_requests(_Parsed(request, body))
        if isinstance(response, EventSourceResponse):
            response = await _started(with_ids(response, _noted(request)))
        return _blamed(request, response)

    return [Route(path, endpoint, methods=["POST"])]


def rest_routes(
    handler: RequestHandler, context_builder: ServerCallContextBuilder | None = None, *, tenants: bool = False
) -> list[BaseRoute]:
    """REST 1.0 and 0.3 below the origin, to be registered after everything else.

    Args:
        handler: Answers.
        context_builder: What is known of a caller.
        tenants: Also below `/{tenant}`, unless that is a name of ours.
    """
    builder = _Noting(context_builder or DefaultServerCallContextBuilder())
    theirs = create_rest_routes(handler, context_builder=builder, enable_v0_3_compat=True)
    flat = [route for route in theirs if isinstance(route, Route)]
    deleting = _delete_push_config_03(RequestHandler03(handler), V03ServerCallContextBuilder(builder))
    routes = [_mended(route) for route in (deleting, *flat)]
    return [*routes, *(_below_tenants(routes) if tenants else ())]


def _mended(route: Route) -> Route:
    @rest_error_handler
    async def answered(request: Request) -> Response:
        if route.path == "/tasks":
            _known_state(request.query_params.get("status"))
            _known_booleans(request.query_params, ListTasksRequest)
        response: Response = await route.endpoint(request)
        if isinstance(response, EventSourceResponse):
            return await _started(with_ids(response, _noted(request)))
        return response

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        try:
            if body:
                strict_json(body)
        except InvalidJson as e:
            return _rest_error(InvalidRequestError(str(e)))
        if route.path.startswith("/v1/"):
            _take_field_names(request)
        return _blamed(request, await answered(request))

    return Route(route.path, endpoint, methods=sorted(route.methods or ()))


def _take_field_names(request: Request) -> None:
    """A query may say a field of the request by its name or by its JSON name (google.api.http, which 0.3's REST is)."""
    query: bytes = request.scope["query_string"]
    if b"historyLength=" not in query:
        request.scope["query_string"] = re.sub(rb"(^|&)history_length=", rb"\1historyLength=", query)


def _known_state(status: object) -> None:
    """Refuses the name of a state that there is none of: 0.3's names, for example. Raises InvalidParamsError."""
    if isinstance(status, str) and status and status not in _STATES and not _NUMBER.fullmatch(status):
        raise InvalidParamsError(f"status: {status[:80]!r} is no task state; they are named as TASK_STATE_COMPLETED is")


def _known_booleans(query: QueryParams, fields: type[Proto]) -> None:
    """Refuses what is neither true nor false where a request has a boolean. Raises InvalidParamsError."""
    for field in fields.DESCRIPTOR.fields:
        value = query.get(field.camelcase_name)
        if field.type == field.TYPE_BOOL and value is not None and value.lower() not in {"true", "false"}:
            raise InvalidParamsError(f"{field.camelcase_name}: {value[:80]!r} is neither true nor false")


class _Tenant(Convertor[str]):
    """A first segment that is no name of ours."""

    regex = r"(?!(?:\.well-known|console|docs|files|health|metrics|openapi\.json|ready|redoc|tasks|v1)(?:/|$))[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("tenant", _Tenant())


def _below_tenants(routes: list[Route]) -> list[Route]:
    """REST 1.0 below a tenant; 0.3 knows no tenants."""
    return [
        Route("/{tenant:tenant}" + route.path, route.endpoint, methods=sorted(route.methods or ()))
        for route in routes
        if not route.path.startswith("/v1/")
    ]


# ---------------------------------------------------------------------- streams that fail at once


async def _started(response: EventSourceResponse) -> Response:
    """The response with its first event in hand. Raises what the stream raises before that."""
    events = aiter(response.body_iterator)
    try:
        first = await anext(events)
    except StopAsyncIteration:
        return response
    if (error := _rpc_error_of(first)) is not None:
        return JSONResponse(error)
    response.body_iterator = _resumed(first, events)
    return response


def _rpc_error_of(event: Any) -> dict[str, Any] | None:
    data = event.get("data") if isinstance(event, dict) else None
    body = json.loads(data) if isinstance(data, str) else None
    return body if isinstance(body, dict) and "jsonrpc" in body and "error" in body else None


async def _resumed(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for event in rest:
        yield event


# ---------------------------------------------------------------------- bodies that cannot be understood


class InvalidJson(ValueError):
    """A body that is not JSON, or not what can be kept as JSON."""


def strict_json(body: bytes) -> Any:
    """What a body says. Raises InvalidJson for what RFC 8259 does not allow, and for lone surrogates."""
    try:
        value = json.loads(body.decode(), parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as e:
        raise InvalidJson("the body is nested too deeply") from e
    except UnicodeError as e:
        raise InvalidJson("the body is no Unicode text in UTF-8") from e
    except ValueError as e:
        raise InvalidJson(f"the body is not JSON: {e}") from e
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError("a number is too large")
    return value


class _Parsed(Request):
    """A request whose JSON is known."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._value = value

    async def json(self) -> Any:
        return self._value


class _Noting(ServerCallContextBuilder):
    """Keeps a request's context where `_noted` finds it."""

    def __init__(self, inner: ServerCallContextBuilder) -> None:
        self._inner = inner

    def build(self, request: Request) -> ServerCallContext:
        context = self._inner.build(request)
        request.state.a2a_call = context
        return context


def _noted(request: Request) -> ServerCallContext | None:
    return getattr(request.state, "a2a_call", None)


def _blamed(request: Request, response: Response) -> Response:
    """The response; an internal error from before the request was understood is the request's own."""
    context = _noted(request)
    if (context is not None and REACHED_STATE in context.state) or not isinstance(response, JSONResponse):
        return response
    if response.status_code == 500:  # noqa: PLR2004
        return _rest_error(InvalidParamsError(_UNINTELLIGIBLE))
    if b'"error"' not in bytes(response.body):
        return response
    body = json.loads(bytes(response.body))
    if isinstance(body, dict) and isinstance(body.get("error"), dict) and body["error"].get("code") == _INTERNAL:
        return JSONResponse(_rpc_error(body.get("id"), -32602, _UNINTELLIGIBLE))
    return response


def _rpc_error(request_id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def _rest_error(error: A2AError) -> JSONResponse:
    payload = build_rest_error_payload(error)
    return JSONResponse(payload, status_code=payload["error"]["code"])


# ---------------------------------------------------------------------- A2A 0.3


class _Adapter03(JSONRPC03Adapter):
    """JSON-RPC 0.3 with the codes and members that it should have."""

    async def handle_request(
        self, request_id: str | int | None, method: str, body: dict[str, Any], request: Request
    ) -> JSONResponse | EventSourceResponse:
        try:
            self.METHOD_TO_MODEL[method].model_validate(body)  # type: ignore[attr-defined]  # pydantic models, all
        except pydantic.ValidationError as e:
            wrong = [error for error in e.errors(include_input=False) if error["loc"][:1] == ("params",)]
            if not wrong:
                return self._generate_error_response(request_id, InvalidRequestError(str(e.errors()[0]["msg"])))
            where = ".".join(str(step) for step in wrong[0]["loc"])
            return self._generate_error_response(request_id, InvalidParamsError(f"{where}: {wrong[0]['msg']}"))
        return await super().handle_request(request_id, method, body, request)

    def _generate_error_response(self, request_id: str | int | None, error: Any) -> JSONResponse:
        if isinstance(error, VersionNotSupportedError):
            error = InvalidRequestError(error.message, error.data)
        return super()._generate_error_response(request_id, error)

    @validate_version(PROTOCOL_VERSION_0_3)
    async def _process_non_streaming_request(
        self, request_id: str | int | None, request_obj: Any, context: ServerCallContext
    ) -> JSONResponse:
        response = await super()._process_non_streaming_request(request_id, request_obj, context)
        if request_obj.method == "tasks/pushNotificationConfig/delete":
            return JSONResponse({"jsonrpc": "2.0", "id": request_id, "result": None})
        return response


def _delete_push_config_03(handler: RequestHandler03, builder: V03ServerCallContextBuilder) -> Route:
    async def endpoint(request: Request) -> Response:
        context = builder.build(request)
        params = types_03.DeleteTaskPushNotificationConfigParams(
            id=request.path_params["id"], push_notification_config_id=request.path_params["push_id"]
        )

        @validate_version(PROTOCOL_VERSION_0_3)
        async def delete(context: ServerCallContext) -> None:
            await handler.on_delete_task_push_notification_config(
                types_03.DeleteTaskPushNotificationConfigRequest(id=0, params=params), context
            )

        await delete(context)
        return JSONResponse({})

    return Route("/v1/tasks/{id}/pushNotificationConfigs/{push_id}", endpoint, methods=["DELETE"])


# ---------------------------------------------------------------------- what a card demands, and what it denies


def required_extensions(card: AgentCard) -> Check:
    """Refuses requests that do not name every extension that the card requires. The card itself is for everybody."""

    def check(_params: Proto, context: ServerCallContext) -> None:
        required = {extension.uri for extension in card.capabilities.extensions if extension.required}
        if missing := sorted(required - context.requested_extensions):
            text = f"this agent requires the extension {missing[0]}; name it in A2A-Extensions"
            # 0.3 has no error for it, and the SDK makes -32603 of those.
            raise InvalidRequestError(text) if is_03(context) else ExtensionSupportRequiredError(text)

    return check


def push_configs(card: AgentCard) -> Check:
    """Refuses messages that ask for push notifications of an agent that has none."""

    def check(params: Proto, _context: ServerCallContext) -> None:
        if (
            isinstance(params, SendMessageRequest)
            and params.configuration.HasField("task_push_notification_config")
            and not card.capabilities.push_notifications
        ):
            raise PushNotificationNotSupportedError

    return check
