"""One to four hosts over one bucket of the emulator, and over one directory; all of them run, so many are asked.

Throughput: 16 short tasks (five chunks of 64 bytes) under way, spread evenly over the hosts that are asked. All
processes share the machine, so that the sum cannot grow with the hosts beyond its cores; what must not grow is what a
task costs: CPU of all hosts together, and requests (heartbeats and sweeps, which cost by the hour, left out).

Conflicts: 16 clients send into the same context at once, over all four hosts, in several contexts side by side. The
accepted task goes on until everybody else has been refused. Then the next round, in the same contexts. Each task adds
its id to a file of the workspace and answers with the file: a linear history is one in which every answer holds the ids
of the tasks that were accepted before, in their order.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import statistics
import time
from pathlib import Path

from tests.benchmark.load import Refused, clients_of, closed_loop
from tests.benchmark.subjects import gateway, host, together
from tests.support.cost import Meter
from tests.support.places import Place

TITLE = "Many hosts on one bucket"
MOST = 4
CONCURRENCY = 16
SHORT = "5 64"
BUCKET, DIRECTORY = "a2a-gcs, emulator", "a2a-gcs, directory"
RACERS = 16
CONTEXTS = 3
BETWEEN_SECONDS = 1.5
"""Between two tasks of a context: cloud storage takes one write a second to an object."""
TICKS = os.sysconf("SC_CLK_TCK")
REASONS = {
    "CPU of all hosts for a task": "The hosts share two cores with the load and the store, so what is in caches is "
    "lost more often, and each keeps up a heartbeat of its own. The requests of a task stay the same."
}


def run(bench):
    with contextlib.ExitStack() as stack:
        emulator, bucket = stack.enter_context(gateway())
        places = {BUCKET: bucket, DIRECTORY: Place(f"file:{bench.directory / 'store'}")}
        groups = [together(host(place, bench.directory) for _ in range(MOST)) for place in places.values()]
        servers = dict(zip(places, stack.enter_context(together(groups)), strict=True))
        asyncio.run(_measure(bench, servers, Meter(emulator, bucket.uri.removeprefix("gs://"))))
    print([(o.what, o.subject, o.size, o.values) for o in bench.results.series])
    _aims(bench)


async def _measure(bench, servers, meter):
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(clients_of(each)) for name, each in servers.items()}
        for each in clients.values():
            await _tasks(each, 2 * CONCURRENCY)
        done = []
        for count, name in bench.alternate([(n, name) for n in _counts(bench) for name in servers]):
            tasks = await _throughput(bench, name, servers[name], clients[name][:count])
            done += [(count, tasks)] if name == BUCKET else []
        _requests(bench, done, (await asyncio.to_thread(meter.rest)).requests)
        for name, each in clients.items():
            await _conflicts(bench, name, each)


def _counts(bench):
    return (1, 2, MOST) if bench.smoke else range(1, MOST + 1)


async def _tasks(clients, count):
    """What a run of tasks took, and the tasks."""
    tasks = []

    async def one(number):
        tasks.append(await clients[number % len(clients)].send(SHORT))

    done = await closed_loop(one, count=count, concurrency=CONCURRENCY)
    assert not done.errors, done.errors[:3]
    return done, tasks


async def _throughput(bench, name, servers, clients):
    count, hosts = 32 if bench.smoke else 160, len(clients)
    before = _cpu_seconds(servers)
    done, tasks = await _tasks(clients, count)
    bench.record(f"short tasks, {hosts} hosts", name, done.rate, "tasks/s", better="higher")
    bench.record("CPU of all hosts for a task", name, (_cpu_seconds(servers) - before) / count * 1000, "ms", size=hosts)
    bench.record("latency p50, by hosts", name, statistics.median(done.latencies) * 1000, "ms", size=hosts)
    return tasks


def _requests(bench, done, requests):
    """By the ids in their keys: each task has a context of its own."""
    made = collections.Counter(part for one in requests for part in one["key"].split("/")[1:2])
    for hosts, tasks in done:
        count = sum(made[task["contextId"]] + made[task["id"]] for task in tasks)
        bench.record("requests of a task", BUCKET, count / len(tasks), "requests", size=hosts)


def _cpu_seconds(servers):
    """User and system time of the hosts so far."""
    fields = [Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split() for one in servers]
    return sum(int(each[11]) + int(each[12]) for each in fields) / TICKS


async def _conflicts(bench, name, clients):
    rounds = 2 if bench.smoke else bench.rounds
    contexts = [f"{name.rpartition(' ')[2]}-{number}" for number in range(CONTEXTS)]
    histories = {context: [] for context in contexts}
    for number in range(rounds):
        gates = [bench.directory / f"gate-{context}-{number}" for context in contexts]
        found = await asyncio.gather(*(_race(clients, *each) for each in zip(contexts, gates, strict=True)))
        for context, (tasks, refusals) in zip(contexts, found, strict=True):
            bench.record(f"accepted of {RACERS} sends at once", name, len(tasks), "tasks", better="higher")
            bench.record("refused sends: seconds until told", name, statistics.median(refusals), "s")
            histories[context] += tasks
        await asyncio.sleep(BETWEEN_SECONDS)
    broken = sum(not _is_linear(history) for history in histories.values())
    bench.record("histories that are not linear", name, broken, "contexts")


async def _race(clients, context, gate):
    """The tasks that were accepted, and the seconds until each refusal; the gate opens when nobody else waits."""
    sends = [
        asyncio.create_task(_send(clients[number % len(clients)], f"join {gate}", context)) for number in range(RACERS)
    ]
    for count, one in enumerate(asyncio.as_completed(sends), 1):
        if isinstance(await one, float) and count == RACERS - 1:
            gate.touch()
    found = [await one for one in sends]
    return [one for one in found if not isinstance(one, float)], [one for one in found if isinstance(one, float)]


async def _send(client, text, context):
    began = time.monotonic()
    try:
        return await client.send(text, contextId=context)
    except Refused as refused:
        if "-32004" not in str(refused):
            raise
        return time.monotonic() - began


def _is_linear(history):
    ids = [task["id"] for task in history]
    said = [task["artifacts"][0]["parts"][0]["text"].split() for task in history]
    return said == [ids[: number + 1] for number in range(len(ids))]


def _aims(bench):
    last = MOST
    for what in ("CPU of all hosts for a task", "requests of a task"):
        for name in (BUCKET, DIRECTORY):
            with contextlib.suppress(KeyError):
                ratio = bench.median(what, name, last) / bench.median(what, name, 1)
                bench.aim(f"{what}, {last} hosts over one ({name})", ratio, at_most=1.25, unit="times")
    for name in (BUCKET, DIRECTORY):
        accepted = bench.results.of(f"accepted of {RACERS} sends at once", name).values
        bench.aim(f"Most that were accepted of {RACERS} sends at once ({name})", max(accepted), at_most=1)
        bench.aim(f"Fewest that were accepted of them ({name})", min(accepted), at_least=1)
        bench.aim(
            f"Histories that are not linear ({name})", bench.median("histories that are not linear", name), at_most=0
        )
