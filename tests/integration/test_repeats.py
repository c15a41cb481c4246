"""A client's retry over two hosts of one bucket, on every binding: one task, one run."""

import asyncio

import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_grpc import GRPC_BINDINGS
from tests.support.a2a_http import BINDINGS, JSONRPC_10
from tests.support.host_thread import serve_in_thread


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The demo agent on two hosts, over one store in memory."""
    store, work = MemoryStore(), tmp_path_factory.mktemp("work")
    with (
        serve_in_thread(store, work_dir=work / "a", grpc_port=0) as a,
        serve_in_thread(store, work_dir=work / "b", grpc_port=0) as b,
    ):
        yield a, b


@pytest.fixture(params=[*BINDINGS, *GRPC_BINDINGS])
def binding(request):
    return request.param


@pytest.fixture(params=[JSONRPC_10, GRPC_BINDINGS[0]])
def new_binding(request):
    return request.param


async def streamed(client, text, **options):
    return [event async for event in client.stream(text, **options)]


async def test_ten_tries_at_a_time(pair, connect, fresh, binding):
    """Blocking and streaming tries of one message race on both hosts: all get one task, and its end."""
    clients = [connect(host, binding) for host in pair]
    say = {"context": fresh, "message_id": "m-1"}
    answers, streams = await asyncio.gather(
        asyncio.gather(*(clients[i % 2].send("hello", **say) for i in range(6))),
        asyncio.gather(*(streamed(clients[i % 2], "hello", **say) for i in range(4))),
    )
    [task] = {answer.id for answer in answers}
    assert {answer.state for answer in answers} == {"completed"}
    assert [(events[-1].state, events[0].task_id) for events in streams] == [("completed", task)] * 4
    assert await pair[0].place.files(fresh, task) == {"journal.md": "1. hello\n"}


async def test_a_repeated_answer(pair, connect, fresh, binding):
    """The answer to a question, sent again on either host when it has long been taken: the same task, no turn more."""
    here, there = (connect(host, binding) for host in pair)
    asked = await here.send("ask colour?", context=fresh)
    answer = {"task": asked.id, "context": fresh, "message_id": "m-2"}
    first = await here.send("blue", **answer)
    assert first.state == "completed"
    assert (await there.send("blue", **answer)).raw == first.raw
    again = await streamed(there, "blue", **answer)
    assert [(event.task_id, event.state) for event in again] == [(asked.id, "completed")]
    assert (await there.get(asked.id)).said == ["ask colour?", "blue"]


async def test_a_repeat_while_the_original_runs(pair, connect, fresh, new_binding):
    """The stream of a repeat is that of the task: as it is, and then all until its end."""
    here, there = (connect(host, new_binding) for host in pair)
    say = {"context": fresh, "message_id": "m-3"}
    events = here.stream("sleep 0.5", **say)
    first = await anext(events)
    repeated = asyncio.create_task(streamed(there, "sleep 0.5", **say))
    original = [first, *[event async for event in events]]
    assert (await repeated)[0].task_id == first.task_id
    assert (await repeated)[-1].state == original[-1].state == "completed"


async def test_other_content_and_other_contexts_are_new(pair, connect, fresh, new_binding):
    """One id does not make a repeat."""
    here, there = (connect(host, new_binding) for host in pair)
    tasks = [
        await here.send("hello", context=fresh, message_id="m-4"),
        await there.send("hello!", context=fresh, message_id="m-4"),
        await there.send("hello", context=f"{fresh}-2", message_id="m-4"),
        await here.send("hello", message_id="m-4"),
        await there.send("hello", message_id="m-4"),
    ]
    assert len({task.id for task in tasks}) == 5
