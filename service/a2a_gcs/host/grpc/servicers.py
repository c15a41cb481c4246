"""The SDK's two gRPC services, with the answers of the other bindings.

What a2a-sdk 1.3.0 leaves out: the check of `a2a-version`, the data of an error in
ErrorInfo.metadata, any ErrorInfo at all for 0.3, the public card for 0.3, and an
answer of ours to what nobody foresaw. To be tried again with the
versions after 1.3.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
import structlog
from a2a.auth.user import UnauthenticatedUser, User
from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions, proto_utils
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import DefaultGrpcServerCallContextBuilder, GrpcHandler
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0
from a2a.utils.errors import A2A_ERROR_MAPPING, A2AError, InternalError, InvalidParamsError
from a2a.utils.grpc_status import GRPC_STATUS_DETAILS_BIN_KEY
from a2a.utils.proto_utils import validation_errors_to_bad_request
from a2a.utils.version_validator import validate_version
from google.protobuf import any_pb2
from google.protobuf.message import Message as Proto
from google.rpc import error_details_pb2, status_pb2

from a2a_gcs.host.checked import REACHED_STATE

log = structlog.get_logger(__name__)

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]
Answer = Callable[[ServerCallContext], Awaitable[T]]
Stream = Callable[[ServerCallContext], AsyncIterable[T]]

_MAX_TEXT = 1000
_MAX_VIOLATIONS = 20
"""Errors travel in trailers, of which clients take 8 kB."""


class CallContexts(DefaultGrpcServerCallContextBuilder):
    """What the executor knows of a call: its metadata as headers, as over HTTP, and who makes it.

    Args:
        user: Names the caller of an RPC that was let in; nobody by default.
    """

    def __init__(self, user: Callable[[Context], User] | None = None) -> None:
        self._user = user

    def build(self, context: Context) -> ServerCallContext:
        built = super().build(context)
        metadata = context.invocation_metadata() or ()
        built.state["headers"] = {key.lower(): value for key, value in metadata if isinstance(value, str)}
        return built

    def build_user(self, context: Context) -> User:
        return self._user(context) if self._user is not None else UnauthenticatedUser()


class Service10(GrpcHandler):
    """lf.a2a.v1.A2AService."""

    async def _handle_unary(self, request: Proto, context: Context, handler_func: Answer[T], default_response: T) -> T:
        checked = _checked(handler_func, PROTOCOL_VERSION_1_0)
        return await super()._handle_unary(request, context, checked, default_response)

    async def _handle_stream(self, request: Proto, context: Context, handler_func: Stream[T]) -> AsyncIterator[T]:
        checked = _checked_stream(handler_func, PROTOCOL_VERSION_1_0)
        async for item in super()._handle_stream(request, context, checked):
            yield item

    async def abort_context(self, error: A2AError, context: Context) -> None:
        await _abort(error, error.message, context)


class Service03(CompatGrpcHandler):
    """a2a.v1.A2AService.

    Args:
        handler: Answers.
        contexts: What is known of a caller.
        card: The card that GetAgentCard answers with; in 0.3 that is the public one.
    """

    def __init__(self, handler: RequestHandler, contexts: CallContexts, card: AgentCard) -> None:
        super().__init__(handler, contexts)
        self._card = card

    async def GetAgentCard(  # noqa: N802 - the service's
        self, request: a2a_v0_3_pb2.GetAgentCardRequest, context: Context
    ) -> a2a_v0_3_pb2.AgentCard:
        del request

        async def answer(_call: ServerCallContext) -> a2a_v0_3_pb2.AgentCard:
            return proto_utils.ToProto.agent_card(conversions.to_compat_agent_card(self._card))

        return await self._handle_unary(context, answer, a2a_v0_3_pb2.AgentCard())

    async def _handle_unary(self, context: Context, handler_func: Answer[T], default_response: T) -> T:
        return await super()._handle_unary(context, _checked(handler_func, PROTOCOL_VERSION_0_3), default_response)

    async def _handle_stream(self, context: Context, handler_func: Stream[T]) -> AsyncIterator[T]:
        async for item in super()._handle_stream(context, _checked_stream(handler_func, PROTOCOL_VERSION_0_3)):
            yield item

    async def abort_context(self, error: A2AError, context: Context) -> None:
        await _abort(error, f"{type(error).__name__}: {error.message}", context)  # the form that 0.3 clients parse


def _checked(answer: Answer[T], version: str) -> Answer[T]:
    """The same answer, after a look at the version; what is raised is an A2AError."""

    @validate_version(version)
    async def checked(call: ServerCallContext) -> T:
        try:
            return await answer(call)
        except A2AError:
            raise
        except Exception as e:
            raise _unforeseen(e, call) from e

    return checked


def _checked_stream(stream: Stream[T], version: str) -> Stream[T]:
    @validate_version(version)
    async def checked(call: ServerCallContext) -> AsyncIterator[T]:
        items: Any = stream(call)
        async with contextlib.aclosing(items):
            try:
                async for item in items:
                    yield item
            except A2AError:
                raise
            except Exception as e:
                raise _unforeseen(e, call) from e

    return checked


def _unforeseen(error: Exception, call: ServerCallContext) -> A2AError:
    if REACHED_STATE not in call.state:
        return InvalidParamsError("the request cannot be understood")
    log.error("grpc.failed", exc_info=error)
    return InternalError("the host failed to answer; its log says more")


async def _abort(error: A2AError, text: str, context: Context) -> None:
    """Ends an RPC with the code, the reason and the data that the other bindings give."""
    mapping = A2A_ERROR_MAPPING.get(type(error)) or A2A_ERROR_MAPPING[InternalError]
    code = grpc.StatusCode[mapping.grpc_status]
    status = status_pb2.Status(code=code.value[0], message=text[:_MAX_TEXT])
    data: Mapping[str, Any] = error.data or {}
    flat = {key: str(value)[:_MAX_TEXT] for key, value in data.items() if key != "errors"}
    _add(status, error_details_pb2.ErrorInfo(reason=mapping.reason, domain="a2a-protocol.org", metadata=flat))
    if isinstance(error, InvalidParamsError) and data.get("errors"):
        _add(status, validation_errors_to_bad_request(data["errors"][:_MAX_VIOLATIONS]))
    context.set_trailing_metadata(((GRPC_STATUS_DETAILS_BIN_KEY, status.SerializeToString()),))
    await context.abort(code, status.message)


def _add(status: status_pb2.Status, detail: Proto) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    status.details.append(packed)
