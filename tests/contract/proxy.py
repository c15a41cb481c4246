"""A scripted HTTP proxy before the emulator: answers, drops, damages and records requests."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

HOP_BY_HOP = {"transfer-encoding", "connection", "content-length", "keep-alive"}


@dataclass
class Seen:
    """A request as it came in."""

    method: str
    target: str  # path and query, still percent-encoded
    headers: dict[str, str]
    body: bytes


@dataclass
class Script:
    """What happens to the next request of this method whose target and headers hold `part`."""

    method: str
    part: str
    status: int | None = None  # answered in place of the emulator
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    forward: bool = False  # the emulator does it, and the answer is lost
    damage: Callable[[bytes], bytes] | None = None  # of the answer's body
    drop_headers: tuple[str, ...] = ()
    before: Callable[[], Awaitable[None]] | None = None  # the emulator is asked
    after: Callable[[], Awaitable[None]] | None = None  # it has answered
    times: int = 1
    served: int = field(default=0, init=False)


class Proxy:
    """Use as `async with Proxy(url) as proxy`; a script that was not served fails the test."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._scripts: list[Script] = []
        self.seen: list[Seen] = []
        self.url = ""

    def script(self, method: str, part: str, **what) -> Script:
        script = Script(method, part, **what)
        self._scripts.append(script)
        return script

    def requests(self, method: str, part: str = "") -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method and part in _text(seen)]

    async def __aenter__(self):
        self._client = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *exc):
        await self._runner.cleanup()
        await self._client.close()
        if exc[0] is None:
            for script in self._scripts:
                assert script.served == script.times, f"not served: {script}"

    async def _handle(self, request):
        seen = Seen(request.method, request.raw_path, dict(request.headers), await request.read())
        self.seen.append(seen)
        script = next(
            (s for s in self._scripts if s.served < s.times and s.method == seen.method and s.part in _text(seen)), None
        )
        if script is not None:
            script.served += 1
            if script.status is not None:
                return web.Response(status=script.status, headers=script.headers, body=script.body)
        if script is not None and script.before is not None:
            await script.before()
        status, headers, body = await self._forward(seen)
        if script is not None and script.after is not None:
            await script.after()
        if script is not None and script.forward:
            request.transport.abort()
            await asyncio.sleep(0)
            return web.Response()
        if script is not None and script.damage is not None:
            body = script.damage(body)
        if script is not None:
            headers = {name: value for name, value in headers.items() if name not in script.drop_headers}
        return web.Response(status=status, headers=headers, body=body)

    async def _forward(self, seen):
        headers = {name: value for name, value in seen.headers.items() if name.lower() not in HOP_BY_HOP | {"host"}}
        async with self._client.request(
            seen.method,
            URL(self._upstream + seen.target, encoded=True),
            headers=headers,
            data=io.BytesIO(seen.body),
            allow_redirects=False,
        ) as answer:
            body = await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
            if "Location" in kept:
                kept["Location"] = kept["Location"].replace(self._upstream, self.url)
            return answer.status, kept, body


def _text(seen: Seen) -> str:
    return seen.target + "\n" + "\n".join(f"{name}: {value}" for name, value in seen.headers.items())
