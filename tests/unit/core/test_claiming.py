"""Claims of a context for a new task: one winner, nothing left by losers, refusals that say what to do."""

import asyncio
from collections import Counter

import pytest
from structlog.testing import capture_logs

from a2a_gcs.claims import ClaimTable, End
from a2a_gcs.errors import Conflict, CorruptRecord, InvalidId, Throttled, Unavailable
from a2a_gcs.host.errors import to_a2a_error
from a2a_gcs.layout import context_key, pointer_key, task_key
from a2a_gcs.ledger.errors import Contended, ContextBusy, Fenced, Repeated
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import Owner, Pin
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    WORKING,
    Bucket,
    message,
    ref,
)
from tests.support.waiting import until


@pytest.fixture
def bucket():
    return Bucket()


async def outcomes(calls):
    return await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("racers", [50])
@pytest.mark.parametrize("kind", ["memory", "local"])
async def test_one_racer_wins(kind, racers, tmp_path):
    """Of 50 claims of a fresh context by two hosts exactly one wins; the others leave no object behind."""
    bucket = Bucket(LocalStore(tmp_path / "bucket") if kind == "local" else None)
    hosts = [await bucket.host("a"), await bucket.host("b")]
    results = await outcomes(hosts[i % 2].claim("ctx") for i in range(racers))
    winners = [r for r in results if not isinstance(r, BaseException)]
    assert Counter(type(r) for r in results if r not in winners) == {ContextBusy: racers - 1}
    [winner] = winners
    assert {r.active for r in results if r is not winner} == {winner.ref}
    assert await bucket.keys() == sorted([context_key("ctx"), pointer_key(winner.ref.task_id)])
    assert [len(host.table) for host in hosts].count(1) == 1
    assert sum(len(host.table.snapshot()[1]) for host in hosts) == 1


async def test_contexts_do_not_meet(bucket):
    """Claims of different contexts all win."""
    a = await bucket.host("a")
    claims = await asyncio.gather(*(a.claim(f"c{i}") for i in range(20)))
    assert len({claim.owner.n for claim in claims}) == 20


@pytest.mark.parametrize(
    ("prepare", "state", "advice"),
    [
        ("claim", "SUBMITTED", "cannot be read or canceled yet: wait a moment, then send again"),
        ("start", "WORKING", "is running: wait until it is done, or cancel it, then send again"),
        ("park", "INPUT_REQUIRED", "waits for an answer: answer or cancel that task, then send again"),
    ],
)
async def test_a_refusal_names_the_task_that_blocks(bucket, prepare, state, advice):
    """CONTEXT_BUSY is -32004 with a flat map of strings, a message that says what to do, and no object written."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await (a.claim() if prepare == "claim" else a.start())
    if prepare == "park":
        await a.park(claim)
    before = await bucket.keys()
    with pytest.raises(ContextBusy) as caught:
        await b.claim()
    error = to_a2a_error(caught.value)
    assert error.data == {
        "reason": "CONTEXT_BUSY",
        "contextId": "ctx",
        "activeTaskId": claim.ref.task_id,
        "state": f"TASK_STATE_{state}",
    }
    assert error.message.endswith(advice)
    assert claim.ref.task_id in error.message
    assert await bucket.keys() == before
    assert b.table.snapshot() == (1, {})


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 241])
async def test_an_impossible_context_touches_nothing(bad):
    """An id that cannot become a key is refused before any object is touched."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    store.calls.clear()
    with pytest.raises(InvalidId):
        await a.claim(bad)
    assert not store.calls


# ---------------------------------------------------------------- the resume rule


async def test_a_sequence_of_tasks(bucket):
    """Each task starts from the newest COMPLETED snapshot before it; failed, canceled and rejected ones count not."""
    a = await bucket.host("a")
    bases = []
    for i, state in enumerate([FAILED, COMPLETED, CANCELED, REJECTED, FAILED, COMPLETED, COMPLETED]):
        claim = await a.run(state=state, pin=Pin(generation=i + 10, crc32c="x"))
        bases.append(claim.base and claim.base.generation)
    bases.append((await a.claim()).base.generation)
    assert bases == [None, None, 11, 11, 11, 11, 15, 16]


async def test_a_sequence_that_resumes_from_any_end(bucket):
    """With resume_from=terminal failed and rejected tasks count too; a canceled one never."""
    a = await bucket.host("a", resume_from="terminal")
    bases = []
    for i, state in enumerate([FAILED, CANCELED, COMPLETED, REJECTED]):
        claim = await a.run(state=state, pin=Pin(generation=i + 10, crc32c="x"))
        bases.append(claim.base and claim.base.generation)
    bases.append((await a.claim()).base.generation)
    assert bases == [None, 10, 10, 12, 13]


async def test_a_claim_carries_the_snapshot_and_whose_it_is(bucket):
    """The claim names the task whose archive is restored, so that it is found after other tasks ended."""
    a = await bucket.host("a")
    done = await a.run(pin=Pin(generation=5, crc32c="x"))
    await a.run(state=FAILED)
    claim = await a.claim()
    assert (claim.base_ref, claim.base) == (done.ref, Pin(generation=5, crc32c="x"))


async def test_the_epoch_grows(bucket):
    """Every change of a context's record raises its epoch: claims and releases alike."""
    a = await bucket.host("a")
    epochs = []
    for _ in range(2):
        await a.run()
        epochs.append((await bucket.context()).epoch)
    await a.ledger.release(await a.claim())
    epochs.append((await bucket.context()).epoch)
    assert epochs == [1, 2, 4]


# ---------------------------------------------------------------- repeats


async def test_a_repeat_is_told_the_task_it_started(bucket):
    """The same message in the same context starts nothing; the same id with another content does."""
    a, b = await bucket.host("a"), await bucket.host("b")
    said = message("work", "m1")
    claim = await a.start(said=said)
    with pytest.raises(Repeated) as caught:
        await b.claim(said=message("work", "m1"))
    assert caught.value.ref == claim.ref
    await a.end(claim)
    with pytest.raises(Repeated):
        await b.claim(said=message("work", "m1"))
    assert (await b.claim(said=message("other", "m1"))).ref != claim.ref


async def test_a_repeat_in_another_context_is_another_message(bucket):
    """Message ids are known per context."""
    a = await bucket.host("a")
    await a.start("one", message("work", "m1"))
    assert await a.claim("two", message("work", "m1"))


async def test_a_repeat_of_a_claim_that_has_saved_nothing(bucket):
    """While its host lives the repeat is busy; once it is dead, the repeat is told of the FAILED task (rule idem)."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim(said=message("work", "m1"))
    with pytest.raises(ContextBusy):
        await b.claim(said=message("work", "m1"))
    await a.die()
    with pytest.raises(Repeated) as caught:
        await b.claim(said=message("work", "m1"))
    assert caught.value.ref == claim.ref
    assert (await b.record(claim.ref.task_id)).task.status.state == FAILED


async def test_a_released_message_may_be_sent_again(bucket):
    """A message that was answered without a task is no repeat: there is no task to answer with."""
    a = await bucket.host("a")
    await a.ledger.release(await a.claim(said=message("work", "m1")))
    assert await a.claim(said=message("work", "m1"))


async def test_only_the_last_32_messages_are_known(bucket):
    """A context remembers 32 messages, so its record stays small; the 33rd repeat runs again."""
    a = await bucket.host("a")
    for i in range(33):
        await a.end(await a.start(said=message("work", f"m{i}")))
    assert len((await bucket.context()).messages) == 32
    with pytest.raises(Repeated):
        await a.claim(said=message("work", "m1"))
    assert await a.claim(said=message("work", "m0"))


# ---------------------------------------------------------------- contexts that go from host to host


@pytest.fixture
async def travelled():
    """Host a, which has lost a claim on what it knew before, and b, which went on with the context `ctx` of a's."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        for host in (a, b, a):
            await host.run("before")
        await a.run(pin=Pin(generation=1, crc32c="x"))
        store.calls.clear()
        yield bucket, store, a, b


async def test_what_another_host_made_of_a_context_is_read_while_the_claim_is_on_its_way(travelled):
    """Record and active task are there when the claim turns out to be lost, and neither is read again."""
    _, store, a, b = travelled
    last = await b.run(pin=Pin(generation=2, crc32c="y"))
    gate = store.hold("put", "*/context.json")
    claiming = asyncio.create_task(a.claim())
    await until(lambda: store.count("get", task_key(last.ref)))
    gate.release()
    claim = await claiming
    assert (claim.base_ref, claim.base.generation) == (last.ref, 2)
    assert [store.count("get", key) for key in (context_key("ctx"), task_key(last.ref))] == [1, 1]


async def test_a_refusal_by_what_was_read_ahead_leaves_nothing(travelled):
    """The task that another host runs in the context is named, and the pointer of the lost claim goes."""
    bucket, _, a, b = travelled
    running = await b.start()
    before = await bucket.keys()
    with pytest.raises(ContextBusy) as caught:
        await a.claim()
    assert caught.value.active == running.ref
    assert await bucket.keys() == before


async def test_a_repeat_of_what_another_host_has_started_is_told_that_task(travelled):
    """A message that another host has taken is no new one here, though this host knows an older record."""
    _, _, a, b = travelled
    claim = await b.start(said=message("work", "m1"))
    await b.end(claim)
    with pytest.raises(Repeated) as caught:
        await a.claim(said=message("work", "m1"))
    assert caught.value.ref == claim.ref


async def test_a_dead_hosts_task_that_was_read_ahead_is_ended(travelled):
    """What was read ahead is judged as what is read later: the dead task fails, and the claim wins."""
    bucket, _, a, b = travelled
    dead = await b.start()
    await b.die()
    assert await a.claim()
    assert (await a.record(dead.ref.task_id)).task.status.state == FAILED
    assert (await bucket.context()).active.task_id != dead.ref.task_id


async def test_reading_ahead_in_vain_costs_no_claim(travelled):
    """Where nobody else has written, a read that fails or hangs changes nothing."""
    _, store, a, _ = travelled
    store.fail("get", "*/context.json")
    await a.end(await a.start())
    gate = store.hold("get", "*/context.json")
    await a.end(await a.start())
    gate.release()
    assert (await a.claim()).held
    assert not store.count("get", "*/task.json")


async def test_a_host_that_is_alone_reads_nothing_ahead():
    """A claim on what this process knows is one write, also after it has lost one to itself."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    await a.run()
    claims = [claim for claim in await outcomes([a.claim(), a.claim()]) if not isinstance(claim, ContextBusy)]
    await a.save(claims[0], WORKING)
    await a.end(claims[0])
    store.calls.clear()
    await a.claim()
    assert not store.count("get", "*/context.json")


# ---------------------------------------------------------------- giving back


@pytest.mark.parametrize("how", ["release", "surrender"])
async def test_a_claim_that_is_given_back_leaves_no_task(bucket, how):
    """Release and surrender free the context and take the pointer back; the ledger record stays."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim()
    await getattr(a.ledger, how)(claim)
    assert await bucket.keys() == [context_key("ctx")]
    assert (await bucket.context()).active is None
    assert claim.end is {"release": End.RELEASED, "surrender": End.SURRENDERED}[how]
    assert a.table.snapshot() == (2, {})
    assert await b.claim()


async def test_a_claim_that_was_taken_over_cannot_be_released(bucket):
    """The Message is not given when somebody has taken the context over meanwhile."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim()
    await a.die()
    taken = await b.claim()
    with pytest.raises(Fenced):
        await a.ledger.release(claim)
    assert (await bucket.context()).active.task_id == taken.ref.task_id
    assert not claim.held


async def test_a_release_that_nobody_knows_the_end_of():
    """The claim is held no more, so no task of it can appear beside the next one; its number is given back (I1)."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        claim = await a.claim()
        store.fail("put", "*/context.json", when="after")
        with pytest.raises(Unavailable):
            await a.ledger.release(claim)
        assert a.table.get(claim.ref.task_id) is None
        assert a.table.snapshot() == (2, {})
        assert await b.claim()


async def test_surrender_never_raises():
    """Where the bucket is away the claim still leaves the open list, so whoever meets it settles it."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        claim = await a.claim()
        store.fail("put", "*/context.json")
        await a.ledger.surrender(claim)
        await a.beat()
        assert await b.claim()
        assert (await b.record(claim.ref.task_id)).task.status.state == FAILED


async def test_a_pointer_that_cannot_be_taken_back_does_no_harm():
    """The context is free all the same, and the log names the pointer that was left."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.claim()
        store.fail("delete", "tasks/*")
        with capture_logs() as logs:
            await a.ledger.release(claim)
        assert [entry["event"] for entry in logs] == ["claim.pointer_left", "turn.ended"]
        assert await a.tasks.get(claim.ref.task_id, None) is None
        assert await a.claim()


# ---------------------------------------------------------------- pointers and faults


async def test_a_claim_that_was_surely_lost_takes_its_pointer_back():
    """A clean Conflict means that the claim never stood: nobody knows its task, and the pointer goes."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")

        async def rival(key):
            await b.start()

        store.act("put", "*/context.json", rival)
        where = ref()
        with pytest.raises(ContextBusy):
            await a.ledger.claim(where, message())
        assert pointer_key(where.task_id) not in await bucket.keys()


@pytest.mark.parametrize(("error", "told"), [(Conflict, Repeated), (Unavailable, Unavailable)])
async def test_a_claim_that_may_have_stood_keeps_its_pointer(error, told):
    """Somebody may have met the claim and be ending its task: without the pointer I3 would break (rule keep_ptr).

    A next try of the same request meets that claim, ends it and says which task that is.
    """
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        store.fail("put", "*/context.json", when="after", error=error, ambiguous=True)
        where = ref()
        with pytest.raises(told):
            await a.ledger.claim(where, message())
        assert pointer_key(where.task_id) in await bucket.keys()
        await a.beat()
        assert await b.claim()
        assert (await b.record(where.task_id)).task.status.state == FAILED


async def test_a_claim_without_its_pointer_is_given_back():
    """The pointer comes before task.json; when it cannot be written the claim is surrendered, not run (ptr_first)."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        store.fail("put", "tasks/*", error=Throttled)
        with pytest.raises(Throttled):
            await a.claim()
        assert await bucket.keys() == [context_key("ctx")]
        assert len(a.table) == 0
        assert await b.claim()


async def test_a_lease_that_lapses_while_a_claim_is_on_its_way():
    """The claim is given back instead of being run without a lease."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a", store), await bucket.host("b")
        gate = store.hold("put", "*/context.json", when="after")
        claiming = asyncio.create_task(a.claim())
        await gate.reached.wait()
        a.table.disown()
        a.table.lapse()
        gate.release()
        with pytest.raises(Contended):
            await claiming
        assert len(a.table) == 0
        assert await b.claim()


async def test_a_claim_that_is_cancelled_half_way():
    """Against the rule, but not fatal: its number is given back and its pointer kept, as the write may land."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a, b = await bucket.host("a", store), await bucket.host("b")
    gate = store.hold("put", "*/context.json", when="after")
    where = ref()
    claiming = asyncio.create_task(a.ledger.claim(where, message()))
    await gate.reached.wait()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await a.beat()
    assert a.table.snapshot() == (2, {})
    assert await b.claim()
    assert (await b.record(where.task_id)).task.status.state == FAILED


@pytest.mark.parametrize("patience", [0.0, 0.05])
async def test_a_contended_context(patience):
    """A claim waits, bounded, while others keep changing the context; then it says retry and leaves nothing."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store, patience=patience)
    store.fail("put", "*/context.json", times=10**6, error=Conflict)
    with pytest.raises(Contended) as caught:
        await a.claim()
    assert to_a2a_error(caught.value).data == {"reason": "CONTEXT_CONTENDED", "contextId": "ctx"}
    assert await bucket.keys() == []
    assert a.table.snapshot()[1] == {}


async def test_a_corrupt_ledger_record_is_left_alone(bucket):
    """A context.json that cannot be read is reported, and never replaced by a fresh one."""
    a = await bucket.host("a")
    await bucket.store.put(context_key("ctx"), b"{", OVERWRITE)
    with pytest.raises(CorruptRecord):
        await a.claim()
    assert (await bucket.store.get(context_key("ctx"))).body == b"{"
    assert await bucket.keys() == [context_key("ctx")]


async def test_a_busy_context_ends_with_its_task(bucket):
    """Refused while the task runs and while it waits, accepted once it has ended."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    for state in (WORKING, INPUT_REQUIRED):
        await (a.save(claim, state) if state == WORKING else a.park(claim, state))
        with pytest.raises(ContextBusy):
            await b.claim()
    await b.end(await b.answer(claim.ref.task_id))
    assert await b.claim()


# ---------------------------------------------------------------- the table of claims


async def test_the_table_tells_what_is_open():
    """A number is open from before its claim is sent until its outcome is durable; the snapshot is of one instant."""
    table = ClaimTable("h")
    first, second = table.allot(ref("c", "one")), table.allot(ref("c", "two"))
    assert (first, second) == (Owner(host="h", n=1), Owner(host="h", n=2))
    assert table.snapshot() == (3, {1: ("c", "one"), 2: ("c", "two")})
    table.close(first)
    assert table.snapshot() == (3, {2: ("c", "two")})


async def test_what_runs_for_a_claim_hears_of_its_end_once(bucket):
    """Only the first end of a claim counts, and who asks late is told at once."""
    a = await bucket.host("a")
    claim = await a.claim()
    heard = []
    claim.on_stop(lambda: heard.append("early"))
    a.table.lapse()
    a.table.finish(claim, End.CANCELED)
    claim.on_stop(lambda: heard.append("late"))
    assert heard == ["early", "late"]
    assert claim.end is End.LAPSED
    assert len(a.table) == 0
