"""Agents that answer with a plain Message, in either mode."""

import pytest

from tests.integration.conftest import SCRIPTED
from tests.support.a2a_http import BINDINGS


@pytest.fixture(scope="module")
def message_host(start_host, make_place):
    """The scripted agent with answers=message."""
    return start_host(make_place("gcs"), agent=SCRIPTED, answers="message")


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_message_leaves_no_task_behind(message_host, connect, fresh, binding):
    """The answer is the Message; there is neither task.json nor pointer, and the context is free."""
    client = connect(message_host, binding)
    pointers = await message_host.place.keys("tasks/")
    answer = await client.send("message good day", context=fresh)
    assert (answer.state, answer.text) == (None, "good day")
    (event,) = [event async for event in client.stream("message and again", context=fresh)]
    assert (event.kind, event.text) == ("message", "and again")
    assert await message_host.place.keys(f"contexts/{fresh}/") == [f"contexts/{fresh}/context.json"]
    assert await message_host.place.keys("tasks/") == pointers
    assert (await message_host.place.read_json(f"contexts/{fresh}/context.json"))["active"] is None


async def test_an_agent_in_message_mode_can_still_make_tasks(message_host, connect, fresh):
    """What the agent emits decides: its task is stored like any other."""
    client = connect(message_host)
    await client.send("message good day", context=fresh)
    task = await client.send("hello", context=fresh)
    assert (task.state, task.text) == ("completed", "journal.md holds 1 message")
    assert (await client.get(task.id)).raw == task.raw


async def test_in_task_mode_a_message_is_the_status_of_a_completed_task(two_hosts, connect, fresh):
    """By default every message becomes a task: the agent's Message is what its status says."""
    client = connect(two_hosts[0])
    answer = await client.send("message good day", context=fresh)
    assert (answer.state, answer.text) == ("completed", "good day")
    read = await connect(two_hosts[1]).get(answer.id)
    assert (read.state, read.text, read.timestamp) == ("completed", "good day", answer.timestamp)
