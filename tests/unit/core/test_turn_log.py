"""The line that a turn leaves in the log: one, however it ended, and never with what agents say."""

import asyncio

import pytest
from a2a.helpers import new_text_message
from a2a.types.a2a_pb2 import Role
from structlog.testing import capture_logs

from tests.support.faulty_store import FaultyStore
from tests.support.hosts import AUTH_REQUIRED, COMPLETED, FAILED, INPUT_REQUIRED, REJECTED, WORKING
from tests.support.turn_host import emits, makes, parked_or_ended, says


async def raises(context, queue):
    raise ValueError("secret")


async def mistakes(context, queue):
    await queue.enqueue_event(makes("x", append=True))


async def waits(context, queue):
    await queue.enqueue_event(says(WORKING, "secret"))
    await asyncio.Event().wait()


def ended(logs):
    """The lines of turns that have ended, each as (end, state, reason)."""
    lines = [line for line in logs if line["event"] == "turn.ended"]
    assert all(line["log_level"] == "info" and line["seconds"] >= 0 for line in lines)
    return [(line["end"], line.get("state"), line.get("reason")) for line in lines]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (emits(says(COMPLETED, "secret")), ("terminal", "TASK_STATE_COMPLETED", None)),
        (emits(says(REJECTED, "secret")), ("terminal", "TASK_STATE_REJECTED", None)),
        (emits(says(INPUT_REQUIRED, "secret")), ("parked", "TASK_STATE_INPUT_REQUIRED", None)),
        (emits(says(FAILED, "secret")), ("terminal", "TASK_STATE_FAILED", "the agent said so")),
        (emits(), ("terminal", "TASK_STATE_FAILED", "The agent returned without an answer.")),
        (raises, ("terminal", "TASK_STATE_FAILED", "the agent raised ValueError")),
    ],
)
async def test_each_turn_leaves_one_line(start, script, line):
    """It names the task, how it stands and why it failed; what the agent says is not in it."""
    host = await start(script)
    with capture_logs() as logs:
        task = await host.send()
    assert ended(logs) == [line]
    (told,) = [line for line in logs if line["event"] == "turn.ended"]
    assert (told["task_id"], told["context_id"], told["turn"]) == (task.id, "ctx", 1)
    assert "secret" not in str(told)


async def test_a_mistake_that_the_host_found_is_told(start):
    """Its words are the host's."""
    host = await start(mistakes)
    with capture_logs() as logs:
        await host.send()
    ((_, _, reason),) = ended(logs)
    assert "appended to artifact x" in reason


async def test_a_limit_of_the_host_is_named(start):
    """Whoever set it finds it in the log."""
    host = await start(waits, longest_run=0.05)
    with capture_logs() as logs:
        await host.send()
    ((_, state, reason),) = ended(logs)
    assert state == "TASK_STATE_FAILED"
    assert "max_run_seconds" in reason


async def test_a_long_reason_is_cut(start):
    """An error may quote whole pages, and a collector drops lines that are too long."""

    async def script(context, queue):
        await queue.enqueue_event(makes("x" * 5000, append=True))

    host = await start(script)
    with capture_logs() as logs:
        await host.send()
    ((_, _, reason),) = ended(logs)
    assert len(reason) == 500


async def test_every_turn_of_a_task_leaves_its_own(start):
    """An answer is a turn of the same task."""
    host = await start(emits(says(INPUT_REQUIRED)))
    with capture_logs() as logs:
        task = await host.send()
        host.agent.script = emits(says(COMPLETED))
        await host.send(task_id=task.id)
    turns = [(line["task_id"], line["turn"], line["end"]) for line in logs if line["event"] == "turn.ended"]
    assert turns == [(task.id, 1, "parked"), (task.id, 2, "terminal")]


async def test_a_reason_is_that_of_its_turn(start):
    """What was to be a failure, and could not be one, is not told of a later turn."""
    host = await start(raises)
    with capture_logs() as logs:
        await host.send()
        host.agent.script = emits(says(FAILED))
        await host.send()
    assert [reason for _, _, reason in ended(logs)] == ["the agent raised ValueError", "the agent said so"]


async def test_a_canceled_turn(start):
    """The host that ran it tells; how the run then comes to its end is no second line."""
    host = await start(waits)
    task = await host.send(at_once=True)
    with capture_logs() as logs:
        await host.cancel(task.id)
        await host.agent.left.wait()
    assert ended(logs) == [("canceled", "TASK_STATE_CANCELED", None)]


async def test_a_task_that_waits_is_canceled(start):
    """No turn ends with it, so it has a line of its own."""
    host = await start(emits(says(AUTH_REQUIRED)))
    task = await host.send()
    await parked_or_ended(host, task.id)
    with capture_logs() as logs:
        await host.cancel(task.id)
    assert ended(logs) == []
    (line,) = [line for line in logs if line["event"] == "task.canceled"]
    assert (line["task_id"], line["was"]) == (task.id, "TASK_STATE_AUTH_REQUIRED")


async def test_a_message_answer_has_no_state(start):
    """There is no task."""
    host = await start(emits(new_text_message("secret", role=Role.ROLE_AGENT)), answers="message")
    with capture_logs() as logs:
        await host.send()
    assert ended(logs) == [("released", None, None)]


async def test_a_turn_that_lapsed_has_no_state(start):
    """What becomes of the task is for whoever takes it over to tell."""
    host = await start(waits)
    await host.send(at_once=True)
    with capture_logs() as logs:
        host.table.lapse()
        await host.agent.left.wait()
    assert ended(logs) == [("lapsed", None, None)]


async def test_a_run_that_breaks_off(start, bucket):
    """A state in its middle could not be stored, and the SDK writes FAILED: the reason is in the lines before."""
    async with FaultyStore(bucket.store) as store:
        host = await start(emits(says(AUTH_REQUIRED), says(COMPLETED)), store=store)
        store.fail("put", "*/task.json", nth=2)
        with capture_logs() as logs:
            task = await host.send(at_once=True)
            await parked_or_ended(host, task.id)
    assert ended(logs) == [("terminal", "TASK_STATE_FAILED", "the run broke off")]
