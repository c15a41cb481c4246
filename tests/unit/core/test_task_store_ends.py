"""How tasks end: stored before it is said, once and for ever, whatever the bucket does and whoever cancels."""

import asyncio
from collections import Counter

import pytest
from a2a.server.cluster import ConcurrentTaskModificationError

from a2a_gcs.claims import End
from a2a_gcs.errors import PermissionDenied, Throttled, Unavailable
from a2a_gcs.layout import task_key
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    Bucket,
    artifact,
    makes,
    says,
)


@pytest.fixture
def bucket():
    return Bucket()


def names(task):
    return [x.artifact_id for x in task.artifacts]


# ---------------------------------------------------------------- the bucket does not take it


@pytest.mark.parametrize("error", [Unavailable, Throttled, PermissionDenied])
@pytest.mark.parametrize("state", [COMPLETED, FAILED, INPUT_REQUIRED])
async def test_an_end_is_tried_until_it_is_stored(bucket, error, state):
    """A terminal or parked save never raises because of the bucket: the SDK would take it for stored."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        store.fail("put", task_key(claim.ref), times=3, error=error)
        await (a.park(claim) if state == INPUT_REQUIRED else a.end(claim, state))
        assert (await a.record(claim.ref.task_id)).task.status.state == state


async def test_an_end_is_not_acknowledged_before_it_is_stored(bucket):
    """While the bucket refuses it nobody hears of it, and the claim is held."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        store.fail("put", task_key(claim.ref))
        gate = store.hold("put", task_key(claim.ref), nth=2)
        ending = asyncio.create_task(a.end(claim))
        await gate.reached.wait()
        assert not ending.done()
        assert claim.held
        assert (await a.tasks.read(claim.ref.task_id)).task.status.state == WORKING
        gate.release()
        await ending
        assert claim.end is End.TERMINAL


async def test_an_end_whose_answer_was_lost_is_adopted(bucket):
    """It was committed: the try that meets it finds its own write, and writes no second one."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        before = await a.record(claim.ref.task_id)
        store.fail("put", task_key(claim.ref), when="after")
        await a.end(claim)
        stored = await a.record(claim.ref.task_id)
        assert (stored.task.status.state, stored.meta.seq) == (COMPLETED, before.meta.seq + 1)
        assert claim.record.version == stored.version


async def test_an_end_survives_a_read_back_that_fails(bucket):
    """Looking whose write it was may fail as well: that, too, is tried again."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        store.fail("put", task_key(claim.ref), when="after")
        store.fail("get", task_key(claim.ref))
        await a.end(claim)
        assert (await a.record(claim.ref.task_id)).task.status.state == COMPLETED


async def test_an_end_over_an_earlier_write_that_landed_late(bucket):
    """What the turn wrote before is its own: the end goes over it, under a version of its own."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        store.fail("put", task_key(claim.ref), when="after")
        with pytest.raises(Unavailable):
            await a.save(claim, AUTH_REQUIRED)
        landed = await a.record(claim.ref.task_id)
        assert landed.task.status.state == AUTH_REQUIRED
        await a.end(claim, FAILED)
        stored = await a.record(claim.ref.task_id)
        assert stored.task.status.state == FAILED
        assert stored.meta.seq > landed.meta.seq


async def test_a_state_in_the_middle_may_fail(bucket):
    """A state that ends nothing is not worth waiting for: the SDK is told, and the task stays as it was."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        store.fail("put", task_key(claim.ref))
        with pytest.raises(Unavailable):
            await a.save(claim, AUTH_REQUIRED)
        assert claim.held
        assert (await a.record(claim.ref.task_id)).task.status.state == WORKING


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_first_save_that_fails_gives_the_claim_up(bucket, when):
    """The SDK ends such a run without a word: were its claim listed any longer, its context would be blocked (I6)."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        claim = await a.claim()
        store.fail("put", task_key(claim.ref), when=when)
        with pytest.raises(Unavailable):
            await a.save(claim, WORKING)
        assert not claim.held
        await a.beat()
        assert await b.claim()
        assert (await b.record(claim.ref.task_id)).task.status.state == FAILED


async def test_a_journal_that_is_behind_holds_an_end_up(bucket):
    """What came before an end is durable before it (rule jterm); the ended task holds all of it."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        sdk = a.sdk(claim)
        store.fail("put", "*.events.json", times=2)
        for i in range(3):
            await sdk.process(makes(claim, f"x{i}"))
        await sdk.process(says(claim, COMPLETED))
        stored = await a.record(claim.ref.task_id)
        assert names(stored.task) == ["x0", "x1", "x2"]
        puts = [key for op, key in store.calls if op == "put"]
        assert puts[-1] == task_key(claim.ref)
        assert stored.meta.journal == 1


async def test_a_batch_whose_answer_was_lost_is_not_written_twice(bucket):
    """The batch that is there already is this turn's own earlier try: what it holds is done."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        claim = await a.start()
        sdk = a.sdk(claim)
        store.fail("put", "*.events.json", when="after")
        await sdk.process(makes(claim, "x", "1"))
        gone = store.hold("get", "*.events.json", when="after")
        await gone.reached.wait()
        await sdk.process(makes(claim, "x", "2", append=True))
        gone.release()
        await sdk.process(says(claim, COMPLETED))
        parts = (await b.record(claim.ref.task_id)).task.artifacts[0].parts
        assert [part.text for part in parts] == ["1", "2"]


# ---------------------------------------------------------------- cancel


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_cancel_changes_the_status_alone(bucket, where):
    """CANCELED keeps artifacts and history, has a timestamp of its own, and ends the claim and what runs for it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    stopped = asyncio.Event()
    claim.on_stop(stopped.set)
    await a.save(claim, AUTH_REQUIRED, artifact("x"))
    before = await a.record(claim.ref.task_id)
    done = await (a if where == "here" else b).tasks.cancel(claim.ref.task_id)
    assert done.task.status.state == CANCELED
    assert (names(done.task), done.task.history) == (["x"], before.task.history)
    assert done.task.status.timestamp.ToNanoseconds() != before.task.status.timestamp.ToNanoseconds()
    assert (await b.record(claim.ref.task_id)).task == done.task
    assert done.meta.seq > before.meta.seq
    if where == "elsewhere":
        assert not stopped.is_set()
        await a.tasks.still_ours(claim)
    assert stopped.is_set()
    assert claim.end is End.CANCELED
    assert claim.record.task.status.state == CANCELED


async def test_cancel_elsewhere_keeps_what_was_stored_meanwhile(bucket):
    """A state with an artifact that is stored between its reading and its write is in the canceled task (rebase)."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        claim = await a.start()

        async def meanwhile(key):
            await a.save(claim, AUTH_REQUIRED, artifact("meanwhile"))

        store.act("put", task_key(claim.ref), meanwhile)
        done = await b.tasks.cancel(claim.ref.task_id)
        assert done.task.status.state == CANCELED
        assert names((await a.record(claim.ref.task_id)).task) == ["meanwhile"]


@pytest.mark.parametrize("slow", ["*.events.json", "*/task.json"])
async def test_cancel_here_keeps_what_was_acknowledged_meanwhile(bucket, slow):
    """An update is in the canceled task, or it is not acknowledged: there is no third thing (I2)."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        sdk = a.sdk(claim)
        gate = store.hold("put", slow)
        await sdk.process(makes(claim, "before"))
        canceling = asyncio.create_task(a.tasks.cancel(claim.ref.task_id))
        await gate.reached.wait()
        acknowledged = ["before"]

        async def go_on():
            await sdk.process(makes(claim, "meanwhile"))
            acknowledged.append("meanwhile")

        going_on = asyncio.create_task(go_on())
        for _ in range(20):  # turns of the loop: as far as it can come while the cancel is on its way
            await asyncio.sleep(0)
        gate.release()
        await canceling
        await asyncio.gather(going_on, return_exceptions=True)
        assert names((await a.record(claim.ref.task_id)).task) == acknowledged


@pytest.mark.parametrize("first", ["cancel", "complete"])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_the_first_end_wins(bucket, first, where):
    """Whichever is stored first stays, and both sides are told of that one."""
    a, b = await bucket.host("a"), await bucket.host("b")
    canceler = a if where == "here" else b
    claim = await a.start()
    if first == "cancel":
        await canceler.tasks.cancel(claim.ref.task_id)
        with pytest.raises(ConcurrentTaskModificationError):
            await a.end(claim)
    else:
        await a.end(claim)
        assert (await canceler.tasks.cancel(claim.ref.task_id)).task.status.state == COMPLETED
    stored = await b.record(claim.ref.task_id)
    assert stored.task.status.state == {"cancel": CANCELED, "complete": COMPLETED}[first]


async def test_a_lapsed_turn_that_was_canceled_elsewhere_is_lost_to_all_its_writes(bucket):
    """A host without the bucket has a cancel under way, and the end of the run behind it, as its lease runs out; the
    cancel finds that of another host stored. What comes after it is not written over that either (I2)."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        claim = await a.start()
        gate = store.hold("put", task_key(claim.ref))
        canceling = asyncio.create_task(a.tasks.cancel(claim.ref.task_id))
        await gate.reached.wait()
        ending = asyncio.create_task(a.end(claim, FAILED))
        for _ in range(20):  # turns of the loop: as far as it can come while the cancel is on its way
            await asyncio.sleep(0)
        a.table.lapse()
        first = await b.tasks.cancel(claim.ref.task_id)
        gate.release()
        assert (await canceling).task == first.task
        with pytest.raises(ConcurrentTaskModificationError):
            await ending
        assert (await b.record(claim.ref.task_id)).version == first.version


async def test_cancels_at_the_end_of_a_run_agree_with_what_is_stored(bucket):
    """Of 50 cancels on two hosts that race with the end, every answer is the state that is stored."""
    a, b = await bucket.host("a"), await bucket.host("b")
    ends = Counter()
    for i in range(50):
        claim = await a.start(f"c{i}")
        ended, done = await asyncio.gather(
            a.end(claim), (a, b)[i % 2].tasks.cancel(claim.ref.task_id), return_exceptions=True
        )
        state = (await b.record(claim.ref.task_id)).task.status.state
        assert done.task.status.state == state
        assert isinstance(ended, Exception) == (state == CANCELED)
        ends[state] += 1
    assert set(ends) <= {CANCELED, COMPLETED}


async def test_cancel_of_a_parked_task(bucket):
    """Nobody runs it: any host ends it, and the context is free."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    await a.park(claim)
    assert (await b.tasks.cancel(claim.ref.task_id)).task.status.state == CANCELED
    assert await a.claim()


async def test_cancel_of_nothing(bucket):
    """An unknown task, and one that has saved nothing yet, is not created by a cancel."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim()
    keys = await bucket.keys()
    assert await b.tasks.cancel("unknown") is None
    assert await b.tasks.cancel(claim.ref.task_id) is None
    assert await a.tasks.cancel(claim.ref.task_id) is None
    assert await bucket.keys() == keys
