"""The wire between one host and the bucket: a forwarder that can be cut, and that can hold or lose single requests.

The gateway's faults cannot tell hosts apart; this can, as every host has one of its own.

    wire = await Wire(gateway.url).open()          # the host gets wire.url as STORAGE_EMULATOR_HOST
    held = wire.script("hold", "POST", "task.json")
    await held.reached.wait()                      # the host has sent it; the bucket has not seen it
    held.release()
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from dataclasses import dataclass, field

WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass
class Request:
    """One request, whole.

    Attributes:
        key: The object that it is about, "" if it is about none.
        query: Its parameters.
    """

    method: str
    target: str
    raw: bytes
    body: bytes
    key: str
    query: dict[str, str]


@dataclass
class Script:
    """What is to become of the next request that matches.

    Attributes:
        action: `hold` it until `release`; `lose` its answer, once it is done; `late`: break the connection, and send
            the request only at `release`; `refuse`: break the connection, nothing is done.
        key: Part of the object's key.
        times: How many requests are still to be met.
    """

    action: str
    method: str
    key: str
    times: int = 1
    where: object = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    landed: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 0

    def meets(self, request):
        met = (
            self.times > 0
            and request.method == self.method
            and self.key in request.key
            and (self.where is None or self.where(request))
        )
        self.times -= met
        return met

    def release(self):
        self.released.set()


class Wire:
    """Forwards HTTP/1.1 from one host to the gateway.

    Attributes:
        url: What the host is told.
        whole: False while it is cut: nothing gets through, what is under way breaks off.
        before: The request that came last.
        chance: Called with each request that no script meets; answers what is to become of it.
    """

    def __init__(self, upstream):
        parts = urllib.parse.urlsplit(upstream)
        self._upstream = parts.hostname, parts.port
        self._scripts = []
        self._connections = set()
        self._server = None
        self._later = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self.url = ""
        self.whole = True
        self.before = None
        self.chance = None

    async def open(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def close(self):
        self._server.close()
        self.forget()
        self.cut()
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        while self._connections:  # noqa: ASYNC110 - each ends by itself
            await asyncio.sleep(0.01)

    def script(self, action, method, key, *, times=1, where=None):
        """Adds a script; the first one that meets a request has it. `where` looks at the Request."""
        script = Script(action, method, key, times, where)
        self._scripts.append(script)
        return script

    def forget(self):
        """Drops all scripts; what is held goes on."""
        for script in self._scripts:
            script.times = 0
            script.release()
        self._scripts.clear()

    def cut(self):
        """From now on nothing gets through, and connections break, until it heals."""
        self.whole = False
        self._passes.set()
        for writer in list(self._connections):
            writer.transport.abort()

    def swallow(self):
        """From now on requests are taken and never answered, as by a network that drops packets, until it heals."""
        self._passes.clear()

    def heal(self):
        self.whole = True
        self._passes.set()

    async def _serve(self, reader, writer):
        self._connections.add(writer)
        upstream = None
        try:
            while self.whole and (request := await _read_request(reader)) is not None:
                if upstream is None:
                    upstream = await asyncio.open_connection(*self._upstream)
                    self._connections.add(upstream[1])
                if not await self._pass(request, writer, upstream):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            for one in (writer, *(upstream[1:] if upstream else ())):
                await _abort(one)
                self._connections.discard(one)

    async def _pass(self, request, writer, upstream):
        """Sends a request on and its answer back; False if the connection is to break."""
        script = next((s for s in self._scripts if s.meets(request)), None)
        self.before = request
        action = script.action if script else self.chance(request) if self.chance else None
        if script:
            script.reached.set()
        if action == "refuse":
            return False
        if action == "late" or isinstance(action, float):
            later = asyncio.create_task(self._send_later(request, script, action))
            self._later.add(later)
            later.add_done_callback(self._later.discard)
            return False
        if action == "hold":
            await script.released.wait()
        await self._passes.wait()
        if not self.whole:
            return False
        upstream[1].write(request.raw)
        answer, status = await _read_answer(upstream[0])
        if script:
            script.status = status
            script.landed.set()
        if action == "lose" or not self.whole:
            return False
        writer.write(answer)
        await writer.drain()
        return True

    async def _send_later(self, request, script, action):
        await (asyncio.sleep(action) if script is None else script.released.wait())
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(request.raw)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                _, status = await _read_answer(reader)
                if script:
                    script.status = status
                    script.landed.set()
        finally:
            await _abort(writer)


async def _abort(writer):
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _read_request(reader):
    head, fields = await _read_head(reader)
    if head is None:
        return None
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    raw_body, body = await _read_body(reader, fields, empty=True)
    path, _, query = target.partition("?")
    params = dict(urllib.parse.parse_qsl(query))
    return Request(method, target, head + raw_body, body, _key_of(path, params, body), params)


def _key_of(path, params, body):
    if "/o/" in path:
        return urllib.parse.unquote(path.split("/o/", 1)[1].partition("/compose")[0])
    if params.get("name"):
        return params["name"]
    if params.get("uploadType") == "multipart":
        with contextlib.suppress(ValueError, KeyError):
            return json.loads(body.split(b"\r\n\r\n", 1)[1].split(b"\r\n--", 1)[0])["name"]
    return params.get("prefix", "")


async def _read_answer(reader):
    head, fields = await _read_head(reader)
    if head is None:
        raise ConnectionResetError
    status = int(head.split(b" ", 2)[1])
    raw_body = b"" if status in (204, 304) else (await _read_body(reader, fields, empty=False))[0]
    return head + raw_body, status


async def _read_head(reader):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None, {}
    lines = head.decode("latin-1").split("\r\n")[1:]
    return head, {n.strip().lower(): v.strip() for n, _, v in (line.partition(":") for line in lines if line)}


async def _read_body(reader, fields, *, empty):
    """The body as it was sent, and as it is meant."""
    if fields.get("transfer-encoding", "").lower() == "chunked":
        raw, body = b"", b""
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            piece = await reader.readexactly(size + 2)
            raw, body = raw + line + piece, body + piece[:-2]
            if size == 0:
                return raw, body
    if "content-length" in fields:
        body = await reader.readexactly(int(fields["content-length"]))
        return body, body
    body = b"" if empty else await reader.read()
    return body, body
