"""The emulator takes the time that a bucket in the client's region takes (its profile `regional`: 20 ms for metadata of
an object, 30 for its content, 60 for a write, and 8 ms a megabyte; a documented choice, as nothing was measured on
the real one). One client, one send at a time, so nothing but round trips and the server's own work is in the numbers.

A short task writes 256 bytes into its workspace. The first event is that of a streaming send, the answer that of a
blocking one. The dollars are what the requests of a send are billed, those behind its answer too: $5 for a million of
class A, $0.40 of class B, deletes and refused preconditions free (list prices of 2026, us-central1, standard class, as
the emulator has them), without what is stored and without heartbeats.

The design with two unconditional puts for each event is let write as often as it likes, though cloud storage takes one
write a second to an object. Its stream takes one round.
"""

from __future__ import annotations

import asyncio

from tests.benchmark import contexts
from tests.benchmark.regional import FIVE, FIVE_CHUNKS, OURS, REGIONAL, TWO_PUTS, clients, servers
from tests.benchmark.sends import SHORT, blocking, streaming

TITLE = "Seconds and dollars, with a bucket's latency"
REFERENCE = TWO_PUTS


def run(bench):
    with servers(bench.directory, REGIONAL) as (hosts, peer, *buckets):
        asyncio.run(_measure(bench, hosts, peer, *buckets))


async def _measure(bench, hosts, peer, bucket, peers_bucket):
    async with clients(hosts, peer) as (here, elsewhere, other):
        await _short_tasks(bench, here, elsewhere, bucket)
        subjects = {OURS: (here, bucket), TWO_PUTS: (other, peers_bucket)}
        done = [await _five_chunks(bench, name, subjects[name][0]) for name in bench.alternate(subjects)]
        done += [await _stream(bench, name, client) for name, (client, _) in subjects.items()]
        for _, of in subjects.values():
            await of.settle()
        for what, name, send in done:
            _dollars(bench, what, name, subjects[name][1].dollars(send))


async def _short_tasks(bench, here, elsewhere, bucket):
    hows = [how for how in (blocking, streaming) for _ in range(bench.rounds)]
    ready = await asyncio.gather(*(contexts.prepared(contexts.KINDS, here, elsewhere) for _ in hows))
    rows = [(kind, how, named) for how, ids in zip(hows, ready, strict=True) for kind, named in ids.items()]
    done = [(f"short task, {kind}", how, await how(here, SHORT, **named)) for kind, how, named in rows]
    await bucket.settle()
    for what, how, send in done:
        if how is streaming:
            bench.record(f"{what}: to the first event", OURS, send.seconds_to_first, "s")
        else:
            bench.record(f"{what}: to the answer", OURS, send.seconds, "s")
            _dollars(bench, what, OURS, bucket.dollars(send))


async def _five_chunks(bench, name, client):
    send = await blocking(client, FIVE)
    bench.record(f"{FIVE_CHUNKS}: to the answer", name, send.seconds, "s")
    return FIVE_CHUNKS, name, send


async def _stream(bench, name, client):
    what = f"stream of {20 if bench.smoke else 200} chunks, new context"
    for _ in range(1 if name == TWO_PUTS else bench.rounds):
        send = await streaming(client, f"{20 if bench.smoke else 200} 256")
        bench.record(f"{what}: to the first event", name, send.seconds_to_first, "s")
        bench.record(f"{what}: to the end", name, send.seconds, "s")
    return what, name, send


def _dollars(bench, what, name, dollars):
    bench.record(f"{what}: 1,000 of them", name, dollars * 1000, "$")
