"""What a task holds, handed out as it is: images in a sandbox, anything else as a download."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from a2a_gcs.console.files import image_type
from a2a_gcs.console.security import DATA_POLICY


class Streamed(StreamingResponse):
    """A body that comes in chunks, from what the stack holds open until it has gone out, or its reader has left."""

    def __init__(
        self,
        chunks: AsyncIterable[bytes],
        *,
        media_type: str,
        name: str = "",
        size: int | None = None,
        stack: AsyncExitStack | None = None,
    ) -> None:
        headers = _headers(name)
        if size is not None:
            headers["Content-Length"] = str(size)
        super().__init__(chunks, media_type=media_type, headers=headers)
        self._stack = stack or AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            if scope["method"] == "HEAD":
                await send_headers(self, send)
            else:
                await super().__call__(scope, receive, send)


async def send_headers(response: Response, send: Send) -> None:
    """Answers HEAD with what GET would answer: without reading gigabytes, or waiting for an end, for nobody."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": b""})


async def again(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Chunks of which the first has been looked at."""
    yield first
    async for chunk in rest:
        yield chunk


def as_it_is(body: bytes, *, name: str, media_type: str) -> Response:
    """Bytes of a task: what looks like an image is one, JSON and text are text, and the rest is a download."""
    if shown := shown_type(body[:16], media_type):
        return Response(body, media_type=shown, headers=_headers(""))
    return Response(body, media_type="application/octet-stream", headers=_headers(name))


def shown_type(head: bytes, media_type: str = "") -> str:
    """The type by which a browser may show something itself; empty for a download."""
    return image_type(head) or ("text/plain" if media_type in {"text/plain", "application/json"} else "")


def _headers(name: str) -> dict[str, str]:
    headers = {"Content-Security-Policy": DATA_POLICY}
    if name:
        file = name.rpartition("/")[2].encode("utf-8", "replace").decode()
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file, safe='')}"
    return headers
