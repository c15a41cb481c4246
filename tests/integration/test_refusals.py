"""One linear history per context: what is refused, how it is said, and that a refusal leaves nothing behind."""

import asyncio

import pytest

from tests.support.a2a_grpc import GRPC_BINDINGS
from tests.support.a2a_http import BINDINGS, JSONRPC_03, JSONRPC_10, REST_10, Refused
from tests.support.turns import running
from tests.support.untouched import untouched
from tests.support.waiting import until


async def refusal(call):
    with pytest.raises(Refused) as refused:
        await call
    return refused.value


async def first_of(events):
    try:
        return await anext(events)
    finally:
        await events.aclose()


def ask_again(client, way, text, **options):
    return client.send(text, **options) if way == "send" else first_of(client.stream(text, **options))


@pytest.fixture(params=[*BINDINGS, *GRPC_BINDINGS])
def binding(request):
    return request.param


@pytest.fixture(params=["send", "stream"])
def way(request):
    return request.param


async def test_a_running_task_refuses_the_next_one(shared, connect, fresh, binding, way):
    """-32004 CONTEXT_BUSY naming the task, as a plain error also of a stream, and no object is left behind."""
    task = await running(connect(shared), "sleep 60", context=fresh)
    async with untouched(shared.place, running=[task]):
        refused = await refusal(ask_again(connect(shared, binding), way, "hello", context=fresh))
    await connect(shared).cancel(task)
    assert refused.code == -32004
    assert refused.data == {
        "reason": "CONTEXT_BUSY",
        "contextId": fresh,
        "activeTaskId": task,
        "state": "TASK_STATE_WORKING",
    }
    assert task in refused.message
    assert "wait" in refused.message
    assert not refused.sse
    assert refused.status == {"jsonrpc": 200, "rest": 400, "grpc": "FAILED_PRECONDITION"}[binding.partition("-")[0]]


async def test_a_second_turn_of_a_running_task_is_refused(gcs_host, connect, fresh, binding, way):
    """An answer to a task that is running already is refused like a new task, and does not enter its history."""
    task = await running(connect(gcs_host), "sleep 60", context=fresh)
    async with untouched(gcs_host.place, running=[task]):
        refused = await refusal(ask_again(connect(gcs_host, binding), way, "hello", task=task))
    canceled = await connect(gcs_host).cancel(task)
    assert (refused.code, refused.data["activeTaskId"], refused.sse) == (-32004, task, False)
    assert canceled.said == ["sleep 60"]


async def test_of_twenty_parallel_messages_one_is_accepted(shared, connect, fresh):
    """20 parallel `sleep 1` to one fresh context: one completes, 19 are told which task blocks and leave nothing."""
    client = connect(shared)
    answers = await asyncio.gather(*(client.send("sleep 1", context=fresh) for _ in range(20)), return_exceptions=True)
    await _one_of(answers, fresh, shared.place)


async def test_of_twenty_parallel_messages_to_two_hosts_one_is_accepted(two_hosts, connect, fresh):
    """The same over two processes on one bucket."""
    clients = [connect(host) for host in two_hosts]
    answers = await asyncio.gather(
        *(clients[i % 2].send("sleep 1", context=fresh) for i in range(20)), return_exceptions=True
    )
    await _one_of(answers, fresh, two_hosts[0].place)


async def _one_of(answers, context, place):
    refusals = [a for a in answers if isinstance(a, Refused)]
    accepted = [a for a in answers if not isinstance(a, Exception)]
    assert len(accepted) == 1, answers
    assert len(refusals) == 19, answers
    assert {(r.code, r.data["reason"], r.data["activeTaskId"]) for r in refusals} == {
        (-32004, "CONTEXT_BUSY", accepted[0].id)
    }
    assert accepted[0].state == "completed"
    task = accepted[0].id
    assert set(await place.keys(f"contexts/{context}/")) == {
        f"contexts/{context}/{task}/task.json",
        f"contexts/{context}/{task}/workspace.tar.gz",
        f"contexts/{context}/context.json",
    }
    pointers = await place.keys("tasks/")
    owned = [key for key in pointers if (await place.read(key)).decode() == context]
    assert owned == [f"tasks/{task}/contextId.txt"]


@pytest.mark.parametrize("binding", [JSONRPC_10, JSONRPC_03, REST_10])
async def test_a_question_can_be_answered_by_task_id_alone_twice_in_a_row(shared, connect, fresh, binding):
    """Input-required is answered twice, by taskId alone; every turn keeps the context, and the history is in order."""
    client = connect(shared, binding)
    asked = await client.send("ask one?", context=fresh)
    again = await client.send("ask two?", task=asked.id)
    done = await client.send("that is all", task=asked.id)
    assert [(a.state, a.text) for a in (asked, again)] == [("input-required", "one?"), ("input-required", "two?")]
    assert {a.id for a in (asked, again, done)} == {asked.id}
    assert {a.context_id for a in (asked, again, done)} == {fresh}
    assert (done.state, done.text) == ("completed", "journal.md holds 3 messages")
    read = await client.get(asked.id)
    assert read.history == [
        ("user", "ask one?"),
        ("agent", "one?"),
        ("user", "ask two?"),
        ("agent", "two?"),
        ("user", "that is all"),
    ]


async def test_an_open_question_blocks_new_tasks(shared, connect, fresh, binding, way):
    """A parked task refuses a new one in its context, says that it waits for an answer, and nothing is written."""
    asked = await connect(shared).send("ask why?", context=fresh)
    async with untouched(shared.place):
        refused = await refusal(ask_again(connect(shared, binding), way, "hello", context=fresh))
        assert (refused.code, refused.data["activeTaskId"]) == (-32004, asked.id)
        assert refused.data["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "answer or cancel" in refused.message
    assert (await connect(shared).send("because", task=asked.id)).state == "completed"
    assert (await connect(shared).send("hello", context=fresh)).state == "completed"


async def test_of_simultaneous_answers_one_wins(two_hosts, connect, fresh):
    """Eight answers to one question over two hosts: one runs, seven are refused, and the history holds one answer."""
    clients = [connect(host) for host in two_hosts]
    asked = await clients[0].send("ask why?", context=fresh)
    answers = await asyncio.gather(
        *(clients[i % 2].send(f"answer {i}", task=asked.id) for i in range(8)), return_exceptions=True
    )
    accepted = [a for a in answers if not isinstance(a, Exception)]
    assert len(accepted) == 1, answers
    assert all(isinstance(a, Refused) and a.code == -32004 for a in answers if a is not accepted[0]), answers
    assert len((await clients[1].get(asked.id)).said) == 2


async def test_a_task_named_together_with_a_foreign_context_is_refused(shared, connect, fresh, binding, way):
    """A task of context A sent with contextId B: -32602, and nothing of either context changes."""
    asked = await connect(shared).send("ask why?", context=fresh)
    other = f"{fresh}-other"
    async with untouched(shared.place):
        refused = await refusal(ask_again(connect(shared, binding), way, "because", task=asked.id, context=other))
        assert refused.code == -32602
    assert (await connect(shared).get(asked.id)).raw == asked.raw
    await connect(shared).cancel(asked.id)


async def test_an_unknown_task_is_not_created(shared, connect, fresh, binding, way):
    """A message with an unknown taskId, with or without a context: -32001, and no new object."""
    async with untouched(shared.place):
        for options in ({}, {"context": fresh}):
            refused = await refusal(ask_again(connect(shared, binding), way, "hello", task="no-such-task", **options))
            assert (refused.code, refused.sse) == (-32001, False)


async def test_a_repeated_message_runs_once(shared, connect, fresh):
    """The same messageId and content again, at once and later: the same task, and the journal has it once."""
    client = connect(shared)
    first = await client.send("hello", context=fresh, message_id="m-1")
    repeats = [await client.send("hello", context=fresh, message_id="m-1") for _ in range(2)]
    assert [r.raw for r in repeats] == [first.raw, first.raw]
    streamed = [event async for event in client.stream("hello", context=fresh, message_id="m-1")]
    assert (streamed[-1].task.id, streamed[-1].state) == (first.id, "completed")
    assert await shared.place.files(fresh, first.id) == {"journal.md": "1. hello\n"}
    other = await client.send("other words", context=fresh, message_id="m-1")
    assert other.id != first.id


async def test_a_repeat_of_a_running_message_waits_for_its_task(gcs_host, connect, fresh):
    """A client's retry while the first try still runs gets the outcome of that one run."""
    client = connect(gcs_host)
    first = asyncio.create_task(client.send("sleep 1", context=fresh, message_id="m-1"))
    await until(lambda: _has_task(gcs_host.place, fresh))
    repeat = await client.send("sleep 1", context=fresh, message_id="m-1")
    assert repeat.raw == (await first).raw
    assert (repeat.state, repeat.text) == ("completed", "slept 1 s")


async def _has_task(place, context):
    return [key for key in await place.keys(f"contexts/{context}/") if key.endswith("task.json")]
