"""Terminal states: how a task comes to `canceled`, and that no terminal task ever changes again."""

import asyncio
import contextlib

import pytest

from tests.support.a2a_http import BINDINGS, REST_03, Refused
from tests.support.turns import running
from tests.support.untouched import untouched
from tests.support.waiting import until


async def code_of(call):
    with pytest.raises(Refused) as refused:
        await call
    assert not refused.value.sse
    return refused.value.code


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("text", ["hello", "fail", "canceled"])
async def test_a_terminal_task_takes_nothing_more(gcs_host, connect, fresh, binding, text):
    """Message (streaming or not) and subscribe answer -32004, cancel -32002; no object changes."""
    client, first = connect(gcs_host, binding), connect(gcs_host)
    if text == "canceled":
        task = await first.cancel(await running(first, "sleep 60", context=fresh))
    else:
        task = await first.send(text, context=fresh)
    async with untouched(gcs_host.place):
        assert await code_of(client.send("more", task=task.id)) == -32004
        assert await code_of(anext(client.stream("more", task=task.id))) == -32004
        assert await code_of(anext(client.subscribe(task.id))) == -32004
        assert await code_of(client.cancel(task.id)) == -32002
    read = await first.get(task.id)
    assert (read.state, read.timestamp) == (task.state, task.timestamp)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_unknown_task_is_not_found_by_any_method(shared, connect, binding):
    """Get, subscribe and cancel of a task that never was: a plain -32001 on every binding, and nothing is created."""
    client = connect(shared, binding)
    async with untouched(shared.place):
        assert await code_of(client.get("never-was")) == -32001
        assert await code_of(anext(client.subscribe("never-was"))) == -32001
        assert await code_of(client.cancel("never-was")) == -32001


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_cancel_stops_the_agent(two_hosts, connect, fresh, tmp_path, elsewhere):
    """Whichever host is asked: the agent stops, whoever waits for its task hears of it, and the context is free."""
    ticks = tmp_path / "ticks"
    here, there = connect(two_hosts[0]), connect(two_hosts[1 if elsewhere else 0])
    waiting = asyncio.create_task(here.send(f"tick {ticks}", context=fresh))
    await until(ticks.exists)
    task = await until(lambda: _task_of(here, fresh))
    canceled = await there.cancel(task)
    assert (canceled.id, canceled.state) == (task, "canceled")
    await until(lambda: ticks.read_text().endswith("stopped\n"), what="the end of the agent")
    answered = await waiting
    assert (answered.state, answered.timestamp) == ("canceled", canceled.timestamp)
    assert (await there.send("hello", context=fresh)).state == "completed"


async def _task_of(client, context):
    return next((task["id"] for task in (await client.list(contextId=context))["tasks"]), None)


async def test_a_cancel_while_the_agent_streams_is_final(two_hosts, connect, fresh, tmp_path):
    """Updates that come late revert nothing: canceled stays, with its timestamp, and the stream ends with it."""
    client, other = connect(two_hosts[0]), connect(two_hosts[1])
    events = client.stream(f"drip {tmp_path / 'never'} 1", context=fresh)
    task = (await anext(events)).task_id
    canceled = await client.cancel(task)
    seen = [event async for event in events]
    assert seen[-1].state == "canceled"
    assert (await client.send("hello", context=fresh)).state == "completed"
    for reader in (client, other):
        read = await reader.get(task)
        assert (read.state, read.timestamp) == ("canceled", canceled.timestamp)


async def test_an_agent_that_ignores_its_cancel_changes_nothing(two_hosts, connect, fresh, tmp_path):
    """The answer and the stored task say canceled while the agent still runs, and after it has completed."""
    client, gate = connect(two_hosts[0]), tmp_path / "gate"
    task = await running(client, f"deaf {gate}", context=fresh)
    canceled = await client.cancel(task)
    assert canceled.state == "canceled"
    assert (await client.send("hello", context=fresh)).text == "journal.md holds 1 message"
    gate.touch()
    await until((tmp_path / "gate.done").exists)
    read = await connect(two_hosts[1]).get(task)
    assert (read.state, read.timestamp, read.artifacts) == ("canceled", canceled.timestamp, {})


async def test_fifty_cancels_that_race_completion_agree_with_the_store(shared, connect, fresh):
    """Sent as the agent says its last word: answer, end of the stream and stored state agree, whoever came first."""
    client, few = connect(shared), asyncio.Semaphore(5)
    outcomes = await asyncio.gather(*(_race(client, f"{fresh}-{n}", few) for n in range(50)))
    for canceled, streamed, stored in outcomes:
        assert stored in ("completed", "canceled")
        assert streamed == stored
        assert canceled == (-32002 if stored == "completed" else "canceled")


async def _race(client, context, few):
    async with few:
        events = client.stream("hello", context=context)
        async for event in events:
            if event.kind == "artifact":
                break
        return await _cancel_now(client, events, event.task_id)


async def _cancel_now(client, events, task):
    last = asyncio.create_task(_last(events))
    try:
        answer = (await client.cancel(task)).state
    except Refused as refused:
        answer = refused.code
    return answer, await last, (await client.get(task)).state


async def _last(events):
    async for event in events:
        last = event
    return last.state


async def test_a_parked_task_can_be_canceled(shared, connect, fresh):
    """Input-required ends in canceled, which frees the context; its files are not resumed from."""
    client = connect(shared)
    asked = await client.send("ask why?", context=fresh)
    canceled = await client.cancel(asked.id)
    assert (canceled.state, (await client.get(asked.id)).state) == ("canceled", "canceled")
    assert (await client.send("hello", context=fresh)).text == "journal.md holds 1 message"


async def test_a_cancel_over_rest_0_3_is_the_same(gcs_host, connect, fresh):
    """The oldest binding ends a run like the newest."""
    client = connect(gcs_host, REST_03)
    task = await running(client, "sleep 60", context=fresh)
    assert (await client.cancel(task)).state == "canceled"
    with contextlib.suppress(Refused):
        await client.cancel(task)
    assert (await client.get(task)).state == "canceled"
