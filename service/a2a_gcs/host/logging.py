"""Logs on stderr: for people on a terminal, one JSON object a line elsewhere (Cloud Logging's field names).

What users and agents say is not logged, at any level.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

import structlog
from google.protobuf.json_format import ParseError
from opentelemetry import trace
from pydantic import ValidationError

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

CHATTY = ("a2a", "aiohttp", "httpcore", "sse_starlette", "urllib3")
"""Libraries that log bodies of requests, events or objects at debug: held at info, whatever the level."""

QUIET = ("asyncio", "fsspec", "gcsfs", "google", "httpx")
"""Libraries whose info is of no use to an operator, such as a line a request: held at warning."""


REQUEST_ERROR = 4
"""Id, code, message and data: the arguments of the SDK's one warning about a refused request."""


def configure_logging(level: str, stream: TextIO | None = None, *, project: str | None = None) -> None:
    """Routes structlog and the standard library through one handler. A later call replaces an earlier one.

    Args:
        level: Least severity: debug, info, warning or error.
        stream: Where lines go; default: stderr.
        project: The Google Cloud project that traces are in; without it Cloud Logging cannot tell whose they are.
    """
    out = stream or sys.stderr
    shared = _shared_processors()
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # a second configuration has to reach every logger
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_rendering(project, tty=out.isatty()))
    )
    handler.addFilter(_without_content)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    _hold_back(root.level)


def cloud_project() -> str | None:
    """The project that this process runs in, as far as the environment tells; on Cloud Run its metadata server does.

    May take a second there, so it is asked once at the start.
    """
    if known := os.environ.get("GOOGLE_CLOUD_PROJECT"):
        return known
    if "K_SERVICE" not in os.environ:
        return None
    import google.auth  # noqa: PLC0415 - 0.1 s, and only there
    import google.auth.exceptions  # noqa: PLC0415

    try:
        _, project = google.auth.default()
    except google.auth.exceptions.GoogleAuthError:
        return None
    return str(project) if project else None


def _hold_back(level: int) -> None:
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.INFO))
    for name in QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _rendering(project: str | None, *, tty: bool) -> list[Processor]:
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=True)]
        if tty
        else [
            structlog.processors.format_exc_info,
            functools.partial(_cloud_fields, project),
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ]
    )
    return [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _without_color, *last]


def _cloud_fields(project: str | None, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What Cloud Logging reads: `severity`, `message`, `time`, and the trace that the line belongs to."""
    text = str(event.pop("event", ""))
    severity = str(event.pop("level", "info")).upper()
    when = {"time": event.pop("timestamp")} if "timestamp" in event else {}
    return {"severity": severity, "message": text, **when, **event, **_trace(project)}


def _trace(project: str | None) -> EventDict:
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    trace_id = trace.format_trace_id(span.trace_id)
    if project is None:
        return {"trace_id": trace_id, "span_id": trace.format_span_id(span.span_id)}
    return {
        "logging.googleapis.com/trace": f"projects/{project}/traces/{trace_id}",
        "logging.googleapis.com/spanId": trace.format_span_id(span.span_id),
        "logging.googleapis.com/trace_sampled": span.trace_flags.sampled,
    }


def _without_color(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.pop("color_message", None)  # uvicorn's second copy of its text
    return event


def _without_content(record: logging.LogRecord) -> bool:
    """The SDK logs a request that it cannot parse with the parser's words, and these quote the request."""
    if record.name.startswith("a2a."):
        if record.exc_info and isinstance(record.exc_info[1], (ParseError, ValidationError)):
            record.exc_info = None
        if record.levelno == logging.WARNING and isinstance(record.args, tuple) and len(record.args) == REQUEST_ERROR:
            record.msg, record.args = "Request Error (ID: %s): Code=%s", record.args[:2]
    return True
