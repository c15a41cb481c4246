"""What a turn comes to, under the SDK's handler: one end, told and stored alike, or a Message."""

import asyncio

import pytest
from a2a.helpers import new_text_message
from a2a.types.a2a_pb2 import Message, Role, Task, TaskStatusUpdateEvent
from a2a.utils.errors import InternalError

from a2a_gcs.executors.turn_queue import AgentMistake
from a2a_gcs.layout import context_key
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    artifact,
    status,
)
from tests.support.turn_host import emits, makes, parked_or_ended, said, says


@pytest.mark.parametrize(
    ("events", "state", "text"),
    [
        ([says(COMPLETED, "done")], COMPLETED, "done"),
        ([says(WORKING), makes(), says(COMPLETED, "done")], COMPLETED, "done"),
        ([new_text_message("hi", role=Role.ROLE_AGENT)], COMPLETED, "hi"),
        ([Task(status=status(COMPLETED), artifacts=[artifact()])], COMPLETED, ""),
        ([says(INPUT_REQUIRED, "which?")], INPUT_REQUIRED, "which?"),
        ([says(INPUT_REQUIRED, "which?"), says(WORKING), says(COMPLETED, "none")], COMPLETED, "none"),
        ([says(AUTH_REQUIRED, "log in")], AUTH_REQUIRED, "log in"),
        ([says(AUTH_REQUIRED, "log in"), says(WORKING), says(COMPLETED, "in")], COMPLETED, "in"),
        ([says(COMPLETED, "first"), says(FAILED, "second")], COMPLETED, "first"),
        ([says(FAILED, "no")], FAILED, "no"),
        ([], FAILED, "The agent returned without an answer."),
        ([says(WORKING)], FAILED, "The agent returned before it had finished the task."),
        ([makes("x", append=True)], FAILED, "The agent failed: AgentMistake: the agent appended to artifact x"),
    ],
)
async def test_what_a_turn_comes_to(start, events, state, text):
    """Each turn ends in exactly one state, told and stored alike; an agent that forgot how ends in FAILED."""
    host = await start(emits(*events))
    answer = await host.send()
    if state == AUTH_REQUIRED or (len(events) > 1 and events[0].status.state == AUTH_REQUIRED):
        await parked_or_ended(host, answer.id)
    stored = await host.record(answer.id)
    assert (stored.task.status.state, stored.meta.open) == (state, False)
    assert said(stored.task).startswith(text)
    assert len(host.table) == 0


async def test_an_agent_that_raises(start):
    """The task fails and says with what; what it had said stays."""

    async def script(context, queue):
        await queue.enqueue_event(makes("kept"))
        raise KeyError("lost")

    host = await start(script)
    task = await host.send()
    assert (task.status.state, [x.artifact_id for x in task.artifacts]) == (FAILED, ["kept"])
    assert said(task) == "The agent failed: KeyError: 'lost'"


async def test_an_agent_that_cancels_itself(start):
    """Its own cancellation is a failure of the task, not of the host."""

    async def script(context, queue):
        raise asyncio.CancelledError

    task = await (await start(script)).send()
    assert (task.status.state, said(task)) == (FAILED, "The agent stopped itself before the task was done.")


async def test_an_agent_that_raises_after_its_end(start):
    """What it said last was wrong, if it then failed: the task fails."""

    async def script(context, queue):
        await queue.enqueue_event(says(COMPLETED))
        raise ValueError("after all")

    assert (await (await start(script)).send()).status.state == FAILED


async def test_a_wrong_task_id_is_an_error_where_it_is_made(start):
    """An agent that catches its own mistake may go on."""
    met = []

    async def script(context, queue):
        try:
            await queue.enqueue_event(TaskStatusUpdateEvent(task_id="other", status=status(WORKING)))
        except AgentMistake as e:
            met.append(str(e))
        await queue.enqueue_event(says(COMPLETED))

    task = await (await start(script)).send()
    assert task.status.state == COMPLETED
    assert "event of task other" in met[0]


@pytest.mark.parametrize("answers", ["task", "message"])
async def test_a_streamed_turn(start, answers):
    """A stream is the Task, the events, and one end."""
    host = await start(emits(says(WORKING), makes(), says(COMPLETED, "done")), answers=answers)
    events = [event async for event in host.send_stream()]
    assert [type(event).__name__ for event in events] == [
        "Task",
        "TaskStatusUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskStatusUpdateEvent",
    ]
    assert events[-1].status.state == COMPLETED


async def test_a_silent_agent_is_answered_at_once(start):
    """The host publishes the Task before the agent runs: returnImmediately waits for nobody."""
    go = asyncio.Event()

    async def script(context, queue):
        await go.wait()
        await queue.enqueue_event(says(COMPLETED))

    host = await start(script)
    task = await host.send(at_once=True)
    assert task.status.state == WORKING
    assert (await host.record(task.id)).meta.open
    go.set()
    await parked_or_ended(host, task.id)
    assert (await host.record(task.id)).task.status.state == COMPLETED


# ---------------------------------------------------------------- answers = message


async def test_a_message_is_the_whole_answer(start, bucket):
    """No task is left behind, and the context is free before the client has its answer."""

    async def script(context, queue):
        await queue.enqueue_event(new_text_message("hi", role=Role.ROLE_AGENT))

    host = await start(script, answers="message")
    answer = await host.send()
    assert isinstance(answer, Message)
    assert await bucket.keys() == [context_key("ctx")]
    assert (await bucket.context()).active is None
    assert isinstance(await host.send(), Message)


async def test_an_agent_that_raises_after_its_message(start, bucket):
    """The client has its answer; nothing is saved for a claim that is over."""

    async def script(context, queue):
        await queue.enqueue_event(new_text_message("hi", role=Role.ROLE_AGENT))
        raise ValueError("too late")

    host = await start(script, answers="message")
    assert isinstance(await host.send(), Message)
    assert await bucket.keys() == [context_key("ctx")]


async def test_a_message_that_cannot_be_given(start, bucket):
    """When the context cannot be freed the client is told to send again, and no task appears (rule release)."""

    async def script(context, queue):
        await queue.enqueue_event(new_text_message("hi", role=Role.ROLE_AGENT))

    async with FaultyStore(bucket.store) as store:
        host = await start(script, store=store, answers="message")
        store.fail("put", "*/context.json", nth=2, when="after")
        with pytest.raises(InternalError, match="send again"):
            await host.send()
        assert [key for key in await bucket.keys() if key.endswith("task.json")] == []
        assert len(host.table) == 0
        assert isinstance(await host.send(), Message)


async def test_silence_in_message_mode(start):
    """An agent that says nothing is a failed task there, too."""
    host = await start(emits(), answers="message")
    task = await host.send()
    assert (task.status.state, said(task)) == (FAILED, "The agent returned without an answer.")


async def test_a_message_in_a_further_turn(start):
    """A task that exists is completed by a Message, in either mode."""

    async def script(context, queue):
        if context.current_task and context.current_task.status.state == INPUT_REQUIRED:
            await queue.enqueue_event(new_text_message("thanks", role=Role.ROLE_AGENT))
        else:
            await queue.enqueue_event(says(INPUT_REQUIRED, "name?"))

    host = await start(script, answers="message")
    asked = await host.send()
    assert asked.status.state == INPUT_REQUIRED
    task = await host.send(task_id=asked.id)
    assert (task.id, task.status.state, said(task)) == (asked.id, COMPLETED, "thanks")
