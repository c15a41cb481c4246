"""HTTP in and out: aiohttp requests to calls, replies to responses, and the faults of the wire."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import web

from fake_gcs.api import ApiError, Call, Reply
from fake_gcs.blobs import SMALL
from fake_gcs.gateway import Gateway, fault_reply
from fake_gcs.routing import CONTROL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fake_gcs.faults import Fault, Scripted

_POLL_SECONDS = 0.05


class Wire:
    """Serves HTTP requests by a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._state = gateway.state

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        started = time.monotonic()
        base_url = f"http://{request.headers.get('Host', '')}"
        try:
            found, call = self._gateway.understand(request.method, request.message.path, request.headers, base_url)
        except ApiError as error:
            return await _send(request, error.reply(Call("")))
        call.body = _body(request)
        if found.operation == CONTROL:
            return await _send(request, await self._gateway.answer(call, request.method, found.path))
        try:
            await self._gateway.prepare(call)
            scripted = self._state.faults.decide(call.operation, call.bucket, call.key)
            response, sent = await self._serve(request, call, scripted)
        except ConnectionError:
            response, sent = _abort(request), 0  # the client has gone
        self._gateway.note(call, response.status, started, sent)
        return response

    async def _serve(
        self, request: web.BaseRequest, call: Call, scripted: Scripted | None
    ) -> tuple[web.StreamResponse, int]:
        """Answers a call under a fault, and says how many bytes of body went out."""
        reply = await _before(request, call, scripted)
        if isinstance(reply, web.StreamResponse):
            return reply, 0
        if reply is None:
            half = self._state.latency.seconds(call.operation) / 2
            await _pause(half)
            reply = await self._gateway.answer(call)
            await _pause(half + self._state.latency.body_seconds(call.received + (reply.length or 0)))
        await call.drain()
        if scripted is not None:
            action = scripted.fault.action
            if action == "commit_and_drop":
                scripted.served += 1
                return _abort(request), 0
            if action in {"cut", "stall"}:
                return await _send_partly(request, reply, scripted)
        response = await _send(request, reply)
        return response, reply.length if reply.length is not None else len(reply.body)


async def _before(request: web.BaseRequest, call: Call, scripted: Scripted | None) -> Reply | web.StreamResponse | None:
    """Serves a fault that strikes before anything is done; None goes on."""
    if scripted is None:
        return None
    fault = scripted.fault
    if fault.action == "cut_request":
        scripted.served += await _reads(call, fault.after_bytes or 0)
        return _abort(request)
    if fault.action not in {"status", "delay", "drop", "stall"} or (fault.action == "stall" and fault.after_bytes):
        return None
    scripted.served += 1
    if fault.action == "status":
        await call.drain()
        return fault_reply(call, fault.status)
    if fault.action == "delay":
        await asyncio.sleep(fault.seconds or 0)
        return None
    if fault.action == "stall":
        await _stall(request, fault)
    return _abort(request)


async def _reads(call: Call, size: int) -> bool:
    """Reads a body up to size bytes; answers False when it ended before."""
    if size == 0:
        return True
    async for _ in call.pieces():
        if call.received >= size:
            return True
    return False


async def _stall(request: web.BaseRequest, fault: Fault) -> None:
    """Waits until the time is up or the client has left, which only asking tells."""
    deadline = time.monotonic() + (float("inf") if fault.seconds is None else fault.seconds)
    while time.monotonic() < deadline and request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 - no event tells that a client has left
        await asyncio.sleep(_POLL_SECONDS)


async def _send_partly(request: web.BaseRequest, reply: Reply, scripted: Scripted) -> tuple[web.StreamResponse, int]:
    """Sends the head and after_bytes of the body, then nothing more.

    A body that is not longer than that passes whole, and the fault has not been served.
    """
    allowed = scripted.fault.after_bytes or 0
    pieces = [piece async for piece in reply.stream] if reply.stream is not None else [reply.body]
    body = b"".join(pieces)
    if len(body) <= allowed:
        return await _send(request, Reply(reply.status, reply.headers, body)), len(body)
    scripted.served += 1
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[:allowed])
    if scripted.fault.action == "stall":
        await _stall(request, scripted.fault)
    if request.transport is not None:
        request.transport.close()
    return response, allowed


async def _send(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    if reply.stream is None:
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body or None)
    if request.method == "HEAD" or (reply.length is not None and reply.length <= SMALL):
        body = b"".join([piece async for piece in reply.stream])
        return web.Response(status=reply.status, headers=reply.headers, body=body)
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = reply.length
    await response.prepare(request)
    async for piece in reply.stream:
        await response.write(piece)
    await response.write_eof()
    return response


def _abort(request: web.BaseRequest) -> web.StreamResponse:
    """Breaks the connection off; the response that is returned cannot be sent any more."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=499)


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    async for piece in request.content.iter_any():
        yield piece


async def _pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
