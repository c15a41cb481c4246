"""batch: up to 100 requests in one, answered in order (cloud.google.com/storage/docs/batch)."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus

from fake_gcs.api import Call, Reply
from fake_gcs.multipart import boundary_of_mixed
from fake_gcs.rules.problems import Invalid

MAX_REQUESTS = 100

Answer = Callable[[str, str, Mapping[str, str], bytes], Awaitable[Reply]]

_BREAK = re.compile(rb"\r?\n\r?\n")


async def run(call: Call, answer: Answer) -> Reply:
    """Answers each part by `answer(method, target, headers, body)` and joins the answers."""
    boundary = boundary_of_mixed(call.headers.get("Content-Type", ""))
    raw = b"".join([piece async for piece in call.pieces()])
    parts = [part.strip(b"\r\n") for part in raw.split(b"--" + boundary)[1:-1]]
    if not parts or len(parts) > MAX_REQUESTS:
        raise Invalid(f"A batch holds 1 to {MAX_REQUESTS} requests, not {len(parts)}.")
    mark = f"batch_{uuid.uuid4().hex}"
    answers = [await _one(part, answer) for part in parts]
    body = b"".join(b"--" + mark.encode() + b"\r\n" + one + b"\r\n" for one in answers) + f"--{mark}--\r\n".encode()
    return Reply(200, {"Content-Type": f"multipart/mixed; boundary={mark}"}, body)


async def _one(part: bytes, answer: Answer) -> bytes:
    outer, _, request = _split(part)
    head, _, body = _split(request.lstrip(b"\r\n"))
    line, _, rest = head.partition(b"\n")
    words = line.decode().split()
    if len(words) < 2:  # noqa: PLR2004 - method and target
        raise Invalid("Failed to parse batch request.")
    reply = await answer(words[0], words[1], _headers(rest), body.rstrip(b"\r\n"))
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    content = reply.body if reply.stream is None else b"".join([piece async for piece in reply.stream])
    lines.append(f"Content-Length: {len(content)}")
    number = _headers(outer).get("content-id", "<>")
    before = f"Content-Type: application/http\r\nContent-ID: <response-{number.strip('<>')}>\r\n\r\n"
    return before.encode() + "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def _split(raw: bytes) -> tuple[bytes, bytes, bytes]:
    found = _BREAK.search(raw)
    return (raw, b"", b"") if found is None else (raw[: found.start()], found.group(), raw[found.end() :])


def _headers(raw: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in raw.decode().splitlines())
    return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}


async def as_body(raw: bytes) -> AsyncIterator[bytes]:
    yield raw
