"""Authentication of RPCs: the same check as over HTTP, before anything else happens to a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
import structlog
from a2a.auth.user import UnauthenticatedUser, User

from a2a_gcs.host.auth.authenticator import Authenticator
from a2a_gcs.host.auth.errors import AuthUnavailable, Unauthenticated
from a2a_gcs.host.grpc.servicers import Context

log = structlog.get_logger(__name__)

_PUBLIC = "/grpc.health.v1.Health/"
"""Probes have no credentials, as over HTTP."""


class CallerInterceptor(grpc.aio.ServerInterceptor):
    """Lets authenticated RPCs through, and aborts the others with UNAUTHENTICATED or UNAVAILABLE.

    Args:
        authenticator: Tells who calls, by the RPC's metadata.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        # One RPC is one task, from the interceptors to the end of its handler, so this is its own.
        self._caller: ContextVar[User] = ContextVar("caller")

    def user(self, context: Context) -> User:
        """Who makes the RPC that is being answered."""
        del context
        return self._caller.get(UnauthenticatedUser())

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Called by gRPC for each RPC."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_PUBLIC):
            return handler
        try:
            self._caller.set(await self._authenticator.authenticate(handler_call_details.invocation_metadata))
        except Unauthenticated as e:
            log.info("auth.refused", reason=str(e), detail=e.detail)
            return _aborting(handler, grpc.StatusCode.UNAUTHENTICATED, str(e))
        except AuthUnavailable as e:
            log.info("auth.refused", reason=str(e), detail=e.detail)
            return _aborting(handler, grpc.StatusCode.UNAVAILABLE, str(e))
        return handler


def _aborting(handler: Any, code: grpc.StatusCode, message: str) -> Any:
    """A handler of the same kind that answers nothing but the refusal."""

    async def refuse(_request: Any, context: Context) -> None:
        await context.abort(code, message)

    async def refuse_stream(_request: Any, context: Context) -> AsyncIterator[Any]:
        await context.abort(code, message)
        yield  # type: ignore[unreachable]  # abort raises; this makes it the generator that gRPC expects

    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    behavior = refuse_stream if handler.response_streaming else refuse
    return make(behavior, handler.request_deserializer, handler.response_serializer)
