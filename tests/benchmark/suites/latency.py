"""The emulator takes the time that a bucket in the client's region takes (its profile `regional`: 20 ms for the metadata
of an object, 30 ms for a body, 60 ms for a write, and 8 ms a megabyte; a documented choice, as nothing was measured on
the real one). One client, one send at a time, so nothing but round trips and the host's own work is in the numbers.

A short task writes 256 bytes into its workspace. The first event is that of a streaming send, the answer that of a
blocking one. Money is what the requests of a send are billed, behind its answer too: $5 for a million of class A, $0.40
of class B, deletes and refused preconditions free (list prices of 2026, us-central1, standard class), without what is
stored and without heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.benchmark import contexts
from tests.benchmark.load import clients_of
from tests.benchmark.sends import SHORT, Bucket, blocking, streaming
from tests.benchmark.subjects import gateway, host, together

TITLE = "Seconds and dollars, with a bucket's latency"
OURS = "a2a-gcs"
STREAM = "200 256"
LEASE = 600


def run(bench):
    with contextlib.ExitStack() as stack:
        emulator, place = stack.enter_context(gateway("--latency=regional"))
        hosts = stack.enter_context(together(host(place, bench.directory, lease_seconds=LEASE) for _ in range(2)))
        asyncio.run(_measure(bench, hosts, Bucket(emulator, place.uri.removeprefix("gs://"))))


async def _measure(bench, hosts, bucket):
    async with clients_of(hosts) as (here, elsewhere):
        for client in (here, elsewhere):
            await client.send(SHORT)
        await _short_tasks(bench, here, elsewhere, bucket)
        await _streams(bench, OURS, here, bucket)


async def _short_tasks(bench, here, elsewhere, bucket):
    rounds = [(how, number) for number in range(bench.rounds) for how in (blocking, streaming)]
    ready = await asyncio.gather(*(contexts.prepared(contexts.KINDS, here, elsewhere) for _ in rounds))
    rows = [(kind, how, ids[kind]) for (how, _), ids in zip(rounds, ready, strict=True) for kind in contexts.KINDS]
    done = [(kind, how, await how(here, SHORT, **ids)) for kind, how, ids in rows]
    await bucket.settle()
    for kind, how, send in done:
        _record(bench, OURS, f"short task, {kind}", how, send, bucket)


async def _streams(bench, subject, client, bucket):
    done = [await streaming(client, STREAM) for _ in range(bench.rounds)]
    await bucket.settle()
    for send in done:
        what = "stream of 200 chunks, new context"
        _record(bench, subject, what, streaming, send, bucket)
        bench.record(f"{what}: to the end", subject, send.seconds, "s")


def _record(bench, subject, what, how, send, bucket):
    if how is streaming:
        bench.record(f"{what}: to the first event", subject, send.seconds_to_first, "s")
    else:
        bench.record(f"{what}: to the answer", subject, send.seconds, "s")
    bench.record(f"1,000 times {what}, {how.__name__}", subject, bucket.dollars(send) * 1000, "$")
