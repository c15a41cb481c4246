"""Serves content that lies beside tasks: `GET /files/<task>/<sha256>` (decision 0006).

The root of the caller counts as for every other request, so another owner's
content is not there. Whatever an agent made is a download, never a page of this origin.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import structlog
from a2a.server.routes.common import DefaultServerCallContextBuilder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from a2a_gcs.errors import CorruptRecord, InvalidId, NotFound, StoreError
from a2a_gcs.host.byte_range import Unsatisfiable, byte_range
from a2a_gcs.host.roots import Roots
from a2a_gcs.host.stack import HostedAgent, Stack
from a2a_gcs.layout import TaskRef, decode_segment, file_reference, parse_file_reference
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import ObjectInfo
from a2a_gcs.tasks.files import TaskFiles

log = structlog.get_logger(__name__)

_SAFE = frozenset(
    {"application/gzip", "application/json", "application/pdf", "application/zip"}
    | {"image/gif", "image/jpeg", "image/png", "image/webp", "text/csv", "text/markdown", "text/plain"}
)
"""Types that no browser runs anything of; all others are told as application/octet-stream."""
_SAFE_KINDS = ("audio/", "font/", "video/")

_ALWAYS = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, max-age=300",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Vary": "Authorization",
    "X-Content-Type-Options": "nosniff",
}


def file_routes(roots: Roots, agent: HostedAgent) -> list[BaseRoute]:
    """The route of one agent's files, below where its other routes are."""
    callers = DefaultServerCallContextBuilder()

    async def endpoint(request: Request) -> Response:
        context = callers.build(request)
        context.tenant = request.query_params.get("tenant", "")
        try:
            return await _answer(roots.of(agent, context), request)
        except (InvalidId, NotFound, CorruptRecord):
            return _problem(404, "there is no such file")
        except StoreError as e:
            log.warning("file.not_read", error=str(e))
            return _problem(503, "the bucket cannot be reached right now; try again in a few seconds")

    return [Route("/files/{task}/{name}", endpoint, methods=["GET"])]


@dataclass(frozen=True)
class _File:
    """A content that is there."""

    files: TaskFiles
    ref: TaskRef
    name: str
    info: ObjectInfo

    @classmethod
    async def find(cls, stack: Stack, task: str, name: str) -> _File:
        """Finds a content by the segments of a path. Raises NotFound and other StoreErrors."""
        task_id, known = decode_segment(task), parse_file_reference(file_reference(name))
        context_id = await stack.records.context_of(task_id) if task_id and known else None
        if task_id is None or known is None or context_id is None:
            raise NotFound(task)
        ref = TaskRef(context_id, task_id)
        return cls(stack.files, ref, known, await stack.files.head(ref, known))

    def chunks(self) -> AsyncIterator[bytes]:
        return self.files.stream(self.ref, self.name, self.info.version)


async def _answer(stack: Stack, request: Request) -> Response:
    file = await _File.find(stack, request.path_params["task"], request.path_params["name"])
    tag, size = f'"{file.name}"', file.info.size
    headers = {**_ALWAYS, "ETag": tag}
    if {tag, "*"} & _tags(request.headers.get("if-none-match")):
        return Response(status_code=304, headers=headers)
    current = request.headers.get("if-range", tag) == tag
    try:
        part = byte_range(request.headers.get("range"), size) if current else None
    except Unsatisfiable:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    wanted = range(size) if part is None else part
    headers |= {"Content-Length": str(len(wanted)), "Content-Type": safe_type(file.info.content_type)}
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    status = 200 if part is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    chunks = _cut(file.chunks(), wanted, size)
    first = await anext(chunks, b"")  # so that a bucket that does not answer is a 503, not a broken answer
    return StreamingResponse(_again(first, chunks), status_code=status, headers=headers)


async def _cut(chunks: AsyncIterator[bytes], wanted: range, size: int) -> AsyncGenerator[bytes, None]:
    """The wanted bytes of a content. Reading stops with the last of them, unless only the checksum is left."""
    position = 0
    async with closing(chunks):
        async for chunk in chunks:
            begin, end = max(wanted.start - position, 0), max(wanted.stop - position, 0)
            position += len(chunk)
            if chunk[begin:end]:
                yield chunk[begin:end]
            if wanted.stop <= position < size:
                return


async def _again(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(rest):
        if first:
            yield first
        async for chunk in rest:
            yield chunk


def safe_type(content_type: str) -> str:
    """The type of a content if nothing of that type runs in a browser, else application/octet-stream."""
    essence = content_type.partition(";")[0].strip().lower()
    if essence in _SAFE or essence.startswith(_SAFE_KINDS):
        return "text/plain; charset=utf-8" if essence == "text/plain" else essence
    return "application/octet-stream"


def _tags(header: str | None) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in (header or "").split(",")}


def _problem(status: int, message: str) -> Response:
    return JSONResponse({"error": {"code": status, "message": message}}, status_code=status)
