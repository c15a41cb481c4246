"""Read back, cancel and fail closed: the five criteria that any server of A2A tasks can be held to."""

import uuid

import pytest

from tests.support.a2a_http import JSONRPC_03, JSONRPC_10, Refused
from tests.support.places import Place


@pytest.fixture(params=[JSONRPC_10, JSONRPC_03])
def client(shared, connect, request):
    return connect(shared, request.param)


async def test_a_task_reads_back_as_it_was_answered(client, fresh):
    """Criterion 1: the same id, context, artifact ids, timestamp and text; that tells a read from a second run."""
    sentinel = uuid.uuid4().hex
    answered = await client.send(f"write kept.txt {sentinel}", context=fresh)
    read = await client.get(answered.id)
    assert answered.state == "completed"
    assert (read.id, read.context_id, read.state) == (answered.id, fresh, "completed")
    assert answered.artifacts
    assert read.artifacts == answered.artifacts
    assert read.timestamp == answered.timestamp
    assert answered.timestamp is not None
    assert read.text == answered.text == "wrote 32 bytes to kept.txt"
    assert read.said == answered.said == [f"write kept.txt {sentinel}"]


async def test_what_an_artifact_holds_reads_back_unchanged(client, fresh):
    """Criterion 1: a sentinel sent through the agent stands in the artifact's text, in the answer and afterwards."""
    sentinel = uuid.uuid4().hex
    await client.send(f"write kept.txt {sentinel}", context=fresh)
    answered = await client.send("read kept.txt", context=fresh)
    assert (await client.get(answered.id)).artifacts["read"] == answered.artifacts["read"] == sentinel


async def test_an_unknown_id_is_not_found(client):
    """Criterion 2: -32001 `Task not found`, for get and for cancel, under HTTP 200."""
    for method in (client.get, client.cancel):
        with pytest.raises(Refused) as refused:
            await method(str(uuid.uuid4()))
        assert (refused.value.code, refused.value.message, refused.value.status) == (-32001, "Task not found", 200)


async def test_a_terminal_task_refuses_a_cancel_and_stays_as_it_is(client, shared, fresh):
    """Criterion 3: -32002, and neither state nor timestamp nor any object changes."""
    answered = await client.send("hello", context=fresh)
    before = await shared.place.versions(f"contexts/{fresh}/")
    with pytest.raises(Refused) as refused:
        await client.cancel(answered.id)
    assert (refused.value.code, refused.value.message) == (-32002, "Task cannot be canceled")
    read = await client.get(answered.id)
    assert (read.state, read.timestamp) == ("completed", answered.timestamp)
    assert await shared.place.versions(f"contexts/{fresh}/") == before


async def test_a_task_under_another_prefix_is_not_there(hosts, make_place, connect, fresh):
    """Criterion 4: through a host over another prefix of the bucket a task is unknown; through its own it is there."""
    bucket = make_place("gcs")
    one, two = (hosts(Place(f"{bucket.uri}/{name}", bucket.env)) for name in ("p1", "p2"))
    first, second = connect(one), connect(two)
    answered = await first.send("hello", context=fresh)
    for method in (
        second.get,
        second.cancel,
        lambda i: second.send("and?", task=i),
        lambda i: anext(second.subscribe(i)),
    ):
        with pytest.raises(Refused) as refused:
            await method(answered.id)
        assert refused.value.code == -32001
    assert (await first.get(answered.id)).state == "completed"  # the control: not everything is -32001
    assert (await second.send("hello", context=fresh)).text == "journal.md holds 1 message"
    assert {key.split("/")[0] for key in await bucket.keys()} == {"p1", "p2"}


async def test_canceling_a_running_task_ends_it(client, fresh):
    """Criterion 5: a run canceled as soon as its id is known answers canceled, and reads back canceled."""
    events = client.stream("sleep 60", context=fresh)
    first = await anext(events)
    assert (await client.cancel(first.task_id)).state == "canceled"
    assert (await client.get(first.task_id)).state == "canceled"
    await events.aclose()
    assert (await client.send("hello", context=fresh)).state == "completed"
