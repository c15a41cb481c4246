"""A client's retry runs nothing twice: the first message of a task, and its answers, over hosts."""

import asyncio

import pytest

from a2a_gcs.ledger.errors import ContextBusy, Repeated, TaskEnded
from tests.support.hosts import COMPLETED, FAILED, message


async def parked(host):
    claim = await host.start()
    await host.park(claim)
    return claim.ref


def answer():
    return message("blue", "m-2")


async def test_a_repeated_answer_is_told_its_task(bucket):
    """While the turn runs, once the task waits again, and when it has ended: the same task, and no turn more."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    turn = await a.answer(where.task_id, answer())

    async def repeat():
        with pytest.raises(Repeated) as caught:
            await b.answer(where.task_id, answer())
        assert caught.value.ref == where
        return (await b.record(where.task_id)).meta.turn

    assert await repeat() == 2
    again = answer()
    again.task_id = where.task_id
    assert await b.ledger.started_by(again) == where  # what a full host looks for
    await a.park(turn)
    assert await repeat() == 2
    await a.end(await a.answer(where.task_id), COMPLETED)
    assert await repeat() == 3


async def test_other_words_are_another_answer(bucket):
    """The same id with another content is no repeat, nor is a message without an id."""
    a = await bucket.host("a")
    where = await parked(a)
    turn = await a.answer(where.task_id, answer())
    with pytest.raises(ContextBusy):
        await a.answer(where.task_id, message("red", "m-2"))
    await a.end(turn, COMPLETED)
    with pytest.raises(TaskEnded):
        await a.answer(where.task_id, message("red", "m-2"))


async def test_one_answer_sent_twice_at_a_time(bucket):
    """Of twenty tries of one answer on two hosts one is the answer, and the others are told so."""
    hosts = [await bucket.host("a"), await bucket.host("b")]
    where = await parked(hosts[0])
    tries = await asyncio.gather(
        *(hosts[i % 2].answer(where.task_id, answer()) for i in range(20)), return_exceptions=True
    )
    assert sum(isinstance(one, Repeated) for one in tries) == 19
    assert [said.message_id for said in (await hosts[0].record(where.task_id)).task.history].count("m-2") == 1


async def test_an_answer_that_never_ran_may_be_sent_again(bucket):
    """A turn that was given back before its agent started leaves no trace of its answer."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    await a.ledger.surrender(await a.answer(where.task_id, answer()))
    again = await b.answer(where.task_id, answer())
    assert [said.message_id for said in again.record.task.history] == ["m-2"]


async def test_an_answer_whose_host_died(bucket):
    """The repeat is told of the task as it was ended."""
    a, b = await bucket.host("a"), await bucket.host("b")
    where = await parked(a)
    await a.answer(where.task_id, answer())
    await a.die()
    with pytest.raises(Repeated):
        await b.answer(where.task_id, answer())
    assert (await b.record(where.task_id)).task.status.state == FAILED


async def test_a_retry_that_overtakes_its_original(bucket):
    """While the original has claimed and stored nothing yet, its repeat elsewhere waits for its task."""
    a, b = await bucket.host("a"), await bucket.host("b", repeat_wait=60.0)
    claim = await a.claim(said=message("work", "m-1"))
    repeat = asyncio.create_task(b.claim(said=message("work", "m-1")))
    done, _ = await asyncio.wait({repeat}, timeout=0.05)
    assert not done
    await a.save(claim)
    with pytest.raises(Repeated) as caught:
        await repeat
    assert caught.value.ref == claim.ref


async def test_a_retry_waits_for_no_dead_host(bucket):
    """Where the original's host is gone, the repeat ends its claim and is told of that."""
    a, b = await bucket.host("a"), await bucket.host("b", repeat_wait=60.0)
    claim = await a.claim(said=message("work", "m-1"))
    repeat = asyncio.create_task(b.claim(said=message("work", "m-1")))
    await asyncio.wait({repeat}, timeout=0.05)
    await a.die()
    with pytest.raises(Repeated):
        await repeat
    assert (await b.record(claim.ref.task_id)).task.status.state == FAILED
