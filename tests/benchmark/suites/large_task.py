"""GetTask of a task whose artifact has 0.1, 1 or 10 MB of text, in 20 chunks; the answer is read and parsed.

Seconds are from the request to the parsed answer, one request at a time. The hosts of this product keep all of the text
in the task itself here, as the other servers do: parts of up to 1 MiB, by a setting. By default text beyond 8 MiB of an
artifact would be kept beside its task, and a client would get an address in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from tests.benchmark.load import clients_of
from tests.benchmark.subjects import SDK, compared, gateway, host, serving
from tests.support.places import Place

TITLE = "GetTask of large tasks"
CHUNKS = 20
SIZES = (100, 1000, 10_000)
"""Kilobytes of text."""
GETS = 5
INLINE = 1 << 20
GET = "GetTask"


def run(bench):
    with serving(compared(bench, _OURS, SDK), bench.directory) as servers:
        asyncio.run(_measure(bench, servers))
    bench.reason(GET, "Each GetTask reads and parses task.json again; the store in memory has the task as an object.")


def _host(place, directory):
    return host(place, directory, inline_part_bytes=INLINE)


@contextlib.contextmanager
def _on_the_emulator(directory):
    with gateway() as (_, place), _host(place, directory) as server:
        yield server


_OURS = {
    "a2a-gcs, memory": lambda directory: _host(Place("memory"), directory),
    "a2a-gcs, directory": lambda directory: _host(Place(f"file:{directory / 'store'}"), directory),
    "a2a-gcs, emulator": _on_the_emulator,
}


async def _measure(bench, servers):
    async with clients_of(servers.values()) as clients:
        named = dict(zip(servers, clients, strict=True))
        for size in SIZES[:2] if bench.smoke else SIZES:
            tasks = {name: await _made(client, size) for name, client in named.items()}
            for name in bench.alternate(named, f"{size:,} kB"):
                seconds = await _seconds(named[name], tasks[name])
                bench.record(GET, name, seconds, "s", size=size)


async def _made(client, size):
    """The id of a task with so many kB in its artifact, which every server holds itself."""
    total = size * 1000
    task_id = (await client.send(f"{CHUNKS} {total // CHUNKS}"))["id"]
    parts = [part for artifact in (await client.get(task_id))["artifacts"] for part in artifact["parts"]]
    assert sum(len(part["text"]) for part in parts) == total
    return task_id


async def _seconds(client, task_id):
    """The mean of some requests: one alone may be disturbed."""
    began = time.perf_counter()
    for _ in range(GETS):
        await client.get(task_id)
    return (time.perf_counter() - began) / GETS
