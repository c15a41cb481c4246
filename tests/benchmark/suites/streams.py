"""A stream is one message, answered over SSE by chunks of 256 bytes as fast as the agent can put them out, and the end.

Every server does the same work: each stream is read for all of its chunks and its end, and of those that run alone the
task is read from the server once more. All servers run throughout, and take turns.

Throughput: three streams of 200 chunks at a time; two of 1,000 chunks at a time in the first round alone, as some need
long for it. One stream alone: of 200 chunks in every round, of 100 and 1,000 in the first one; together they show how
cost grows. Time between two events: chunks that come in one read share the time since the read before, as they came
while the client was busy; the longest pause is between two reads. Bytes and requests of the store are all those that
the emulator has seen for a stream and its task, also behind its end.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from fake_gcs.meter import billing_class
from tests.benchmark.load import clients_of
from tests.benchmark.subjects import OURS, PEERS, SDK, TWO_PUTS, compared, serving
from tests.benchmark.work import Work, verified
from tests.support.cost import Meter

TITLE = "Streams"
REFERENCE = "a2a-sdk, PostgreSQL"
CHUNK, WIDE = 256, 1024
USUAL, AT_A_TIME = 200, 3
LONG, LONG_AT_A_TIME = 1000, 2
SHORT = 100
SMOKE = {SHORT: 20, USUAL: 40, LONG: 80}

IN_MEMORY = "a2a-sdk, in memory"
LOCAL = ("a2a-gcs, memory", "a2a-gcs, directory")
EMULATED = "a2a-gcs, emulator"
THROUGHPUT = "streams of 200 chunks"
BETWEEN = "between two events of a stream"
WRITTEN = "bytes written for one stream"
_COPIES = (
    "a2a-sdk copies each event and its task for whoever reads, in its own server and below ours, which writes the "
    "event to a journal besides; a2akit and fasta2a do not, and keep chunks ten at a time, or at the end."
)
REASONS = dict.fromkeys(
    (
        THROUGHPUT,
        "streams of 1,000 chunks",
        "one stream",
        f"{BETWEEN}, p50",
        f"{BETWEEN}, p95",
        "longest pause of a stream",
    ),
    _COPIES,
)


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
        done = {name: [] for name in named}
        for number, name in enumerate(bench.alternate(named)):
            first_round = number < len(named)
            rate = await _rate(named[name], _work(bench, USUAL), AT_A_TIME)
            bench.record(THROUGHPUT, name, rate, "chunks/s", better="higher")
            if first_round:
                rate = await _rate(named[name], _work(bench, LONG), LONG_AT_A_TIME)
                bench.record("streams of 1,000 chunks", name, rate, "chunks/s", better="higher")
            for chunks in (SHORT, USUAL, LONG) if first_round else (USUAL,):
                done[name].append(await _alone(bench, name, named[name], _work(bench, chunks)))
        wide = Work(_work(bench, LONG).chunks, WIDE)
        task = await _task_of(named[EMULATED], wide, await wide.stream(named[EMULATED]))
        for name, meter in meters.items():
            requests = (await asyncio.to_thread(meter.rest)).requests
            _written(bench, name, done[name], requests)
            if name == EMULATED:
                _bytes_aim(bench, wide, sum(one["bytes_in"] for one in _of(task, requests)))


def _work(bench, chunks):
    return Work(SMOKE[chunks] if bench.smoke else chunks, CHUNK)


async def _rate(client, work, count):
    """Chunks a second of so many streams at a time."""
    began = time.perf_counter()
    await asyncio.gather(*(work.stream(client) for _ in range(count)))
    return count * work.chunks / (time.perf_counter() - began)


async def _alone(bench, name, client, work):
    """One stream with nothing beside it: its number of chunks, and the task as the server has it afterwards."""
    stream = await work.stream(client)
    bench.record("one stream", name, stream.seconds, "s", size=work.chunks)
    bench.record("bytes sent for one stream", name, stream.sent, "bytes", size=work.chunks)
    if work == _work(bench, USUAL):
        gaps = sorted(stream.gaps)
        bench.record(f"{BETWEEN}, p50", name, statistics.median(gaps) * 1000, "ms")
        bench.record(f"{BETWEEN}, p95", name, gaps[len(gaps) * 95 // 100] * 1000, "ms")
        bench.record("longest pause of a stream", name, stream.longest_pause * 1000, "ms")
    return work.chunks, await _task_of(client, work, stream)


async def _task_of(client, work, stream):
    """As the server has it after the stream."""
    task = await client.get(stream.task_id)
    work.check(client.dialect, task)
    return task


def _written(bench, name, done, requests):
    for chunks, task in done:
        own = _of(task, requests)
        bench.record(WRITTEN, name, sum(one["bytes_in"] for one in own), "bytes", size=chunks)
        classes = sum(billing_class(one["operation"]) == "A" for one in own)
        bench.record("class A requests of one stream", name, classes, "requests", size=chunks)


def _of(task, requests):
    """The requests that were made for a task, and for its context, which has no other."""
    return [one for one in requests if task["id"] in one["key"] or task["contextId"] in one["key"]]


def _bytes_aim(bench, work, written):
    bench.aim(
        f"Bytes written for a stream of {work.chunks:,} chunks of {work.size:,} bytes over its output ({EMULATED})",
        written / work.bytes,
        at_most=3,
        why="Of what is written for so small chunks a quarter is the JSON around them." if work.size == CHUNK else "",
    )


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
            why="Each event is put into the journal's batch, too, and a directory is written by threads of the same "
            "interpreter.",
        )
    work = _work(bench, LONG)
    _bytes_aim(bench, work, bench.median(WRITTEN, EMULATED, work.chunks))
    bench.note(
        f"{TWO_PUTS}: there, a stream of 1,000 chunks takes a quarter of an hour, or fails. "
        "a2a-gcs is held to it here too."
    )
    bench.note(
        "fasta2a's one worker runs one stream after another; its storage appends no chunks, so it keeps the artifact "
        "at the end. a2akit keeps chunks ten at a time. As it comes, it drops what a client has not read 200 events "
        "later, and tells nobody: in one try 532 of 1,000 chunks arrived. Its buffer is set to 4,096 events here."
    )
