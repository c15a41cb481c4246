"""Answers to a parked task: one wins, by compare-and-swap on task.json alone, on whatever host."""

import asyncio
from collections import Counter

import pytest

from a2a_gcs.claims import End
from a2a_gcs.errors import Unavailable
from a2a_gcs.layout import TaskRef, context_key, task_key
from a2a_gcs.ledger.errors import Contended, ContextBusy, ContextMismatch, TaskEnded, TaskMissing
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.records import TURN_STRIDE, Owner, Pin
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    WORKING,
    Bucket,
    artifact,
    message,
)


@pytest.fixture
def bucket():
    return Bucket()


async def parked(host, state=INPUT_REQUIRED, pin=None):
    claim = await host.start()
    await host.park(claim, state, pin)
    return claim.ref


@pytest.mark.parametrize("kind", ["memory", "local"])
async def test_one_answer_wins(kind, tmp_path):
    """Of 20 simultaneous answers on two hosts exactly one claims the turn; only its message is in the history."""
    bucket = Bucket(LocalStore(tmp_path / "bucket") if kind == "local" else None)
    hosts = [await bucket.host("a"), await bucket.host("b")]
    where = await parked(hosts[0])
    keys = await bucket.keys()
    answers = [message(f"answer {i}") for i in range(20)]
    results = await asyncio.gather(
        *(hosts[i % 2].answer(where.task_id, said) for i, said in enumerate(answers)), return_exceptions=True
    )
    winners = [r for r in results if not isinstance(r, BaseException)]
    assert Counter(type(r) for r in results if r not in winners) == {ContextBusy: 19}
    [winner] = winners
    stored = await hosts[0].record(where.task_id)
    assert (stored.meta.owner, stored.meta.turn, stored.meta.open) == (str(winner.owner), 2, True)
    assert [m.message_id for m in stored.task.history] == [answers[results.index(winner)].message_id]
    assert await bucket.keys() == keys


async def test_a_turn_enters_with_its_message(bucket):
    """The claim of a turn moves the question into the history, adds the answer with the task's ids, and keeps state."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    task = claim.record.copy_task()
    task.status.state = INPUT_REQUIRED
    question = message("which?", "q")
    task.status.message.CopyFrom(question)
    event = object()
    claim.park_with(event)
    await a.save_task(task, event)
    await b.answer(claim.ref.task_id, message("that one", "w"))
    stored = await a.record(claim.ref.task_id)
    assert [m.message_id for m in stored.task.history] == ["q", "w"]
    assert (stored.task.history[1].task_id, stored.task.history[1].context_id) == (claim.ref.task_id, "ctx")
    assert not stored.task.status.HasField("message")
    assert stored.task.status.state == INPUT_REQUIRED
    assert (stored.meta.was, stored.meta.turn, stored.meta.seq) == ("TASK_STATE_INPUT_REQUIRED", 2, 2 * TURN_STRIDE)


async def test_a_turn_resumes_its_own_archive(bucket):
    """An answered task starts from what it left itself, not from what other tasks completed."""
    a, b = await bucket.host("a"), await bucket.host("b")
    await a.run(pin=Pin(generation=3, crc32c="x"))
    where = await parked(a, pin=Pin(generation=8, crc32c="y"))
    turn = await b.answer(where.task_id)
    assert (turn.base, turn.base_ref, turn.workspace_generation) == (Pin(generation=8, crc32c="y"), where, 8)


async def test_answers_alternate_between_hosts(bucket):
    """Two answers in a row on two hosts, by the task's id alone; the versions grow, and the artifacts of both stay."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    versions = [(await a.record(where.task_id)).meta.seq]
    for i, host in enumerate([b, a, b]):
        turn = await host.answer(where.task_id)
        await host.save(turn, WORKING, artifact(f"a{i}"))
        await host.park(turn)
        versions.append((await a.record(where.task_id)).meta.seq)
    stored = await a.record(where.task_id)
    assert [x.artifact_id for x in stored.task.artifacts] == ["a0", "a1", "a2"]
    assert stored.meta.turn == 4
    assert versions == sorted(set(versions))


async def test_an_answer_to_a_running_task_is_refused(bucket):
    """The turn runs: the answer is refused, and nothing is written."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    before = await a.record(claim.ref.task_id)
    with pytest.raises(ContextBusy) as caught:
        await b.answer(claim.ref.task_id)
    assert (caught.value.active, caught.value.waits) == (claim.ref, False)
    assert (await a.record(claim.ref.task_id)).version == before.version


async def test_auth_required_is_no_parked_state_while_its_turn_is_open(bucket):
    """AUTH_REQUIRED passes while the agent goes on: parked is the flag, not the state (rule turnflag)."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    await a.save(claim, AUTH_REQUIRED)
    with pytest.raises(ContextBusy):
        await b.answer(claim.ref.task_id)


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELED, REJECTED])
async def test_an_answer_to_an_ended_task_is_refused(bucket, state):
    """A terminal task takes no more messages, and its record is untouched."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.run(state=state)
    before = await a.record(claim.ref.task_id)
    with pytest.raises(TaskEnded):
        await b.answer(claim.ref.task_id)
    assert (await a.record(claim.ref.task_id)).version == before.version


async def test_an_answer_to_nobody(bucket):
    """An unknown task is not created by an answer."""
    a = await bucket.host("a")
    with pytest.raises(TaskMissing):
        await a.answer("unknown")
    assert await bucket.keys() == []


async def test_an_answer_in_the_wrong_context(bucket):
    """A message that names another context than its task's is refused; the task stays parked."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    with pytest.raises(ContextMismatch):
        await b.ledger.take_turn(where.task_id, "other", message())
    assert await b.ledger.take_turn(where.task_id, "ctx", message())


async def test_an_answer_to_a_dead_hosts_task(bucket):
    """Its host died in the middle of the turn: the task is settled first, and the answer is refused."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    await a.die()
    with pytest.raises(TaskEnded) as caught:
        await b.answer(claim.ref.task_id)
    assert caught.value.state == "TASK_STATE_FAILED"


async def test_a_turn_that_did_not_start_is_parked_again(bucket):
    """A surrendered turn leaves the task as it was, open to the next answer, and its ledger record alone."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    turn = await b.answer(where.task_id)
    epoch = (await bucket.context()).epoch
    await b.ledger.surrender(turn)
    stored = await a.record(where.task_id)
    assert stored.parked
    assert stored.meta.seq > 2 * TURN_STRIDE
    assert turn.end is End.SURRENDERED
    assert b.table.snapshot()[1] == {}
    assert (await bucket.context()).epoch == epoch
    assert (await a.answer(where.task_id)).turn == 3


async def test_a_turn_that_was_canceled_meanwhile_is_not_parked_again(bucket):
    """Surrender writes only over what the claim wrote: a CANCELED that came first stays."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    turn = await b.answer(where.task_id)
    await a.tasks.cancel(where.task_id)
    await b.ledger.surrender(turn)
    assert (await a.record(where.task_id)).task.status.state == CANCELED


async def test_an_answer_whose_fate_is_unknown(bucket):
    """The write may have been made: its number is given back, so the turn is dead instead of running for ever."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        where = await parked(a)
        store.fail("put", "*/task.json", when="after")
        with pytest.raises(Unavailable):
            await b.answer(where.task_id)
        assert b.table.snapshot() == (2, {})
        await b.beat()
        assert (await a.tasks.read(where.task_id)).task.status.state == FAILED


async def test_a_contended_turn(bucket):
    """An answer waits, bounded, while others keep writing the task; then it says retry."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store, patience=0.0)
        where = await parked(a)

        async def somebody(key):
            seen = await a.record(where.task_id)
            await a.records.write(seen, seen.task, seen.meta)

        store.act("put", "*/task.json", somebody)
        with pytest.raises(Contended):
            await b.answer(where.task_id)
        assert (await a.record(where.task_id)).parked


async def test_a_lapse_while_an_answer_is_on_its_way(bucket):
    """The turn is parked again instead of being run without a lease."""
    async with FaultyStore(bucket.store) as store:
        a, b = await bucket.host("a"), await bucket.host("b", store)
        where = await parked(a)
        gate = store.hold("put", "*/task.json", when="after")
        answering = asyncio.create_task(b.answer(where.task_id))
        await gate.reached.wait()
        b.table.disown()
        b.table.lapse()
        gate.release()
        with pytest.raises(Contended):
            await answering
        assert (await a.record(where.task_id)).parked


async def test_a_turn_takes_no_ledger_write(bucket):
    """A turn is claimed on task.json alone: one read of it, one write of it (rule turncas)."""
    store = FaultyStore(bucket.store)
    a, b = await bucket.host("a"), await bucket.host("b", store)
    where = await parked(a)
    store.calls.clear()
    await b.answer(where.task_id)
    assert context_key("ctx") not in [key for _, key in store.calls]
    assert [call for call in store.calls if call[0] != "get"] == [("put", task_key(where))]


async def test_a_task_that_something_else_wrote_can_be_answered(bucket):
    """A non-terminal task.json without metadata is parked: nobody runs it, so its next turn can be taken."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    await bucket.overwrite_task(where, (await bucket.store.get(task_key(where))).body)
    turn = await b.answer(where.task_id)
    assert (turn.ref, turn.turn, turn.owner) == (TaskRef("ctx", where.task_id), 1, Owner(host="b", n=1))
