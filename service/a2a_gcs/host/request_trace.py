"""A request in traces, metrics and logs: whose trace it continues, and how it ended.

What is logged while it is answered names the trace, so that Cloud Logging shows all lines of a request together
with that of Cloud Run itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from a2a_gcs import telemetry
from a2a_gcs.clock import boottime

log = structlog.stdlib.get_logger(__name__)

QUIET = frozenset({"/health", "/ready", "/metrics"})
"""Paths that are asked all the time by machines, of which nobody wants a trace."""

_CLOUD = re.compile(r"([0-9a-f]{32})(?:/([0-9]{1,20}))?(?:;o=([0-9]+))?", re.IGNORECASE)
"""X-Cloud-Trace-Context: TRACE_ID/SPAN_ID;o=OPTIONS, the span in decimal."""

_SERVER_ERROR = 500


def trace_context(headers: Mapping[str, str]) -> Context:
    """The trace that a request belongs to: by `traceparent` (W3C), else by Google's X-Cloud-Trace-Context.

    Args:
        headers: By lower-case names. What cannot be read is as good as absent.
    """
    found = propagate.extract(headers, Context())
    if trace.get_current_span(found).get_span_context().is_valid:
        return found
    match = _CLOUD.fullmatch(headers.get("x-cloud-trace-context", ""))
    if match is None:
        return found
    span = SpanContext(
        trace_id=int(match[1], 16),
        span_id=int(match[2] or 0) & (2**64 - 1),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if int(match[3] or 0) & 1 else TraceFlags.DEFAULT),
    )
    return trace.set_span_in_context(NonRecordingSpan(span), found) if span.is_valid else found


class RequestTrace:
    """ASGI middleware around everything else, so that refusals count too.

    Args:
        app: What answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET:
            await self._app(scope, receive, send)
            return
        request = _Request(scope, send)
        with telemetry.tracer.start_as_current_span(
            f"HTTP {scope['method']}",
            context=trace_context(_headers(scope["headers"])),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.path": scope["path"]},
            record_exception=False,
        ) as span:
            try:
                await self._app(scope, receive, request.send)
            finally:
                request.end(span)


class _Request:
    """What a request has come to so far."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._began = boottime()
        self._status = _SERVER_ERROR
        self._streams = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            kind = _headers(message.get("headers", ())).get("content-type", "")
            self._streams = kind.startswith("text/event-stream")
            telemetry.open_streams.add(1 if self._streams else 0)
        await self._send(message)

    def end(self, span: Span) -> None:
        telemetry.open_streams.add(-1 if self._streams else 0)
        span.set_attribute("http.response.status_code", self._status)
        failed = self._status >= _SERVER_ERROR
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        (log.error if failed else log.debug)("http.request", httpRequest=self._told())

    def _told(self) -> dict[str, Any]:
        """Cloud Logging's HttpRequest; the path alone, as a query may hold what users say."""
        return {
            "requestMethod": self._scope["method"],
            "requestUrl": self._scope["path"],
            "status": self._status,
            "latency": f"{boottime() - self._began:.3f}s",
            "protocol": f"HTTP/{self._scope['http_version']}",
        }


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
