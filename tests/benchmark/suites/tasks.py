"""A short task is one message, answered by five chunks of 64 bytes and the end, over a blocking send.

Closed loop: 16 tasks under way at any time, each in a context of its own. Open loop: tasks come at random times, at
half of the rate that a2a-sdk on PostgreSQL reaches, and a latency counts from when a task was due.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics

from tests.benchmark.load import clients_of, closed_loop
from tests.benchmark.subjects import OURS, SDK

TITLE = "Short tasks"
SHORT = "5 64"
CONCURRENCY = 16


def run(bench):
    subjects = {**OURS, **SDK}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(start(bench.directory)) for name, start in subjects.items()}
        asyncio.run(_measure(bench, servers))


async def _measure(bench, servers):
    count = 32 if bench.smoke else 400
    async with clients_of(servers.values()) as clients:
        named = dict(zip(servers, clients, strict=True))
        for client in clients:
            await closed_loop(lambda _, c=client: c.send(SHORT), count=32, concurrency=CONCURRENCY)
        for name in bench.alternate(named):
            client = named[name]
            done = await closed_loop(lambda _, c=client: c.send(SHORT), count=count, concurrency=CONCURRENCY)
            assert not done.errors, (name, done.errors[:3])
            bench.record("short tasks", name, done.rate, "tasks/s", better="higher")
            bench.record("latency p50", name, statistics.median(done.latencies) * 1000, "ms")
