"""What the gateway of the emulator costs: puts and gets of objects of 2,000 bytes, 16 requests in flight.

The plain emulator is on its filesystem backend, as the one behind the gateway is; its memory backend is shown, too.
Each round puts so many new objects, and gets each of them; what is told is the time of all of them.
"""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp

from fake_gcs.process import FakeGcs
from fake_gcs.server import FakeGcsServer, create_bucket
from tests.benchmark.load import closed_loop

TITLE = "The emulator's gateway"
REFERENCE = "plain emulator, filesystem"
GATEWAY = "gateway"
BUCKET = "bench"
BODY = b"x" * 2000
CONCURRENCY = 16
LIMITS = {"put": 2.0, "get": 4.0}


def run(bench):
    sizes = (10, 20, 40) if bench.smoke else (50, 150, 450)
    with contextlib.ExitStack() as stack:
        servers = {
            GATEWAY: stack.enter_context(FakeGcs.start(options=["--log-level=error"])).url,
            REFERENCE: stack.enter_context(FakeGcsServer()).url,
            "plain emulator, memory": stack.enter_context(FakeGcsServer(memory=True)).url,
        }
        for url in servers.values():
            create_bucket(url, BUCKET)
        asyncio.run(_measure(bench, servers, sizes))
    for operation, limit in LIMITS.items():
        ratio = bench.ratio(f"{operation} of all objects", GATEWAY, REFERENCE, sizes[-1])
        bench.aim(f"A {operation} through the gateway, to one of the plain emulator", ratio, at_most=limit)


async def _measure(bench, servers, sizes):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for url in servers.values():
            await _round(session, url, "warm", sizes[0])
        for number, name in enumerate(bench.alternate(servers)):
            for size in sizes:
                seconds = await _round(session, servers[name], f"{number}-{size}", size)
                for operation, taken in seconds.items():
                    bench.record(f"{operation} of all objects", name, taken, "s", size=size)


async def _round(session, url, prefix, count):
    """Seconds of the puts and of the gets of so many objects."""

    async def put(number):
        params = {"uploadType": "media", "name": f"{prefix}/{number}", "ifGenerationMatch": "0"}
        async with session.post(f"{url}/upload/storage/v1/b/{BUCKET}/o", params=params, data=BODY) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()

    async def get(number):
        async with session.get(f"{url}/storage/v1/b/{BUCKET}/o/{prefix}%2F{number}?alt=media") as answer:
            assert answer.status == 200, await answer.text()
            assert len(await answer.read()) == len(BODY)

    done = {
        name: await closed_loop(one, count=count, concurrency=CONCURRENCY) for name, one in (("put", put), ("get", get))
    }
    assert not any(one.errors for one in done.values()), [one.errors[:3] for one in done.values()]
    return {name: one.seconds for name, one in done.items()}
