"""The memory that a server has for itself (private pages of its process): idle, and how much more it holds then.

*Parked tasks* wait for an answer. *Open streams* are subscribers, of ten tasks that run and put nothing out.
*Finished tasks* are short ones that have ended; what remains of them in a server whose store is elsewhere is a leak, or
a cache that has not filled yet. Stores in memory hold the tasks themselves, in the same process. PostgreSQL's own
processes are not counted, nor is the page cache of a directory.

Each part has servers of its own, warm from 100 short tasks, and is done once: memory varies little between rounds, and
thousands of tasks take their time. All servers are read together, two seconds after the last task.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

from tests.benchmark.load import clients_of, closed_loop
from tests.benchmark.subjects import OURS, SDK, serving

TITLE = "Memory"
SHORT = "5 64"
CONCURRENCY = 16
SUBJECTS = {
    name: {**OURS, **SDK}[name]
    for name in ("a2a-gcs, memory", "a2a-gcs, directory", "a2a-sdk, in memory", "a2a-sdk, PostgreSQL")
}
IDLE, PARKED, STREAMS, FINISHED = "idle server", "parked tasks", "open streams", "finished tasks"
RUNNING = 10
WARM_UP = 100
QUIET_SECONDS = 2.0
"""What a server writes behind its answers, and frees, is done by then."""
_REMEMBERED = "A host remembers the last 10,000 contexts and ends of tasks, so as not to read them again; no more."
_QUEUES = "Each subscriber has a queue of its own beside a2a-sdk's, so that one that lags holds up nobody."
REASONS = {
    "open streams": _QUEUES,
    "open streams: each": _QUEUES,
    "finished tasks": _REMEMBERED,
    "finished tasks: per 1,000": _REMEMBERED,
}


def run(bench):
    subjects = {name: SUBJECTS[name] for name in (list(SUBJECTS)[1:3] if bench.smoke else SUBJECTS)}
    for what, (counts, part) in PARTS.items():
        fewer = [count // 10 for count in counts[:2]]
        with serving(subjects, bench.directory) as servers:
            asyncio.run(_measure(bench, what, fewer if bench.smoke else counts, part, servers))
    for name in subjects:
        _each(bench, name)
    bench.reason(IDLE, "More is loaded than in the SDK's server: FastAPI, metrics, workspaces, and what guards tasks.")
    bench.note(
        "A host of a2a-gcs remembers the last 10,000 contexts and ends of tasks, and keeps up to 1,000 directories of "
        "ended tasks; until then finished tasks take memory, whatever the store."
    )


def _each(bench, name):
    """What one more of each takes: between the smallest and the largest count, so that caches are warm."""
    for what, per in ((PARKED, 1000), (STREAMS, 1), (FINISHED, 1000)):
        points = [(one.size, one.median) for one in bench.results.series if (one.what, one.subject) == (what, name)]
        (least, before), (most, after) = min(points), max(points)
        label = f"{what}: {'each' if per == 1 else f'per {per:,}'}"
        bench.record(label, name, (after - before) / (most - least) * per, "MiB")


async def _measure(bench, what, counts, part, servers):
    async with clients_of(servers.values()) as clients, contextlib.AsyncExitStack() as stack:
        loads = {name: part(client, stack) for name, client in zip(servers, clients, strict=True)}
        for name in bench.alternate(loads, "warm-up", rounds=1):
            await loads[name].prepare()
        quiet = QUIET_SECONDS / 10 if bench.smoke else QUIET_SECONDS
        idle = await _private(servers, quiet)
        if what == PARKED:
            for name, memory in idle.items():
                bench.record(IDLE, name, memory, "MiB")
        for before, count in itertools.pairwise((0, *counts)):
            for name in bench.alternate(loads, f"{count:,} {what}", rounds=1):
                await loads[name].add(count - before)
            for name, memory in (await _private(servers, quiet)).items():
                bench.record(what, name, memory - idle[name], "MiB", size=count)


async def _private(servers, quiet):
    """MiB that each server has for itself, so many seconds from now."""
    await asyncio.sleep(quiet)
    return {name: private_bytes(server.pid) / (1 << 20) for name, server in servers.items()}


def private_bytes(pid):
    """Bytes of a process that are no other's too; Linux."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


class Finished:
    """Short tasks that have ended."""

    def __init__(self, client, stack):
        self._client = client
        self._stack = stack

    async def prepare(self):
        await self._all(self._finish, WARM_UP)

    async def add(self, count):
        await self._all(self._finish, count)

    async def _all(self, operation, count):
        done = await closed_loop(operation, count=count, concurrency=CONCURRENCY)
        assert not done.errors, done.errors[:3]

    async def _finish(self, _):
        await self._client.send(SHORT)


class Parked(Finished):
    """Tasks that wait for an answer."""

    async def add(self, count):
        await self._all(self._ask, count)

    async def _ask(self, _):
        task = await self._client.send("ask")
        assert self._client.dialect.state(task) == "input_required", task


class Streams(Finished):
    """Subscribers, in turn of each of some tasks that run; all stay to the end."""

    async def prepare(self):
        await super().prepare()
        running = [await self._opened(self._client.events("wait")) for _ in range(RUNNING)]
        self._running = itertools.cycle([self._client.dialect.task(event)["id"] for event in running])

    async def add(self, count):
        for _ in range(count):
            await self._opened(self._client.subscribe(next(self._running)))

    async def _opened(self, events):
        self._stack.push_async_callback(events.aclose)
        return await anext(events)


PARTS = {
    PARKED: ((250, 500, 1000), Parked),
    STREAMS: ((50, 100, 200), Streams),
    FINISHED: ((500, 1000, 2000), Finished),
}
