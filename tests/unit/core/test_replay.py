"""A subscriber that comes back goes on where it was: from the journal if that holds what it missed, else whole."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.journal import Journaled
from a2a_gcs.layout import task_key
from a2a_gcs.records import TURN_STRIDE
from a2a_gcs.tasks.event_ids import event_id, position
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
    status,
)
from tests.unit.core.test_stream import Kept, Run, running, told


@pytest.fixture
def bucket():
    return Kept()


@pytest.fixture(params=["here", "elsewhere"])
async def pair(request, bucket):
    """The host that runs, and the one that is asked."""
    a, b = await bucket.host("a"), await bucket.host("b")
    return a, a if request.param == "here" else b


async def heard(host, task_id, after=None, **options):
    async with contextlib.aclosing(host.stream.resume(task_id, after, **options)) as events:
        return [(one.seq, told(one.event), one.last) async for one in events]


async def test_streams_from_here_and_from_the_journal_have_the_same_ids(bucket):
    """Events, versions and end of the SDK's own run, of a tap beside it, and of a reader on another host."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)
    task_id = run.claim.ref.task_id
    said = asyncio.Queue()

    async def own():
        while (event := await said.get()) is not None:
            yield event

    streams = [asyncio.create_task(heard(host, task_id)) for host in (a, b)]

    async def numbered():
        return [(one.seq, told(one.event), one.last) async for one in a.stream.numbered(task_id, 1, own())]

    streams.append(asyncio.create_task(numbered()))
    for _ in range(20):
        await asyncio.sleep(0)
    emit = run.emit

    async def handed_out(event):
        await said.put(event)
        await emit(event)

    run.emit = handed_out
    for i in range(5):
        await run.chunk(i)
    await run.end()
    await said.put(None)
    here, there, sdk = await asyncio.gather(*streams)
    assert here == there
    assert here[1:] == sdk
    first = here[0][0]
    assert here[1:] == [*((first + 1 + i, str(i), False) for i in range(5)), (first + 6, COMPLETED, True)]


async def test_every_position_of_an_ended_run(pair):
    """From each event on come all that followed it, each once; after the last nothing is missing."""
    a, other = pair
    run = await running(a)
    task_id, first = run.claim.ref.task_id, run.claim.record.meta.seq
    for i in range(30):
        await run.chunk(i)
        await asyncio.sleep(0.002)  # so that there are several batches
    await run.end()
    whole = [*((first + 1 + i, str(i), False) for i in range(30)), (first + 31, COMPLETED, True)]
    for had in range(31):
        assert await heard(other, task_id, first + had) == whole[had:]
    assert await heard(other, task_id, first + 31) == [(first + 31, COMPLETED, True)]


async def test_coming_back_while_it_runs(pair):
    """Thirty subscribers come back at any moment, to whichever host: replay and rest hold every chunk once."""
    a, other = pair
    run = await running(a)
    task_id, first = run.claim.ref.task_id, run.claim.record.meta.seq
    streams = []
    for i in range(30):
        await run.chunk(i)
        streams.append(asyncio.create_task(heard(other, task_id, first + i // 2)))
        for _ in range(i % 4):
            await asyncio.sleep(0)
    await run.end()
    for i, found in enumerate(await asyncio.gather(*streams)):
        chunks = [one for one in found if isinstance(one[1], str)]
        assert chunks == [(first + 1 + n, str(n), False) for n in range(i // 2, 30)]
        assert found[-1] == (first + 31, COMPLETED, True)


async def test_one_that_has_everything_hears_something_at_once(pair):
    """A client that is up to date gets the state again, and no artifacts; then what is new."""
    a, other = pair
    run = await running(a)
    await run.chunk(0)
    await run.emit(says(run.claim, AUTH_REQUIRED))
    await run.emit(says(run.claim, WORKING))
    seq = run.claim.record.meta.seq
    async with contextlib.aclosing(other.stream.resume(run.claim.ref.task_id, seq)) as events:
        assert told((await anext(events)).event) == WORKING
        await run.chunk(1)
        await run.end()
        assert [told(one.event) async for one in events] == ["1", COMPLETED]


async def test_through_a_question_and_its_answer(pair):
    """A client that was cut in the turn before hears its rest, the question's state, and the turn that runs."""
    a, other = pair
    run = await running(a)
    task_id, first = run.claim.ref.task_id, run.claim.record.meta.seq
    await run.chunk(0)
    await run.park()
    parked = await heard(other, task_id, first)
    assert parked == [(first + 1, "0", False), (first + 2, INPUT_REQUIRED, True)]
    turn = Run(a, await a.answer(task_id))
    await turn.emit(says(turn.claim, WORKING))
    await turn.end()
    begun = 2 * TURN_STRIDE
    news = [(begun + 1, WORKING, False), (begun + 2, COMPLETED, True)]
    assert await heard(other, task_id, first) == [(first + 1, "0", False), (first + 2, INPUT_REQUIRED, False), *news]
    assert await heard(other, task_id, first + 2) == news


@pytest.mark.parametrize("end", ["canceled", "settled"])
async def test_an_end_that_somebody_else_made(bucket, end):
    """What was in the journal comes before it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    run = await running(a)
    task_id, first = run.claim.ref.task_id, run.claim.record.meta.seq
    async with FaultyStore(bucket.store) as store:
        a.journal._store = store
        written = store.hold("put", "*.events.json", when="after")
        await run.chunk(0)
        await written.reached.wait()
        written.release()
    if end == "canceled":
        await b.tasks.cancel(task_id)
    else:
        await a.die()
    found = await heard(b, task_id, first)
    state = CANCELED if end == "canceled" else FAILED
    assert found == [(first + 1, "0", False), (2 * TURN_STRIDE, state, True)]


@pytest.mark.parametrize("gone", [True, False])
async def test_what_the_journal_does_not_hold(gone):
    """Batches that are gone, and a version that never was: the whole task instead, and the stream ends with it."""
    bucket = Bucket()
    a = await bucket.host("a", keep_batches=0.0)
    run = await running(a)
    await run.chunk(0)
    await run.end()
    await asyncio.gather(*a.tasks._removals)
    seq = run.claim.record.meta.seq
    after = seq - 2 if gone else seq + 1000
    assert await heard(a, run.claim.ref.task_id, after) == [(seq, (COMPLETED, ["0"]), True)]


async def test_what_never_was_in_the_journal(bucket):
    """The beginning of a task that nobody was told of is in its first task.json alone: so the whole task comes."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim("ctx")
    claim.quiet = True
    task = claim.record.copy_task()
    task.status.CopyFrom(status(WORKING))
    run = Run(a, claim)
    await run.sdk.save_task_event(task)
    await run.chunk(0)
    await run.emit(says(claim, AUTH_REQUIRED))
    await run.chunk(1)
    await run.end()
    begun = TURN_STRIDE + 1
    assert await heard(b, claim.ref.task_id, begun) == [(begun + 4, (COMPLETED, ["0", "1"]), True)]
    assert await heard(b, claim.ref.task_id, begun + 2) == [(begun + 3, "1", False), (begun + 4, COMPLETED, True)]


async def test_a_long_turn_is_not_read_from_its_beginning(bucket):
    """Of 64 batches a handful is read to find where to go on."""
    store = FaultyStore(bucket.store)
    a, b = await bucket.host("a"), await bucket.host("b", store)
    claim = await a.start()
    events = [Journaled(claim.record.meta.seq + 1 + i, makes(claim, "x", str(i), append=i > 0)) for i in range(64)]
    for i, journaled in enumerate(events):
        await a.journal.append(claim.ref, 1, i + 1, [journaled])
    stored, seq = claim.record, claim.record.meta.seq + 65
    await a.records.write(stored, stored.copy_task(), stored.meta.with_(open=False, seq=seq, journal=64))
    store.calls.clear()
    assert [one for one, _, _ in await heard(b, claim.ref.task_id, seq - 4, waits=False)] == [
        seq - 3 + i for i in range(4)
    ]
    assert store.count("get", "*.events.json") <= 12


async def test_the_end_of_a_turn_that_was_overtaken_by_the_next(bucket):
    """A reader that is late for a question hears of it with the version that everybody else heard."""
    a = await bucket.host("a")
    run = await running(a)
    async with FaultyStore(bucket.store) as store:
        b = await bucket.host("b", store)
        gate = store.hold("head", task_key(run.claim.ref), nth=1)
        stream = asyncio.create_task(heard(b, run.claim.ref.task_id))
        await gate.reached.wait()
        await run.park()
        parked = run.claim.record.meta.seq
        await a.answer(run.claim.ref.task_id)
        gate.release()
        assert (await stream)[-1] == (parked, INPUT_REQUIRED, True)


async def test_a_repeat_does_not_wait_for_an_answer(pair):
    """The stream of a repeat ends with a task that waits; that of a subscriber does not."""
    a, other = pair
    run = await running(a)
    await run.park()
    seq = run.claim.record.meta.seq
    task_id = run.claim.ref.task_id
    assert await heard(other, task_id, waits=False) == [(seq, (INPUT_REQUIRED, []), True)]
    turn = Run(a, await a.answer(task_id))
    stream = asyncio.create_task(heard(other, task_id, waits=False))
    for _ in range(20):
        await asyncio.sleep(0)
    await turn.end()
    assert [event for _, event, _ in await stream] == [(INPUT_REQUIRED, []), COMPLETED]


@given(st.text(max_size=8), st.integers(0, 10**6), st.integers(0, TURN_STRIDE - 1), st.booleans())
def test_an_id_is_read_back(task_id, turn, number, last):
    """With or without its end, by its own task alone."""
    text = event_id(task_id, turn * TURN_STRIDE + number, last=last)
    assert position(task_id, text) == turn * TURN_STRIDE + number
    assert position(f"{task_id}x", text) is None


OURS = event_id("t1", 0).partition(".")[0]


@pytest.mark.parametrize(
    "text", ["", "1", "x.1.1", f"{OURS}.1", f"{OURS}.1.-1", f"{OURS}.1.{2**32}", f"{OURS}.1.\u0661", f"{OURS}.1.1.fin"]
)
def test_what_is_no_id(text):
    """Anything else is nobody's position."""
    assert position("t1", text) is None
