"""A history is a context whose tasks follow one another; each is a short task of five chunks of 64 bytes.

a2a-gcs starts a task of a context only when the one before has ended, and from the workspace that it left; a2a-sdk's
stores keep nothing of a context but its id. Throughput: histories of 20 tasks, four contexts at a time, in every round.
How cost grows: one history alone, of 5, 20 and 80 tasks, in two rounds. Cloud storage takes one write a second to an
object, and so a context starts one task a second: here the emulator takes any number, and a note tells what it took
when held to that.
"""

from __future__ import annotations

import asyncio
import time
import uuid

from tests.benchmark.load import Client, clients_of
from tests.benchmark.subjects import OURS, SDK, compared, serving
from tests.benchmark.work import Work, verified

TITLE = "Histories"
REFERENCE = "a2a-sdk, PostgreSQL"
SHORT = Work(5, 64)
TASKS = 20
CONTEXTS = 4
LENGTHS = (5, 20, 80)
SMOKE_LENGTHS = (2, 4, 8)
LENGTHS_ROUNDS = 2
LIMITED_TASKS = 6

EMULATED = "a2a-gcs, emulator"
_LINEAR = (
    "Each task claims its context, starts from the files of the one before, and stores its own; those of a2a-sdk have "
    "neither an order nor files."
)
REASONS = {"tasks of histories": _LINEAR, "one history": _LINEAR}


def run(bench):
    with serving(compared(bench, OURS, SDK), bench.directory) as servers:
        emulator = servers[EMULATED].emulator
        with emulator.rules(write_limit=False):
            asyncio.run(_measure(bench, servers))
        if not bench.smoke:
            seconds = asyncio.run(_with_the_limit(servers[EMULATED]))
            bench.note(
                f"Held to one write a second to an object, as by cloud storage, {LIMITED_TASKS} tasks of one context "
                f"took {seconds:.1f} s on the emulator."
            )


async def _measure(bench, servers):
    tasks = 4 if bench.smoke else TASKS
    async with clients_of(servers.values()) as clients:
        named = dict(zip(servers, clients, strict=True))
        for client in clients:
            await verified(client)
            await history(client, 2)
        for number, name in enumerate(bench.alternate(named)):
            client = named[name]
            began = time.perf_counter()
            await asyncio.gather(*(history(client, tasks) for _ in range(CONTEXTS)))
            rate = CONTEXTS * tasks / (time.perf_counter() - began)
            bench.record("tasks of histories", name, rate, "tasks/s", better="higher")
            if number // len(named) >= LENGTHS_ROUNDS:
                continue
            for length in SMOKE_LENGTHS if bench.smoke else LENGTHS:
                began = time.perf_counter()
                await history(client, length)
                bench.record("one history", name, time.perf_counter() - began, "s", size=length)


async def history(client, tasks):
    """So many tasks of one new context, one after another: each a task of its own, in that context."""
    context, seen = str(uuid.uuid4()), set()
    for _ in range(tasks):
        task = await SHORT.send(client, contextId=context)
        assert task["contextId"] == context, task
        seen.add(task["id"])
    assert len(seen) == tasks


async def _with_the_limit(server):
    async with Client(server.url, server.dialect) as client:
        began = time.perf_counter()
        await history(client, LIMITED_TASKS)
        return time.perf_counter() - began
