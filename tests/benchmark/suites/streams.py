"""A stream is one message, answered over SSE by chunks of 256 bytes as fast as the agent can put them out, and the end.

Every server does the same work: each stream is read for all of its chunks and its end, and what is in the store
afterwards for the same. Throughput: three streams of 200 chunks at a time, in every round; two of 1,000 at a time, once.
Alone: one stream at a time, of 200 chunks in every round, and of 100, 300 and 1,000 chunks in two rounds, which show how
cost grows. The time between two events: chunks that come in one read share the time since the read before, as they
came while the client was busy. The longest pause is between two reads. Bytes written are those of all requests for the
stream and its task, also behind its end, by the emulator's meter.
"""

from __future__ import annotations

import asyncio
import statistics

from fake_gcs.meter import billing_class
from tests.benchmark.load import clients_of
from tests.benchmark.subjects import OURS, PEERS, SDK, compared, serving
from tests.benchmark.work import Work, verified
from tests.support.cost import Meter

TITLE = "Streams"
REFERENCE = "a2a-sdk, PostgreSQL"
CHUNK = 256
USUAL, AT_A_TIME = Work(200, CHUNK), 3
LONG, LONG_AT_A_TIME = Work(1000, CHUNK), 2
SIZES = (100, 300, 1000)
SMOKE_SIZES = (20, 40, 80)
SIZES_ROUNDS = 2

IN_MEMORY = "a2a-sdk, in memory"
LOCAL = ("a2a-gcs, memory", "a2a-gcs, directory")
EMULATED = "a2a-gcs, emulator"
THROUGHPUT = "streams of 200 chunks"
BETWEEN = "between two events of a stream"
WRITTEN = "bytes written for one stream"


def run(bench):
    with serving(compared(bench, OURS, SDK, PEERS), bench.directory) as servers:
        asyncio.run(_measure(bench, servers))
    _tell(bench)


async def _measure(bench, servers):
    async with clients_of(servers.values()) as clients:
        named = dict(zip(servers, clients, strict=True))
        for client in clients:
            await verified(client)
        meters = {name: Meter(one.emulator, one.bucket) for name, one in servers.items() if one.emulator}
        usual = Work(40, CHUNK) if bench.smoke else USUAL
        alone = {name: [] for name in named}
        for number, name in enumerate(bench.alternate(named)):
            turn, client = number // len(named), named[name]
            await _parallel(bench, name, client, THROUGHPUT, usual, AT_A_TIME)
            _between(bench, name, await usual.stream(client))
            if turn == 0 and not bench.smoke:
                await _parallel(bench, name, client, "streams of 1,000 chunks", LONG, LONG_AT_A_TIME)
            if turn < SIZES_ROUNDS:
                alone[name] += await _alone(bench, name, client)
        for name, meter in meters.items():
            _written(bench, name, alone[name], (await asyncio.to_thread(meter.rest)).requests)


async def _parallel(bench, name, client, what, work, count):
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(work.stream(client) for _ in range(count)))
    seconds = asyncio.get_running_loop().time() - began
    bench.record(what, name, count * work.chunks / seconds, "chunks/s", better="higher")


def _between(bench, name, stream):
    gaps = sorted(stream.gaps)
    bench.record(f"{BETWEEN}, p50", name, statistics.median(gaps) * 1000, "ms")
    bench.record(f"{BETWEEN}, p95", name, gaps[len(gaps) * 95 // 100] * 1000, "ms")
    bench.record("longest pause of a stream", name, stream.longest_pause * 1000, "ms")


async def _alone(bench, name, client):
    """One stream of each size: (size, task)s, each task read once more from the server."""
    found = []
    for chunks in SMOKE_SIZES if bench.smoke else SIZES:
        work = Work(chunks, CHUNK)
        stream = await work.stream(client)
        bench.record("one stream", name, stream.seconds, "s", size=chunks)
        bench.record("bytes sent for one stream", name, stream.sent, "bytes", size=chunks)
        task = await client.get(stream.task_id)
        work.check(client.dialect, task)
        found.append((chunks, task))
    return found


def _written(bench, name, tasks, requests):
    for chunks, task in tasks:
        own = [one for one in requests if task["id"] in one["key"] or task["contextId"] in one["key"]]
        bench.record(WRITTEN, name, sum(one["bytes_in"] for one in own), "bytes", size=chunks)
        classes = sum(billing_class(one["operation"]) == "A" for one in own)
        bench.record("class A requests of one stream", name, classes, "requests", size=chunks)


def _tell(bench):
    for name in LOCAL:
        bench.aim(
            f"Streams of 200 chunks ({name}) over those of {REFERENCE}",
            bench.ratio(THROUGHPUT, name, REFERENCE),
            at_least=5,
        )
        bench.aim(
            f"Streams of 200 chunks ({name}) over those of {IN_MEMORY}",
            bench.ratio(THROUGHPUT, name, IN_MEMORY),
            at_least=0.5,
        )
        bench.aim(
            f"Time between two events, p50 ({name}) over that of {IN_MEMORY}",
            bench.ratio(f"{BETWEEN}, p50", name, IN_MEMORY),
            at_most=1.3,
        )
    largest = max(SMOKE_SIZES if bench.smoke else SIZES)
    bench.aim(
        f"Bytes written for a stream of {largest:,} chunks over its output ({EMULATED})",
        bench.median(WRITTEN, EMULATED, largest) / (largest * CHUNK),
        at_most=3,
    )
    bench.note(
        "Two puts an event write the same two objects again and again. The emulator takes any number of such writes here, "
        "cloud storage one a second (FACTS 1): there, a stream of 1,000 chunks would take a quarter of an hour or fail."
    )
    bench.note(
        "fasta2a's one worker runs one stream after another, and keeps the artifact at the end. a2akit keeps chunks ten "
        "at a time, and drops events for a client that falls more than 200 behind; none were dropped here."
    )
