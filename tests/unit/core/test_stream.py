"""Streams: the same events in the same order on every host, none missed and none twice."""

import asyncio
import contextlib

import pytest
from a2a.helpers import new_text_message
from a2a.server.cluster import TaskVersion, VersionedEvent
from a2a.types.a2a_pb2 import Role, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

from a2a_gcs.layout import task_key
from a2a_gcs.tasks.stream import _BUFFER
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    Bucket,
    makes,
    says,
)


class Kept(Bucket):
    """Hosts keep the journal for a while after the end of a turn."""

    async def host(self, name, store=None, **options):
        return await super().host(name, store, **{"keep_batches": 60.0} | options)


@pytest.fixture
def bucket():
    return Kept()


class Run:
    """A turn that runs on a host as the SDK runs one: each event is saved, then published with its version."""

    def __init__(self, host, claim):
        self.host, self.claim, self.sdk = host, claim, host.sdk(claim)

    async def emit(self, event):
        await self.sdk.process(event)
        await self.publish(event)

    async def publish(self, event):
        await self.host.stream.publish(self.claim.ref.task_id, VersionedEvent(event, self.sdk.current_version))

    async def chunk(self, i):
        await self.emit(makes(self.claim, "x", str(i), append=i > 0))

    async def end(self, state=COMPLETED):
        await self.emit(says(self.claim, state))

    async def park(self, state=INPUT_REQUIRED):
        event = says(self.claim, state)
        self.claim.park_with(event)
        await self.emit(event)


async def running(host, context_id="ctx"):
    return Run(host, await host.start(context_id))


def told(event):
    """An event, for comparing: chunks by their text, states by their number, a Task by state and chunks."""
    if isinstance(event, TaskArtifactUpdateEvent):
        return event.artifact.parts[0].text
    if isinstance(event, TaskStatusUpdateEvent):
        return event.status.state
    assert isinstance(event, Task)
    return event.status.state, [part.text for x in event.artifacts for part in x.parts]


async def follow(host, task_id, started=None):
    """All that a subscriber is told, until its stream ends by itself."""
    found = []
    async with contextlib.aclosing(host.stream.follow(task_id)) as events:
        async for event in events:
            found.append(told(event))
            if started is not None:
                started.set()
    return found


async def subscriber(host, run):
    """A subscriber that has the snapshot."""
    started = asyncio.Event()
    task = asyncio.create_task(follow(host, run.claim.ref.task_id, started))
    await started.wait()
    return task


def complete(found):
    """Chunks of a snapshot and of what followed it, in order: what a client ends up with."""
    first, *rest = found
    return [*first[1], *(event for event in rest if isinstance(event, str))]


@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("chunks", [0, 1, 30])
async def test_a_whole_run(bucket, where, chunks):
    """A subscriber gets the task as it is, each later event once and in order, and the end."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)
    stream = await subscriber(a if where == "here" else b, run)
    for i in range(chunks):
        await run.chunk(i)
    await run.end()
    assert await stream == [(WORKING, []), *map(str, range(chunks)), COMPLETED]


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_subscribing_at_any_moment(bucket, where):
    """Publishing races with the snapshots of thirty subscribers: snapshot plus rest holds every chunk once."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)
    streams = []
    for i in range(30):
        streams.append(asyncio.create_task(follow(a if where == "here" else b, run.claim.ref.task_id)))
        await run.chunk(i)
        for _ in range(i % 5):
            await asyncio.sleep(0)
    await run.end()
    for found in await asyncio.gather(*streams):
        assert complete(found) == [str(i) for i in range(30)]
        assert found[-1] == COMPLETED or found == [(COMPLETED, complete(found))]


async def test_an_event_that_is_saved_but_not_yet_published(bucket):
    """The snapshot holds it, so its publication is no news."""
    a = await bucket.host("a")
    run = await running(a)
    event = makes(run.claim, "x", "0")
    await run.sdk.process(event)
    stream = await subscriber(a, run)
    await run.publish(event)
    await run.chunk(1)
    await run.end()
    assert await stream == [(WORKING, ["0"]), "1", COMPLETED]


async def test_what_is_published_while_the_snapshot_is_read(bucket):
    """It is buffered meanwhile, and told once."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        run = await running(a)
        gate = store.hold("head", task_key(run.claim.ref), when="after")
        stream = asyncio.create_task(follow(a, run.claim.ref.task_id))
        await gate.reached.wait()
        await run.chunk(0)
        await run.chunk(1)
        gate.release()
        await run.end()
        assert complete(await stream) == ["0", "1"]


async def test_a_laggard_misses_nothing(bucket):
    """Who is further behind than the buffer goes on from the journal: every chunk once, in order."""
    a = await bucket.host("a")
    run = await running(a)
    count = _BUFFER + 50
    async with contextlib.aclosing(a.stream.follow(run.claim.ref.task_id)) as events:
        await anext(events)
        for i in range(count):
            await run.chunk(i)
        await run.end()
        found = [told(event) async for event in events]
    assert found == [*map(str, range(count)), COMPLETED]


async def test_a_reader_that_comes_too_late_for_the_journal(bucket):
    """When the batches of an ended turn are gone already, the whole task makes up for them."""
    a, b = await bucket.host("a", keep_batches=0.0), await bucket.host("b")
    run = await running(a)
    async with contextlib.aclosing(b.stream.follow(run.claim.ref.task_id)) as events:
        await anext(events)
        for i in range(5):
            await run.chunk(i)
        await run.end()
        await asyncio.gather(*a.tasks._removals)
        assert [told(event) async for event in events] == [(COMPLETED, list("01234"))]


async def test_a_slow_subscriber_holds_nobody_up(bucket):
    """Publishing never waits and never raises, whoever listens."""
    a = await bucket.host("a")
    run = await running(a)
    async with contextlib.aclosing(a.stream.follow(run.claim.ref.task_id)) as events:
        await anext(events)
        event = VersionedEvent(makes(run.claim, "x"), TaskVersion(1))
        for _ in range(2 * _BUFFER):
            await asyncio.wait_for(a.stream.publish(run.claim.ref.task_id, event), 1)
    await a.stream.publish(run.claim.ref.task_id, event)
    await a.stream.publish("unknown", event)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_parked_tasks_stream_waits_for_the_next_turn(bucket, where):
    """The first event is the waiting task; then come those of the next turn, on whichever host that runs."""
    a, b, c = await bucket.host("a"), await bucket.host("b"), await bucket.host("c")
    first = await running(a)
    await first.park()
    stream = await subscriber(a if where == "here" else b, first)
    turn = Run(c, await c.answer(first.claim.ref.task_id))
    await turn.emit(says(turn.claim, WORKING))
    await turn.chunk(0)
    await turn.end()
    assert await stream == [(INPUT_REQUIRED, []), WORKING, "0", COMPLETED]


@pytest.mark.parametrize("state", [INPUT_REQUIRED, AUTH_REQUIRED])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_stream_ends_where_its_turn_parks(bucket, where, state):
    """Parked is the end of a stream, and the last event says so."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)
    stream = await subscriber(a if where == "here" else b, run)
    await run.chunk(0)
    await run.park(state)
    assert await stream == [(WORKING, []), "0", state]


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_cancel_ends_streams_everywhere(bucket, where):
    """A task that was canceled on another host ends its streams with CANCELED, also on the host that ran it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)
    await run.chunk(0)
    stream = await subscriber(a if where == "here" else b, run)
    await b.tasks.cancel(run.claim.ref.task_id)
    await a.tasks.still_ours(run.claim)
    assert (await stream)[-1] == CANCELED


async def test_a_settled_task_ends_its_streams(bucket):
    """When somebody has ended a dead host's task, its subscribers elsewhere are told FAILED."""
    a, b, c = await bucket.host("a"), await bucket.host("b"), await bucket.host("c")
    run = await running(a)
    stream = await subscriber(b, run)
    await a.die()
    await c.tasks.read(run.claim.ref.task_id)
    assert await stream == [(WORKING, []), FAILED]


async def test_an_outage_is_waited_out(bucket):
    """A stream elsewhere survives a bucket that fails for a while, and misses nothing."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        run = await running(a)
        stream = await subscriber(b, run)
        store.fail("get", "*.events.json", times=3)
        over = store.hold("get", "*.events.json", nth=4)
        await run.chunk(0)
        await over.reached.wait()
        over.release()
        await run.chunk(1)
        await run.end()
        assert await stream == [(WORKING, []), "0", "1", COMPLETED]


async def test_an_ended_task_is_told_once(bucket):
    """The stream of an ended task is the task, and nothing after it; that of none is empty."""
    a = await bucket.host("a")
    run = await running(a)
    await run.end()
    assert await follow(a, run.claim.ref.task_id) == [(COMPLETED, [])]
    assert await follow(a, "unknown") == []


async def test_the_sdks_subscription_starts_after_a_version(bucket):
    """After the version of a current snapshot nothing is repeated; after that of an older one comes the whole task."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)
    before = TaskVersion((await a.tasks.read(run.claim.ref.task_id)).meta.seq)
    await run.chunk(0)
    await run.emit(says(run.claim, AUTH_REQUIRED))  # written through: both hosts have one snapshot
    current = TaskVersion((await a.tasks.read(run.claim.ref.task_id)).meta.seq)
    async with contextlib.AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(
                contextlib.aclosing(host.stream.subscribe(run.claim.ref.task_id, after=after))
            )
            for host in (a, b)
            for after in (before, current)
        ]
        for early in streams[::2]:
            assert told((await anext(early)).event) == (AUTH_REQUIRED, ["0"])
        late = [asyncio.ensure_future(anext(stream)) for stream in streams[1::2]]
        for _ in range(20):  # turns of the loop, in which they read the snapshot that is no news
            await asyncio.sleep(0)
        await run.chunk(1)
        await run.end()
        assert [told((await first).event) for first in late] == ["1", "1"]
        rest = [[told(versioned.event) async for versioned in stream] for stream in streams]
        assert rest == [["1", COMPLETED], [COMPLETED]] * 2


async def test_versions_of_a_stream_grow(bucket):
    """Whatever the source, what a stream tells has ever later versions."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)

    async def versions(host):
        events = host.stream.subscribe(run.claim.ref.task_id, after=TaskVersion.MISSING)
        return [versioned.version._value async for versioned in events]

    streams = [asyncio.create_task(versions(host)) for host in (a, b)]
    for i in range(20):
        await run.chunk(i)
        await asyncio.sleep(0)
    await run.end()
    for seen in await asyncio.gather(*streams):
        assert seen == sorted(set(seen))


async def test_a_message_is_nobodys_event(bucket):
    """A Message belongs to the request that it answers: subscribers of the task are not told."""
    a = await bucket.host("a")
    run = await running(a)
    stream = await subscriber(a, run)
    await a.stream.publish(
        run.claim.ref.task_id, VersionedEvent(new_text_message("hi", role=Role.ROLE_AGENT), TaskVersion.MISSING)
    )
    await run.end()
    assert await stream == [(WORKING, []), COMPLETED]


async def test_nothing_is_left_of_a_stream(bucket):
    """A subscriber that leaves is forgotten."""
    a = await bucket.host("a")
    run = await running(a)
    async with contextlib.aclosing(a.stream.follow(run.claim.ref.task_id)) as events:
        await anext(events)
        assert a.stream._taps
    assert not a.stream._taps
