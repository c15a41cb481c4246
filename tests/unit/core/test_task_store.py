"""The SDK's task store over task.json: whose saves are taken, what they leave, and what the SDK may do meanwhile."""

import asyncio
from dataclasses import replace

import pytest
from a2a.server.cluster import ConcurrentTaskModificationError, TaskVersion
from a2a.types.a2a_pb2 import Task

from a2a_gcs.claims import End
from a2a_gcs.clock import boottime
from a2a_gcs.layout import pointer_key, task_key
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.records import TURN_STRIDE, Pin
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    PACE,
    REJECTED,
    WORKING,
    Bucket,
    artifact,
    makes,
    ref,
    says,
)
from tests.support.waiting import until


@pytest.fixture(params=["memory", "local"])
def bucket(request, tmp_path):
    return Bucket(LocalStore(tmp_path / "bucket") if request.param == "local" else None)


async def stored_state(host, claim):
    return (await host.record(claim.ref.task_id)).task.status.state


def names(task):
    return [x.artifact_id for x in task.artifacts]


# ---------------------------------------------------------------- copies


async def test_a_new_task_is_missing_without_a_look(bucket):
    """Before its first save a claimed task is missing; the SDK asks three times, and no request is made for that."""
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    claim = await a.claim()
    store.calls.clear()
    assert await a.tasks.get(claim.ref.task_id, None) is None
    assert not store.calls


async def test_a_save_is_of_the_moment_it_was_called(bucket):
    """The SDK goes on changing the task that it saves; what is stored is what it was at the call."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        gate = store.hold("put", task_key(claim.ref))
        task = claim.record.copy_task()
        task.status.state = AUTH_REQUIRED
        saving = asyncio.create_task(a.save_task(task))
        await gate.reached.wait()
        task.status.state = COMPLETED
        task.artifacts.append(artifact("later"))
        gate.release()
        await saving
        stored = await a.record(claim.ref.task_id)
        assert (stored.task.status.state, names(stored.task)) == (AUTH_REQUIRED, [])
        shown = await a.tasks.read(claim.ref.task_id)
        assert (shown.task.status.state, names(shown.task)) == (AUTH_REQUIRED, [])


async def test_what_is_read_is_the_readers_own(bucket):
    """Changing a task that was read changes neither the next reading nor what is stored; running or ended."""
    a = await bucket.host("a")
    claim = await a.start()
    for _ in range(2):
        (await a.tasks.get(claim.ref.task_id, None)).task.artifacts.append(artifact("mine"))
        assert names((await a.tasks.get(claim.ref.task_id, None)).task) == []
        if claim.held:
            await a.end(claim)
    assert names((await a.record(claim.ref.task_id)).task) == []


async def test_an_update_is_of_the_moment_it_was_saved(bucket):
    """An event that is journaled later is stored as it was when it was acknowledged."""
    a = await bucket.host("a")
    claim = await a.start()
    event = makes(claim, "x", "early")
    sdk = a.sdk(claim)
    await sdk.process(event)
    event.artifact.parts[0].text = "late"
    await sdk.process(says(claim, COMPLETED))
    assert (await a.record(claim.ref.task_id)).task.artifacts[0].parts[0].text == "early"


# ---------------------------------------------------------------- whose saves


async def test_a_save_without_a_claim_is_refused(bucket):
    """After a Message, or on a host that never claimed the task, nothing is created or changed."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = ref()
    with pytest.raises(ConcurrentTaskModificationError):
        await a.save_task(Task(id=where.task_id, context_id=where.context_id))
    assert await bucket.keys() == []
    claim = await a.start()
    before = await a.record(claim.ref.task_id)
    for state in (WORKING, FAILED, CANCELED):
        task = before.copy_task()
        task.status.state = state
        with pytest.raises(ConcurrentTaskModificationError):
            await b.save_task(task)
    assert (await a.record(claim.ref.task_id)).version == before.version


async def canceled(bucket, a, claim):
    await (await bucket.host("b")).tasks.cancel(claim.ref.task_id)


async def settled(bucket, a, claim):
    await a.die()
    assert (await (await bucket.host("b")).tasks.read(claim.ref.task_id)).terminal
    await a.beat()


async def ended_in_a_further_turn(bucket, a, claim):
    """What a host meets that was asleep while its own turn was parked, answered and completed."""
    b = await bucket.host("b")
    seen = await b.record(claim.ref.task_id)
    await b.records.write(seen, seen.task, seen.meta.with_(open=False))
    await b.end(await b.answer(claim.ref.task_id))


async def answered(bucket, a, claim):
    b = await bucket.host("b")
    seen = await b.record(claim.ref.task_id)
    await b.records.write(seen, seen.task, seen.meta.with_(open=False))
    await b.answer(claim.ref.task_id)


@pytest.mark.parametrize("takes", [canceled, settled, answered, ended_in_a_further_turn])
@pytest.mark.parametrize("event", ["artifact", AUTH_REQUIRED, COMPLETED, FAILED])
async def test_the_sdk_reloads_and_tries_again_in_vain(bucket, takes, event):
    """On a conflict the SDK reloads and applies its event once more: the fence is (owner, turn), not the version."""
    a = await bucket.host("a")
    claim = await a.start()
    sdk = a.sdk(claim)
    await sdk.get_task()
    await takes(bucket, a, claim)
    before = await a.record(claim.ref.task_id)
    events = [makes(claim, "x"), says(claim, AUTH_REQUIRED)] if event == "artifact" else [says(claim, event)]

    async def says_all():
        for said in events:
            await sdk.process(said)

    for _ in range(2):
        with pytest.raises(ConcurrentTaskModificationError):
            await says_all()
        sdk.invalidate()
        await sdk.get_task()
    after = await a.record(claim.ref.task_id)
    assert (after.version, after.task) == (before.version, before.task)
    assert not claim.held
    assert a.table.get(claim.ref.task_id) is None


async def test_the_run_that_was_canceled_may_say_so(bucket):
    """CANCELED over CANCELED is acknowledged without a write: the canceled run's stream can end with it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    done = await b.tasks.cancel(claim.ref.task_id)
    task = done.copy_task()
    assert await b.save_task(task) == TaskVersion(done.meta.seq)
    assert (await a.record(claim.ref.task_id)).version == done.version


# ---------------------------------------------------------------- parked


async def test_only_the_last_event_parks(bucket):
    """A continued task keeps INPUT_REQUIRED until its agent changes it: saves meanwhile do not end the turn."""
    a = await bucket.host("a")
    first = await a.start()
    await a.park(first)
    turn = await a.answer(first.ref.task_id)
    sdk = a.sdk(turn)
    turn.pin = Pin(generation=1, crc32c="x")
    turn.park_with(says(turn, COMPLETED))  # the workspace is stored; earlier events are still on their way
    await sdk.process(makes(turn, "x"))
    await sdk.process(says(turn, INPUT_REQUIRED))
    assert turn.held
    await sdk.process(says(turn, COMPLETED))
    stored = await a.record(turn.ref.task_id)
    assert (stored.task.status.state, names(stored.task)) == (COMPLETED, ["x"])


@pytest.mark.parametrize("state", [INPUT_REQUIRED, AUTH_REQUIRED])
async def test_a_parked_task_is_closed_and_pinned(bucket, state):
    """The state that parks a task is stored together with the flag, the snapshot and the end of the claim."""
    a = await bucket.host("a")
    claim = await a.start()
    await a.park(claim, state, Pin(generation=7, crc32c="x"))
    stored = await a.record(claim.ref.task_id)
    assert stored.parked
    assert stored.meta.pin == Pin(generation=7, crc32c="x")
    assert claim.end is End.PARKED
    assert a.table.snapshot() == (2, {})


async def test_the_pin_is_of_the_final_state_only(bucket):
    """A snapshot that is taken while the agent still runs goes with no state but the one that ends the turn."""
    a = await bucket.host("a")
    claim = await a.start()
    claim.pin = Pin(generation=7, crc32c="x")
    await a.save(claim, AUTH_REQUIRED)
    assert (await a.record(claim.ref.task_id)).meta.pin is None


# ---------------------------------------------------------------- versions and coalescing


async def test_versions_grow_with_every_save(bucket):
    """Each acknowledged save has a later version, within its turn's range, whatever was written for it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    seen = []
    for turn, host in enumerate((a, b), start=1):
        sdk = host.sdk(claim)
        events = [says(claim, WORKING), makes(claim, f"x{turn}"), makes(claim, f"x{turn}", append=True)]
        for event in events:
            await sdk.process(event)
            seen.append(sdk.current_version._value)
            assert seen[-1] // TURN_STRIDE == turn
        await host.park(claim)
        if turn == 1:
            claim = await b.answer(claim.ref.task_id)
    assert seen == sorted(set(seen))


async def test_updates_are_coalesced_and_nothing_is_lost(bucket):
    """A hundred chunks take a handful of writes; the ended task holds all of them, in order."""
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    claim = await a.start()
    sdk = a.sdk(claim)
    store.calls.clear()
    for i in range(100):
        await sdk.process(makes(claim, "x", f"{i} ", append=i > 0))
    await sdk.process(says(claim, COMPLETED))
    stored = await a.record(claim.ref.task_id)
    assert [part.text for part in stored.task.artifacts[0].parts] == [f"{i} " for i in range(100)]
    assert store.count("put") < 20


async def test_a_store_that_takes_its_time_gets_no_more_batches(bucket):
    """What comes while a batch is written waits for its own quarter of a second, however long the writes take."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        sdk, batches, began = a.sdk(claim), 12, boottime()

        async def meanwhile(key):
            await sdk.process(makes(claim, "x", f"{key[-14:]} ", append=True))

        for nth in range(1, batches):
            store.act("put", "*.events.json", meanwhile, nth=nth)
        await sdk.process(makes(claim, "x", "first "))
        await until(lambda: store.count("put", "*.events.json") == batches)
        assert boottime() - began >= batches * PACE.journal_after
        await sdk.process(says(claim, COMPLETED))
        assert len((await a.record(claim.ref.task_id)).task.artifacts[0].parts) == batches


async def test_a_task_is_written_again_while_updates_come(bucket):
    """Also where each batch takes so long that there is always something pending; it holds what its batches hold."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store, pace=replace(PACE, rewrite_apart=0.0, rewrite_growth=1.0), keep_batches=60.0)
        claim = await a.start()
        sdk, batches, rewritten = a.sdk(claim), 8, []

        async def meanwhile(_key):
            await sdk.process(makes(claim, "x", "more", append=True))

        async def written(_key):
            meta = (await a.record(claim.ref.task_id)).meta
            batch = await a.journal.read(claim.ref, claim.turn, meta.journal)
            rewritten.append(meta.seq == batch[-1].seq)

        for nth in range(1, batches):
            store.act("put", "*.events.json", meanwhile, nth=nth)
            store.act("put", "*/task.json", written, nth=nth, when="after")
        await sdk.process(makes(claim, "x", "first"))
        await until(lambda: store.count("put", "*.events.json") == batches)
        await sdk.process(says(claim, COMPLETED))
        assert rewritten == [True] * (batches - 1)
        assert len((await a.record(claim.ref.task_id)).task.artifacts[0].parts) == batches


async def test_an_update_can_be_read_elsewhere(bucket):
    """Soon after it was acknowledged an update is in the journal, and another host's reading holds it."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        claim = await a.start()
        gate = store.hold("put", "*.events.json", when="after")
        await a.sdk(claim).process(makes(claim, "x"))
        assert names((await a.tasks.read(claim.ref.task_id)).task) == ["x"]
        await gate.reached.wait()
        assert names((await b.tasks.read(claim.ref.task_id)).task) == ["x"]
        gate.release()


async def test_unflushed_updates_are_shown_only_while_the_turn_is_ours(bucket):
    """Once somebody else has written the task its stored state is what counts (rule overlay)."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        claim = await a.start()
        gate = store.hold("put", "*.events.json")
        await a.sdk(claim).process(makes(claim, "x"))
        await gate.reached.wait()
        await b.tasks.cancel(claim.ref.task_id)
        assert (await a.tasks.read(claim.ref.task_id)).task.status.state == CANCELED
        assert claim.end is End.CANCELED
        gate.release()


async def test_an_end_whose_answer_is_on_its_way_is_no_loss(bucket):
    """A look at the task just then shows what is stored, and does not take the turn for lost."""
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.start()
        gate = store.hold("put", task_key(claim.ref), when="after")
        ending = asyncio.create_task(a.end(claim))
        await gate.reached.wait()
        assert (await a.tasks.read(claim.ref.task_id)).task.status.state == COMPLETED
        assert claim.held
        gate.release()
        await ending
        assert claim.end is End.TERMINAL


async def test_the_first_save_comes_after_the_pointer(bucket):
    """Every task.json has its pointer (I3)."""
    a = await bucket.host("a")
    claim = await a.start()
    assert {pointer_key(claim.ref.task_id), task_key(claim.ref)} <= set(await bucket.keys())


async def test_tasks_are_not_deleted_through_the_protocol(bucket):
    """History is kept: there is no way to delete a task here."""
    a = await bucket.host("a")
    claim = await a.run(state=REJECTED)
    with pytest.raises(NotImplementedError):
        await a.tasks.delete(claim.ref.task_id, None)
    assert await stored_state(a, claim) == REJECTED
