"""An RPC in traces and metrics, as over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from opentelemetry.trace import SpanKind

from a2a_gcs import telemetry
from a2a_gcs.host.grpc.servicers import Context
from a2a_gcs.host.request_trace import trace_context

_A2A = ("/lf.a2a.", "/a2a.")
"""Health and reflection are asked by machines, of which nobody wants a trace."""


class TraceInterceptor(grpc.aio.ServerInterceptor):
    """Answers each A2A call in a span that continues the caller's trace."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Called by gRPC for each RPC."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(_A2A):
            return handler
        metadata = {k: v for k, v in handler_call_details.invocation_metadata or () if isinstance(v, str)}
        if handler.response_streaming:
            behavior, make = _streaming(handler.unary_stream, method, metadata), grpc.unary_stream_rpc_method_handler
        else:
            behavior, make = _answering(handler.unary_unary, method, metadata), grpc.unary_unary_rpc_method_handler
        return make(behavior, handler.request_deserializer, handler.response_serializer)


def _span(method: str, metadata: dict[str, str]) -> Any:
    return telemetry.tracer.start_as_current_span(
        method.lstrip("/"),
        context=trace_context(metadata),
        kind=SpanKind.SERVER,
        attributes={"rpc.system": "grpc"},
        record_exception=False,
    )


def _answering(behavior: Any, method: str, metadata: dict[str, str]) -> Any:
    async def answer(request: Any, context: Context) -> Any:
        with _span(method, metadata):
            return await behavior(request, context)

    return answer


def _streaming(behavior: Any, method: str, metadata: dict[str, str]) -> Any:
    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        telemetry.open_streams.add(1)
        try:
            with _span(method, metadata):
                async with contextlib.aclosing(behavior(request, context)) as events:
                    async for event in events:
                        yield event
        finally:
            telemetry.open_streams.add(-1)

    return stream
