"""Counted by the emulator's gateway, which notes every request with its class, its time and its bytes.

A short task writes 256 bytes into its workspace and completes. It is sent to one of two hosts on a bucket, into
contexts of which this host knows more or less, once blocking and once streaming. The first answer is the first event of
the stream; the answer of the blocking send is the task in its final state, workspace stored. Requests that overlap in
time are one round trip; the emulator takes the time that the real one takes (its profile `regional`), so that none
begins and ends while an answer is on its way to the client. What comes behind the answer (the pointer, once more) is in
the totals; heartbeats, sweeps and the watch of other tasks are not.

Streams put out chunks of 256 bytes: 50 a second, as a model would, and as many as the agent can. Those at a pace go
side by side, one round, as their cost follows the clock.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.benchmark import contexts
from tests.benchmark.load import clients_of
from tests.benchmark.sends import SHORT, Bucket, blocking, streaming
from tests.benchmark.subjects import gateway, host, together

TITLE = "Requests to the bucket"
OURS = "a2a-gcs"
CHUNK = 256
PACE = 50
LENGTHS = (200, 500, 1000)
LEASE = 600


def run(bench):
    with contextlib.ExitStack() as stack:
        emulator, place = stack.enter_context(gateway("--latency=regional"))
        # A long lease, so that the heartbeat stays out of the way.
        hosts = stack.enter_context(together(host(place, bench.directory, lease_seconds=LEASE) for _ in range(2)))
        asyncio.run(_measure(bench, hosts, Bucket(emulator, place.uri.removeprefix("gs://"))))
    _aims(bench)
    _notes(bench)


async def _measure(bench, hosts, bucket):
    async with clients_of(hosts) as (here, elsewhere):
        for client in (here, elsewhere):
            await client.send(SHORT)
        await _short_tasks(bench, here, elsewhere, bucket)
        await _streams(bench, here, bucket)


async def _short_tasks(bench, here, elsewhere, bucket):
    hows = [how for how in (blocking, streaming) for _ in range(bench.rounds)]
    ready = await asyncio.gather(*(contexts.prepared(contexts.KINDS, here, elsewhere) for _ in hows))
    rows = [(kind, how, named) for how, ids in zip(hows, ready, strict=True) for kind, named in ids.items()]
    done = [(kind, how, await how(here, SHORT, **named)) for kind, how, named in rows]
    await bucket.settle()
    for kind, how, send in done:
        first, answer, whole = bucket.of(send)
        what = f"short task, {kind}"
        if how is streaming:
            bench.record(f"{what}: round trips to the first event", OURS, first.round_trips, "round trips")
            continue
        bench.record(f"{what}: class A before the answer", OURS, answer.of_class("A"), "requests")
        bench.record(f"{what}: round trips before the answer", OURS, answer.round_trips, "round trips")
        for name in ("A", "B"):
            bench.record(f"{what}: class {name} in all", OURS, whole.of_class(name), "requests")
        bench.record(f"{what}: free requests", OURS, whole.of_class("free"), "requests")
        bench.record(f"{what}: round trips in all", OURS, whole.round_trips, "round trips")
        bench.record(f"{what}: bytes written", OURS, whole.bytes_written, "bytes")


async def _streams(bench, client, bucket):
    lengths = [length // 10 for length in LENGTHS] if bench.smoke else LENGTHS
    fast = [(length, await streaming(client, f"{length} {CHUNK}")) for length in bench.alternate(lengths)]
    paced = await asyncio.gather(*(streaming(client, f"{length} {CHUNK} {PACE}") for length in lengths))
    await bucket.settle()
    for how, sends in ((_at_pace(), zip(lengths, paced, strict=True)), ("stream at once", fast)):
        for length, send in sends:
            whole = bucket.of(send)[2]
            for name in ("A", "B"):
                bench.record(f"{how}: class {name}", OURS, whole.of_class(name), "requests", size=length)
            bench.record(f"{how}: bytes written", OURS, whole.bytes_written, "bytes", size=length)


def _at_pace():
    return f"stream of {PACE} chunks a second"


def _aims(bench):
    for kind in contexts.KINDS:
        what = f"short task, {kind}"
        bench.aim(f"Class A requests of a {what}", bench.median(f"{what}: class A in all", OURS), at_most=6)
        before = bench.median(f"{what}: class A before the answer", OURS)
        bench.aim(f"Class A requests before the answer of a {what}", before, at_most=4)
        most = 4 if kind in (contexts.ELSEWHERE, contexts.BACK) else 2
        trips = bench.median(f"{what}: round trips to the first event", OURS)
        bench.aim(f"Round trips until the first event of a {what}", trips, at_most=most)
    longest = max(one.size for one in bench.results.series if one.size)
    for how in (_at_pace(), "stream at once"):
        written = bench.median(f"{how}: bytes written", OURS, longest) / (longest * CHUNK)
        bench.aim(f"Bytes written by a {how}, {longest} chunks, over its output", written, at_most=3)


def _notes(bench):
    bench.note("The first answer of the aims on round trips is the first event of a stream.")
