"""A short task is one message, answered by five chunks of 64 bytes and the end, over a blocking send.

Every server does the same work, and each answer is read for it. All servers run throughout, and take turns of about a
second. Closed loop: 16 tasks under way at any time, each in a context of its own. Open loop, in one round: tasks come
at random times, at half of the rate that a2a-sdk on PostgreSQL reaches, and a latency counts from when a task was due.
How cost grows: the seconds of all turns together, after a quarter, half and all of the tasks that a server has done.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import statistics
import time

from a2a_gcs.objectstore.gcs import GCSStore
from a2a_gcs.objectstore.port import IF_ABSENT
from tests.benchmark.load import Client, clients_of, closed_loop, open_loop
from tests.benchmark.runner import SEED
from tests.benchmark.subjects import (
    OURS,
    PEERS,
    SDK,
    TWO_PUTS,
    WITHOUT_FSYNC,
    compared,
    serving,
    two_puts_on_the_emulator,
)
from tests.benchmark.work import Work, verified
from tests.support.cost import Meter

TITLE = "Short tasks"
REFERENCE = "a2a-sdk, PostgreSQL"
_KEPT = (
    "Peers in memory keep nothing: their end is the end of every task. a2a-sdk's own run of a task is a part of ours; "
    "a2akit and fasta2a do without it, and a2akit brings uvloop and httptools."
)
REASONS = {
    "short tasks": _KEPT,
    "latency p50, closed loop": _KEPT,
    "latency p50, open loop": _KEPT,
    "latency p95, open loop": _KEPT,
    "seconds for all tasks so far": _KEPT,
    "Short tasks (a2a-gcs, directory)": "Four writes to the directory come before each answer. They are made in "
    "groups, by a thread that shares the interpreter with the tasks.",
}
SHORT = Work(5, 64)
CONCURRENCY = 16
FEW = 4
FEWEST = 25
"""Tasks of the smallest size at which growth is looked at."""

EMULATED = "a2a-gcs, emulator"
IN_MEMORY = "a2a-sdk, in memory"
WRITES = "small writes"
EMULATOR = "the emulator by itself"
UNDER_LOAD = "class A requests of a short task, 16 under way"


def run(bench):
    with serving(compared(bench, OURS, SDK, WITHOUT_FSYNC, PEERS), bench.directory) as servers:
        asyncio.run(_measure(bench, servers))
    if not bench.smoke:
        _with_the_limit(bench)
    _tell(bench)


async def _measure(bench, servers):
    async with clients_of(servers.values()) as clients:
        named = dict(zip(servers, clients, strict=True))
        for client in clients:
            await verified(client)
            await _closed(client, count=CONCURRENCY if bench.smoke else 2 * CONCURRENCY)
        meters = {name: Meter(one.emulator, one.bucket) for name, one in servers.items() if one.emulator}
        await _alone(bench, named, meters)
        ends = await _closed_loops(bench, named, servers[EMULATED].emulator)
        for name, requests in (await _class_a(meters)).items():
            bench.record(UNDER_LOAD, name, requests / len(ends[name]), "requests")
        await _open_loops(bench, named)
    for name, times in ends.items():
        _growth(bench, name, times)


async def _alone(bench, named, meters):
    """The requests of a task with nothing beside it."""
    await _class_a(meters)
    for name in meters:
        for _ in range(FEW):
            await SHORT.send(named[name])
    for name, requests in (await _class_a(meters)).items():
        bench.record("class A requests of a short task, alone", name, requests / FEW, "requests")


async def _class_a(meters):
    """By server, the class A requests since the last call, once they have come to an end."""
    costs = await asyncio.gather(*(asyncio.to_thread(meter.rest) for meter in meters.values()))
    return {name: cost.of_class("A") for name, cost in zip(meters, costs, strict=True)}


async def _closed_loops(bench, named, emulator):
    """Measures rates, and answers for each server when its tasks ended, on a clock that runs in its own turns only."""
    seconds = 0.2 if bench.smoke else 1.2
    ends = {name: [] for name in named}
    spent = dict.fromkeys(named, 0.0)
    for name in bench.alternate([*named, EMULATOR], "closed loop"):
        if name == EMULATOR:
            bench.record(WRITES, EMULATOR, await _write_rate(emulator, seconds), "writes/s", better="higher")
            continue
        done = await _closed(named[name], seconds=seconds)
        bench.record("short tasks", name, done.rate, "tasks/s", better="higher")
        bench.record("latency p50, closed loop", name, statistics.median(done.latencies) * 1000, "ms")
        ends[name] += [spent[name] + end for end in done.ends]
        spent[name] += done.seconds
    return ends


async def _closed(client, **amount):
    done = await closed_loop(lambda _: SHORT.send(client), concurrency=CONCURRENCY, **amount)
    assert not done.errors, (client.url, done.errors[:3])
    return done


async def _write_rate(emulator, seconds):
    """Writes of 512 bytes a second that the emulator takes with nothing else to do, each to a new object."""
    store, numbers = GCSStore(emulator.create_bucket(), emulator=emulator.url), itertools.count()
    try:

        async def write(_):
            await store.put(f"writes/{next(numbers)}", bytes(512), IF_ABSENT)

        await closed_loop(write, concurrency=CONCURRENCY, count=CONCURRENCY)
        return (await closed_loop(write, concurrency=CONCURRENCY, seconds=seconds)).rate
    finally:
        await store.close()


async def _open_loops(bench, named):
    rate = bench.median("short tasks", REFERENCE) / 2
    seconds = max(0.5 if bench.smoke else 3, 2 * FEW / rate)
    for name, client in named.items():
        done = await open_loop(lambda _, c=client: SHORT.send(c), rate=rate, seconds=seconds, seed=SEED)
        assert not done.errors, (name, done.errors[:3])
        ordered = sorted(done.latencies)
        bench.record("latency p50, open loop", name, ordered[len(ordered) // 2] * 1000, "ms")
        bench.record("latency p95, open loop", name, ordered[len(ordered) * 95 // 100] * 1000, "ms")
    bench.note(f"The open loop sends {rate:.1f} tasks a second for {seconds:.1f} s.")


def _growth(bench, name, ends):
    doublings = math.floor(math.log2(len(ends) / FEWEST)) if len(ends) >= FEWEST else -1
    for doubling in range(max(0, doublings - 2), doublings + 1):
        size = FEWEST * 2**doubling
        bench.record("seconds for all tasks so far", name, ends[size - 1], "s", size=size)


def _with_the_limit(bench):
    """One task at a time where the emulator holds to one write a second to an object, as cloud storage does."""
    with two_puts_on_the_emulator(bench.directory, write_limit=True) as server:
        seconds = asyncio.run(_one(server))
    bench.note(f"{TWO_PUTS}: held to that, a short task alone took {seconds:.1f} s. a2a-gcs is held to it throughout.")


async def _one(server):
    async with Client(server.url, server.dialect) as client:
        began = time.perf_counter()
        await SHORT.send(client)
        return time.perf_counter() - began


def _tell(bench):
    for name in ("a2a-gcs, memory", "a2a-gcs, directory"):
        bench.aim(
            f"Short tasks ({name}) over those of {REFERENCE}",
            bench.ratio("short tasks", name, REFERENCE),
            at_least=4,
            why="a2a-sdk's own run of a task is the floor, as hosts run it, too: in memory, with nothing to keep, it "
            f"is {bench.ratio('short tasks', IN_MEMORY, REFERENCE):.1f} times as fast as on PostgreSQL. On it come "
            "a claim, a workspace and two records, and in a directory four writes.",
        )
        bench.aim(
            f"Short tasks ({name}) over those of {IN_MEMORY}",
            bench.ratio("short tasks", name, IN_MEMORY),
            at_least=0.5,
        )
    bench.aim(
        f"Short tasks ({EMULATED}) over those of {REFERENCE}",
        bench.ratio("short tasks", EMULATED, REFERENCE),
        at_least=1,
    )
    allowed = bench.median(WRITES, EMULATOR) / bench.median(UNDER_LOAD, EMULATED)
    bench.aim(
        f"Short tasks ({EMULATED}) over what the emulator's write rate allows at our requests for one, 16 under way",
        bench.median("short tasks", EMULATED) / allowed,
        at_least=0.7,
    )
    bench.note(
        "A directory of ours survives the end of every process, and not a loss of power. PostgreSQL and SQLite wait "
        "for the disk with each commit, as they come; what PostgreSQL does without that is a row of its own."
    )
    bench.note(
        "A task that lasts longer than a quarter of a second is kept in between, so with 16 under way on one emulator "
        "a task takes more requests than alone, the more the slower the machine."
    )
    bench.note(
        "fasta2a answers a send before the task has run: it is asked every 2 ms until the task has ended. Its one "
        "worker does one task after another; its storage appends no chunks, so it keeps the artifact at the end."
    )
    bench.note("a2akit keeps chunks ten at a time, or at the end. Of all, it alone comes with uvloop and httptools.")
