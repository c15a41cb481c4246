"""Ending what dead hosts left: by whoever touches it, never a parked task, never on an outdated look."""

import asyncio

import pytest
from a2a.types.a2a_pb2 import ListTasksRequest

from a2a_gcs.claims import End
from a2a_gcs.layout import context_key, heartbeat_key, pointer_key, task_key
from a2a_gcs.ledger.errors import ContextBusy, Fenced, TaskEnded
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import HeartbeatRecord, Pin
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import CANCELED, COMPLETED, FAILED, LEASE, WORKING, Bucket, artifact, message


@pytest.fixture
def bucket():
    return Bucket()


# ---------------------------------------------------------------- who is dead


async def beat(bucket, **fields):
    record = HeartbeatRecord(host="h", lease_seconds=LEASE, **fields)
    await bucket.store.put(heartbeat_key("h"), record.to_bytes(), OVERWRITE)


@pytest.mark.parametrize(
    ("fields", "n", "dead"),
    [
        ({"next": 5, "open": (2, 3)}, 2, False),
        ({"next": 5, "open": (2, 3)}, 1, True),
        ({"next": 5, "open": (2, 3)}, 4, True),
        ({"next": 5, "open": (2, 3)}, 5, False),
        ({"next": 5, "open": (2, 3)}, 99, False),
        ({"next": 1, "open": ()}, 1, False),
    ],
)
async def test_the_open_list_decides(bucket, fields, n, dead):
    """A number below `next` that is not listed is dead; one that the heartbeat cannot know of yet lives."""
    await beat(bucket, **fields)
    assert await (await bucket.host("b")).liveness.is_dead(f"h/{n}") is dead


@pytest.mark.parametrize(("age", "dead"), [(0, False), (LEASE, False), (LEASE + 1, True), (10**6, True)])
async def test_age_decides_by_the_stores_clock(bucket, age, dead):
    """A heartbeat older than its lease is a dead host's, however wrong this machine's clock is."""
    await beat(bucket, next=2, open=(1,))
    bucket.clock.now += age
    judge = await bucket.host("b")
    assert await judge.liveness.is_dead("h/1") is dead


async def test_no_heartbeat_is_death(bucket):
    """A host deletes its heartbeat last; where there is none, nobody runs anything."""
    assert await (await bucket.host("b")).liveness.is_dead("h/1")


@pytest.mark.parametrize(("age", "dead"), [(0, False), (LEASE + 1, True)])
async def test_an_unreadable_heartbeat_counts_by_age(bucket, age, dead):
    """A heartbeat of a later format is that of a live host, while it is renewed."""
    await bucket.store.put(heartbeat_key("h"), b"v9", OVERWRITE)
    bucket.clock.now += age
    assert await (await bucket.host("b")).liveness.is_dead("h/1") is dead


async def test_a_host_knows_its_own_claims_best(bucket):
    """Of its own claims a process asks its table, not its heartbeat, which may be older."""
    a = await bucket.host("a")
    claim = await a.claim()
    await a.die()
    assert not await a.liveness.is_dead(str(claim.owner))
    a.table.finish(claim, End.FENCED)
    assert await a.liveness.is_dead(str(claim.owner))
    assert not await a.liveness.is_dead("a/77")


# ---------------------------------------------------------------- settlement


async def touch_get(host, where):
    assert (await host.tasks.get(where.task_id, None)).task.status.state == FAILED


async def touch_list(host, where):
    page = await host.tasks.list(ListTasksRequest(status=FAILED), None)
    assert [task.id for task in page.tasks] == [where.task_id]


async def touch_cancel(host, where):
    assert (await host.tasks.cancel(where.task_id)).task.status.state == FAILED


async def touch_answer(host, where):
    with pytest.raises(TaskEnded):
        await host.answer(where.task_id)


async def touch_claim(host, where):
    assert (await host.claim(where.context_id)).ref != where


@pytest.mark.parametrize("touch", [touch_get, touch_list, touch_cancel, touch_answer, touch_claim])
async def test_any_touch_settles_a_dead_hosts_task(bucket, touch):
    """Get, list, cancel, answer and a new message each end it first: FAILED, saying why, with what was saved."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    await a.save(claim, WORKING, artifact("kept"))
    await a.die()
    await touch(b, claim.ref)
    stored = await b.record(claim.ref.task_id)
    assert (stored.task.status.state, stored.meta.open, stored.meta.state) == (FAILED, False, "TASK_STATE_FAILED")
    assert "Kept: 1 artifacts" in stored.task.status.message.parts[0].text
    assert [x.artifact_id for x in stored.task.artifacts] == ["kept"]
    assert stored.task.status.timestamp.seconds > 0
    assert stored.meta.seq > claim.record.meta.seq


async def test_a_live_hosts_task_is_left_alone(bucket):
    """While the heartbeat lists the claim, nothing touches it, however long it has been running (rule no_age)."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    bucket.clock.now += 10**6
    await a.beat()
    before = await b.record(claim.ref.task_id)
    assert (await b.tasks.read(claim.ref.task_id)).version == before.version
    with pytest.raises(ContextBusy):
        await b.claim()


async def test_a_parked_task_is_never_settled(bucket):
    """Whatever became of its host, a parked task waits for its answer (rule keep_parked)."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    await a.park(claim)
    await a.die()
    with pytest.raises(ContextBusy) as caught:
        await b.claim()
    assert caught.value.waits
    assert (await b.tasks.read(claim.ref.task_id)).parked
    assert await b.answer(claim.ref.task_id)


async def test_a_claim_that_gave_up_is_dead_though_its_host_lives(bucket):
    """The heartbeat does not list it: its context is free at once (rule openlist)."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim()
    a.table.finish(claim, End.SURRENDERED)
    await a.beat()
    assert await b.claim()


async def test_a_dead_claim_without_a_task_is_entombed(bucket):
    """Pointer and task.json are there before anybody goes on, so a save that lands late is refused (rule tombstone)."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim()
    await bucket.store.delete(pointer_key(claim.ref.task_id))
    await a.die()
    following = await b.claim()
    assert {pointer_key(claim.ref.task_id), task_key(claim.ref)} < set(await bucket.keys())
    grave = await b.record(claim.ref.task_id)
    assert (grave.task.status.state, grave.meta.open, grave.meta.owner) == (FAILED, False, "a/1")
    with pytest.raises(Exception, match="modified concurrently"):
        await a.save(claim, WORKING)
    assert claim.end is End.FENCED
    assert (await b.record(claim.ref.task_id)).version == grave.version
    assert (await bucket.context()).active.task_id == following.ref.task_id


async def test_a_late_first_save_is_not_settled_over(bucket):
    """A first save that lands between the judgement and the tombstone is found, and settled as it stands."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        claim = await a.claim()
        await a.die()

        async def late(key):
            await a.save(claim, WORKING, artifact("late"))

        store.act("put", "*/task.json", late)
        await b.claim()
        stored = await b.record(claim.ref.task_id)
        assert stored.task.status.state == FAILED
        assert [x.artifact_id for x in stored.task.artifacts] == ["late"]


async def test_a_claim_released_after_it_was_read_is_no_death(bucket):
    """Heartbeat first, then the record again: one that ended in between was no death, and gets no task (recheck)."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        claim = await a.claim()

        async def released(key):
            await a.ledger.release(claim)
            await a.beat()

        store.act("get", heartbeat_key("a"), released)
        following = await b.claim()
        assert await bucket.keys() == sorted([context_key("ctx"), pointer_key(following.ref.task_id)])


async def test_a_task_that_ended_after_it_was_read_is_no_death(bucket):
    """The outcome that was stored between the two looks is what counts, and is not replaced."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        claim = await a.start()

        async def ended(key):
            await a.end(claim)
            await a.beat()

        store.act("get", heartbeat_key("a"), ended)
        assert (await b.tasks.read(claim.ref.task_id)).task.status.state == COMPLETED


async def test_a_task_that_parked_after_it_was_read_is_no_death(bucket):
    """Likewise a turn that was parked in between: it is never settled."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        claim = await a.start()

        async def parks(key):
            await a.park(claim)
            await a.beat()

        store.act("get", heartbeat_key("a"), parks)
        assert (await b.tasks.read(claim.ref.task_id)).parked


async def test_two_settlers_agree(bucket):
    """Ten that meet a dead host's task at once see one and the same end."""
    hosts = [await bucket.host(f"b{i}") for i in range(10)]
    a = await bucket.host("a")
    claim = await a.start()
    await a.die()
    records = await asyncio.gather(*(host.tasks.read(claim.ref.task_id) for host in hosts))
    assert len({(r.version, r.task.status.timestamp.ToNanoseconds()) for r in records}) == 1


async def test_a_settlement_meets_a_cancel(bucket):
    """Whichever is stored first stays."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        c = await bucket.host("c")
        claim = await a.start()

        async def canceled(key):
            await c.tasks.cancel(claim.ref.task_id)
            await a.die()

        store.act("get", heartbeat_key("a"), canceled)
        assert (await b.tasks.read(claim.ref.task_id)).task.status.state == CANCELED


async def test_what_a_dead_host_pinned_is_not_resumed_from(bucket):
    """It may have replaced the archive behind the pin; with resume_from=terminal that would block the context."""
    a, b = await bucket.host("a"), await bucket.host("b", resume_from="terminal")
    claim = await a.start()
    await a.park(claim, pin=Pin(generation=4, crc32c="x"))
    await a.answer(claim.ref.task_id)
    await a.die()
    assert (await b.claim()).base is None


async def test_a_release_that_meets_a_settler_leaves_no_task_without_a_pointer(bucket):
    """Held for dead by mistake, a host gives its claim back while its tombstone is written: I3 holds all the same."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        claim = await a.claim()
        await a.die()
        gate = store.hold("put", task_key(claim.ref))
        settling = asyncio.create_task(b.claim())
        await gate.reached.wait()
        await a.ledger.release(claim)
        gate.release()
        await settling
        assert {task_key(claim.ref), pointer_key(claim.ref.task_id)} <= set(await bucket.keys())


async def test_a_pointer_taken_back_while_it_is_taken_over(bucket):
    """The settler looks again until the pointer is its own."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        claim = await a.claim()
        await a.die()

        async def released(key):
            await a.ledger.release(claim)

        store.act("head", pointer_key(claim.ref.task_id), released)
        await b.claim()
        assert {task_key(claim.ref), pointer_key(claim.ref.task_id)} <= set(await bucket.keys())


async def test_a_released_claim_cannot_be_released_by_a_stale_host(bucket):
    """A host that was held for dead finds its claim gone."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim()
    await a.die()
    await b.ledger.release(await b.claim())
    with pytest.raises(Fenced):
        await a.ledger.release(claim)


async def test_a_lapsed_hosts_own_task_is_settled_by_itself_too(bucket):
    """After its lease ran out a host treats its own turn as anybody else would."""
    a = await bucket.host("a")
    claim = await a.start()
    a.table.disown()
    a.table.lapse()
    assert (await a.tasks.read(claim.ref.task_id)).task.status.state == FAILED
    assert await a.claim(said=message())
