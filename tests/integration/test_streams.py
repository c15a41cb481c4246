"""Streams: dropped, taken up again, on this host or another, over running and parked tasks."""

import asyncio

import pytest

from tests.support.a2a_grpc import GRPC_BINDINGS
from tests.support.a2a_http import BINDINGS, JSONRPC_10, REST_10, whole
from tests.support.turns import running
from tests.support.waiting import until


@pytest.fixture
def gate(tmp_path):
    """A file that agents wait for."""
    return tmp_path / "gate"


def all_chunks(count):
    return "".join(f"[{n}]" for n in range(1, count + 1))


@pytest.mark.parametrize("binding", [*BINDINGS, *GRPC_BINDINGS])
async def test_a_client_that_goes_away_ends_nothing(shared, connect, fresh, binding):
    """The stream is dropped after its first event: the task completes and is stored, with all it made."""
    events = connect(shared, binding).stream("stream 5", context=fresh)
    task = (await anext(events)).task_id
    await events.aclose()
    client = connect(shared)
    done = await until(lambda: _ended(client, task))
    assert (done.state, done.text) == ("completed", "streamed 5 chunks")
    assert done.artifacts["stream"] == "".join(f"chunk {n} of 5\n" for n in range(1, 6))
    assert await shared.place.files(fresh, task) == {"journal.md": "1. stream 5\n"}


async def test_a_run_goes_on_without_its_client(two_hosts, connect, fresh, gate):
    """The agent is at work long after the stream was dropped, and what it does then is stored."""
    client = connect(two_hosts[0])
    task = await running(client, f"drip {gate} 1", context=fresh)
    had = len((await client.get(task)).artifacts.get("drip", ""))
    await until(lambda: _grown(client, task, had + 200), what="work without a client")
    gate.touch()
    done = await until(lambda: _ended(client, task))
    assert (done.state, done.artifacts) == ("completed", {"drip": all_chunks(int(done.text))})


async def _grown(client, task, size):
    read = await client.get(task)
    assert read.state == "working"
    return len(read.artifacts.get("drip", "")) > size


async def _ended(client, task):
    read = await client.get(task)
    return read if read.state in ("completed", "failed", "canceled") else None


@pytest.mark.parametrize("over", [(JSONRPC_10, 0), (JSONRPC_10, 1), (REST_10, 0), (REST_10, 1)])
async def test_snapshot_and_rest_hold_every_chunk_once(two_hosts, connect, fresh, gate, over):
    """A stream dropped half-way and taken up by subscribe, on this host or another, misses and repeats nothing."""
    binding, there = over
    client, other = connect(two_hosts[0], binding), connect(two_hosts[there], binding)
    events = client.stream(f"drip {gate} 40", context=fresh)
    seen = []
    async for event in events:
        seen.append(event)
        if len(seen) == 8:
            break
    await events.aclose()
    again = other.subscribe(seen[0].task_id)
    taken = [await anext(again)]
    assert taken[0].kind == "task"
    gate.touch()
    taken += [event async for event in again]
    assert taken[-1].state == "completed"
    count = int((await client.get(seen[0].task_id)).text)
    assert count >= 40
    assert whole(taken) == (await client.get(seen[0].task_id)).artifacts == {"drip": all_chunks(count)}


async def test_five_subscribers_hear_the_same(two_hosts, connect, fresh, gate):
    """Subscribers on both hosts, each from its own moment on, end with the same artifacts and the same last state."""
    clients = [connect(two_hosts[n % 2]) for n in range(5)]
    task = await running(clients[0], f"drip {gate} 30", context=fresh)

    async def listen(client):
        async for event in client.subscribe(task):
            heard[client].append(event)

    heard = {client: [] for client in clients}
    listeners = [asyncio.create_task(listen(client)) for client in clients]
    await until(lambda: all(heard.values()), what="the first event of every subscriber")
    gate.touch()
    await asyncio.gather(*listeners)
    stored = await clients[0].get(task)
    assert [events[-1].state for events in heard.values()] == ["completed"] * 5
    assert [whole(events) for events in heard.values()] == [stored.artifacts] * 5
    assert stored.artifacts["drip"] == all_chunks(int(stored.text))


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_subscriber_to_a_parked_task_hears_of_its_continuation(two_hosts, connect, fresh, elsewhere):
    """The first event is the task; then the stream waits, and hears how the task goes on, also from another host."""
    client, other = connect(two_hosts[0]), connect(two_hosts[1 if elsewhere else 0])
    asked = await client.send("ask why?", context=fresh)
    events = client.subscribe(asked.id)
    first = await anext(events)
    assert (first.kind, first.task.id, first.state) == ("task", asked.id, "input-required")
    rest = asyncio.create_task(_all(events))
    done, _ = await asyncio.wait({rest}, timeout=0.3)  # it neither ends nor repeats what was told
    assert not done
    await other.send("because", task=asked.id)
    heard = await rest
    assert heard[-1].state == "completed"
    assert "input-required" not in [event.state for event in heard]


async def _all(events):
    return [event async for event in events]


async def test_a_silent_agent_is_answered_for_at_once(two_hosts, connect, fresh, gate):
    """returnImmediately: the answer is there while the agent has emitted nothing and cannot until the test lets it."""
    client = connect(two_hosts[0])
    at_once = await client.send(f"mute {gate}", context=fresh, at_once=True)
    assert at_once.state in ("submitted", "working")
    assert at_once.said == [f"mute {gate}"]
    assert (await connect(two_hosts[1]).get(at_once.id)).state == at_once.state
    gate.touch()
    done = await until(lambda: _ended(client, at_once.id))
    assert (done.state, done.text) == ("completed", "spoke at last")


async def test_an_answer_to_a_silent_agent_is_taken_at_once(two_hosts, connect, fresh, gate):
    """returnImmediately of a further turn: the task with the answer in it, while the agent has emitted nothing yet."""
    client = connect(two_hosts[0])
    parked = await connect(two_hosts[1]).send("gather one 1", context=fresh)
    at_once = await client.send(f"mute {gate}", task=parked.id, at_once=True)
    assert (at_once.id, at_once.said[-1]) == (parked.id, f"mute {gate}")
    gate.touch()
    done = await until(lambda: _ended(client, parked.id))
    assert (done.state, done.text, done.artifacts) == ("completed", "spoke at last", {"one": "1"})


async def test_a_task_parked_here_and_answered_there_keeps_both_artifacts(two_hosts, connect, fresh):
    """Park on A, answer on B, which adds an artifact and parks, answer on A: no host resumes a stale snapshot."""
    a, b = (connect(host) for host in two_hosts)
    first = await a.send("gather one 1", context=fresh)
    second = await b.send("gather two 2", task=first.id)
    third = await a.send("gather three 3", task=first.id)
    fourth = await b.send("that is all", task=first.id)
    assert second.artifacts == {"one": "1", "two": "2"}
    assert third.artifacts == {"one": "1", "two": "2", "three": "3"}
    assert third.said == ["gather one 1", "gather two 2", "gather three 3"]
    assert fourth.state == "completed"
    for client in (a, b):
        read = await client.get(first.id)
        assert {k: v for k, v in read.artifacts.items() if k != "files"} == third.artifacts
