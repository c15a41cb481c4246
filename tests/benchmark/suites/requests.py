"""Counted by the emulator's gateway, which notes every request with its class, its time and its bytes.

A short task writes 256 bytes into its workspace and completes. It is sent to one of two hosts on a bucket, into
contexts of which this host knows more or less, once blocking and once streaming. The first answer is the first event of
the stream; the answer of the blocking send is the task in its final state, workspace stored. Requests that overlap in
time are one round trip; the emulator takes the time that the real one takes (its profile `regional`), so that none
begins and ends while an answer is on its way to the client. Until the first event the workspace is not counted, which
is restored meanwhile. What comes behind the answer (the pointer, once more) is in the totals; heartbeats and sweeps are
not. Three rounds, and two of streams, as counts hardly differ.

Streams put out chunks of a kilobyte: 50 a second, as a model would, and as many as the agent can. Those at a pace go
side by side, one round, as their cost follows the clock. The design with two unconditional puts for each event does the
same for the same messages, in a bucket that takes no time and any number of writes to an object: its requests follow
the events alone, so one round of shorter streams tells all. A request that is refused for its precondition is free,
and counted so.
"""

from __future__ import annotations

import asyncio

from tests.benchmark import contexts
from tests.benchmark.regional import FIVE, FIVE_CHUNKS, OURS, TWO_PUTS, clients, servers
from tests.benchmark.sends import SHORT, billed, blocking, streaming

TITLE = "Requests to the bucket"
REFERENCE = TWO_PUTS
CHUNK = 1024
PACE = 50
LENGTHS = (200, 500, 1000)
TWO_PUTS_LENGTHS = (50, 100, 200)
SMALL = 256
AT_PACE, AT_ONCE = f"stream of {PACE} chunks a second", "stream at once"
ROUNDS, FAST_ROUNDS = 3, 2
"""Of short tasks, and of streams at once: counts hardly differ from round to round."""

WHY = {
    contexts.NAMED: "A context that the client names may be anybody's, so its record is read before the claim: 30 ms. "
    "To claim first would cost each message that meets a context of another host a refused write, and leave a pointer "
    "to delete behind each refusal.",
    contexts.BACK: "What another host made of the context is read beside the claim that is refused: two of these "
    "requests take no time of their own, and four wait for one another. One of those looks whether the refused claim "
    "was an earlier try of its own.",
}


def run(bench):
    with servers(bench.directory) as (hosts, peer, *buckets):
        asyncio.run(_measure(bench, hosts, peer, *buckets))
    _aims(bench)
    _notes(bench)


async def _measure(bench, hosts, peer, bucket, peers_bucket):
    async with clients(hosts, peer) as (here, elsewhere, other):
        await _short_tasks(bench, here, elsewhere, bucket)
        for subject, client, of in ((OURS, here, bucket), (TWO_PUTS, other, peers_bucket)):
            await _streams(bench, subject, client, of)


async def _short_tasks(bench, here, elsewhere, bucket):
    hows = [how for how in (blocking, streaming) for _ in range(min(bench.rounds, ROUNDS))]
    kinds = [(contexts.BACK,)] + [contexts.KINDS for _ in hows]
    first, *ready = await asyncio.gather(*(contexts.prepared(each, here, elsewhere) for each in kinds))
    await here.send(SHORT, **first[contexts.BACK])  # the first claim that is lost to another host: see the note
    rows = [(kind, how, named) for how, ids in zip(hows, ready, strict=True) for kind, named in ids.items()]
    done = [(f"short task, {kind}", how, await how(here, SHORT, **named)) for kind, how, named in rows]
    await bucket.settle()
    for what, how, send in done:
        if how is blocking:
            _record(bench, what, OURS, bucket.of(send))
        else:
            trips = bucket.round_trips_to_first(send)
            bench.record(f"{what}: round trips to the first event", OURS, trips, "round trips")


def _record(bench, what, subject, costs):
    _, answer, whole = costs
    bench.record(f"{what}: class A before the answer", subject, billed(answer, "A"), "requests")
    bench.record(f"{what}: round trips before the answer", subject, answer.round_trips, "round trips")
    for name in ("A", "B"):
        bench.record(f"{what}: class {name} in all", subject, billed(whole, name), "requests")
    bench.record(f"{what}: free requests", subject, billed(whole, "free"), "requests")
    bench.record(f"{what}: round trips in all", subject, whole.round_trips, "round trips")
    bench.record(f"{what}: bytes written", subject, whole.bytes_written, "bytes")


async def _streams(bench, subject, client, bucket):
    lengths = LENGTHS if subject == OURS else TWO_PUTS_LENGTHS
    lengths = [length // 10 for length in lengths] if bench.smoke else lengths
    rounds = min(bench.rounds, FAST_ROUNDS) if subject == OURS else 1
    five = [await blocking(client, FIVE) for _ in range(bench.rounds)]
    fast = [(length, await streaming(client, f"{length} {CHUNK}")) for _ in range(rounds) for length in lengths]
    paced = await _paced(client, lengths) if subject == OURS else []
    await bucket.settle()
    for send in five:
        _record(bench, FIVE_CHUNKS, subject, bucket.of(send))
    for how, done in ((AT_PACE, paced[: len(lengths)]), (AT_ONCE, fast)):
        for length, send in done:
            whole = bucket.of(send)[2]
            for name in ("A", "B"):
                bench.record(f"{how}: class {name}", subject, billed(whole, name), "requests", size=length)
            bench.record(f"{how}: bytes written", subject, whole.bytes_written, "bytes", size=length)
    for length, send in paced[len(lengths) :]:
        ratio = bucket.of(send)[2].bytes_written / (length * SMALL)
        bench.record(f"{AT_PACE}, {SMALL} bytes each: bytes written over output", subject, ratio, "times")


async def _paced(client, lengths):
    """(length, send) of each, and of the longest once more in small chunks."""
    texts = [f"{length} {CHUNK} {PACE}" for length in lengths] + [f"{lengths[-1]} {SMALL} {PACE}"]
    sends = await asyncio.gather(*(streaming(client, text) for text in texts))
    return list(zip([*lengths, lengths[-1]], sends, strict=True))


def _notes(bench):
    bench.note(
        f"An event takes about 135 bytes beside its chunk, in journal and task.json: in chunks of {SMALL} bytes a "
        "stream writes more for its output than with chunks of a kilobyte, which is what the aim on bytes is about."
    )
    bench.note(
        "The aims on short tasks take the least of all rounds, as a busy machine adds requests and takes none away."
    )
    bench.note(
        "The first time that a host loses a claim in a context which it had before, it takes two round trips more than "
        "the table says; from then on it reads, while such a claim is on its way, what it needs if that is lost."
    )
    bench.reason(
        f"{AT_ONCE}: bytes written",
        "The other design compresses what it puts, and these chunks are the same letters again and again; task.json "
        "and its journal stay readable as they are. It puts the whole task with each event, which outgrows that.",
    )


def _least(bench, what):
    """Of all rounds: two requests that overlap once do not wait for one another; that they did not, may be chance."""
    return min(bench.results.of(what, OURS).values)


def _aims(bench):
    for kind in contexts.KINDS:
        what = f"short task, {kind}"
        bench.aim(f"Class A requests, {what}", _least(bench, f"{what}: class A in all"), at_most=6)
        before = _least(bench, f"{what}: class A before the answer")
        bench.aim(f"Class A requests before the answer, {what}", before, at_most=4)
        most = 4 if kind in (contexts.ELSEWHERE, contexts.BACK) else 2
        trips = _least(bench, f"{what}: round trips to the first event")
        why = WHY.get(kind, "")
        bench.aim(f"Round trips until the first event, {what}", trips, at_most=most, why=why)
    longest = max(one.size for one in bench.results.series if one.size and one.subject == OURS)
    for how in (AT_PACE, AT_ONCE):
        written = bench.median(f"{how}: bytes written", OURS, longest) / (longest * CHUNK)
        bench.aim(f"Bytes written over output, {how}, {longest:.0f} chunks", written, at_most=3)
