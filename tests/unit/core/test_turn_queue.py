"""What an agent may emit in a turn, in what order the SDK hears of it, and what is held back."""

import asyncio

import pytest
from a2a.helpers import new_text_message
from a2a.server.events.event_queue import EventQueue
from a2a.types.a2a_pb2 import (
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from structlog.testing import capture_logs

from a2a_gcs.errors import Unavailable
from a2a_gcs.executors.turn_queue import AgentMistake, TurnQueue, failed
from a2a_gcs.layout import TaskRef
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    SUBMITTED,
    WORKING,
    artifact,
    message,
    status,
)

REF = TaskRef("ctx", "t")


class Heard(EventQueue):
    def __init__(self):
        self.events = []

    async def enqueue_event(self, event):
        self.events.append(event)

    @property
    def told(self):
        return [_short(event) for event in self.events]


def _short(event):
    match event:
        case Task():
            return "task", event.status.state
        case TaskStatusUpdateEvent():
            return event.status.state
        case TaskArtifactUpdateEvent():
            return event.artifact.artifact_id
        case Message():
            return event.parts[0].text


@pytest.fixture
def out():
    return Heard()


@pytest.fixture
def queue(out):
    return TurnQueue(out, REF, message("hello", "m"), None, None)


def says(state, task_id="t", **more):
    return TaskStatusUpdateEvent(task_id=task_id, context_id="ctx", status=status(state), **more)


def makes(name="a", *, append=False, task_id="t"):
    return TaskArtifactUpdateEvent(task_id=task_id, context_id="ctx", artifact=artifact(name), append=append)


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELED, REJECTED, INPUT_REQUIRED])
async def test_states_that_end_a_turn_are_held_back(queue, out, state):
    """Nobody hears of them before the workspace is stored; then they are the last event."""
    await queue.enqueue_event(says(WORKING))
    await queue.enqueue_event(says(state))
    assert out.told == [("task", WORKING), WORKING]
    await queue.finish(queue.held)
    assert out.told == [("task", WORKING), WORKING, state]


@pytest.mark.parametrize("state", [WORKING, SUBMITTED, AUTH_REQUIRED])
async def test_other_states_pass_at_once(queue, out, state):
    """AUTH_REQUIRED too: the agent waits for it while its turn is open."""
    await queue.enqueue_event(says(state))
    assert out.told == [("task", WORKING), state]
    assert queue.last.state == state


async def test_a_task_is_published_before_anything_else(queue, out):
    """The host's own Task comes first, with the message as its history, whatever the agent emits."""
    await queue.enqueue_event(makes())
    task = out.events[0]
    assert (task.id, task.context_id) == ("t", "ctx")
    assert [m.message_id for m in task.history] == ["m"]
    assert task.status.HasField("timestamp")
    assert out.told[1:] == ["a"]


async def test_a_continued_task_is_not_published_again(out):
    """In a further turn the task is there already."""
    current = Task(id="t", context_id="ctx", artifacts=[artifact("old")])
    queue = TurnQueue(out, REF, message(), current, None)
    await queue.enqueue_event(makes("old", append=True))
    await queue.finish(status(COMPLETED))
    assert out.told == ["old", COMPLETED]


async def test_the_published_task_is_the_sdks_own(queue, out):
    """The SDK changes the task that it is given in place; the agent's copy stays what it was."""
    mine = await queue.publish()
    out.events[0].status.state = FAILED
    assert mine.status.state == WORKING


async def test_going_on_after_asking(queue, out):
    """An agent that asks for input and goes on all the same has asked for nothing."""
    await queue.enqueue_event(says(INPUT_REQUIRED))
    await queue.enqueue_event(says(WORKING))
    assert queue.held is None
    assert out.told == [("task", WORKING), WORKING]


async def test_asking_and_then_completing(queue):
    """The last word counts, until one is terminal."""
    await queue.enqueue_event(says(INPUT_REQUIRED))
    await queue.enqueue_event(says(COMPLETED))
    assert queue.held.state == COMPLETED


async def test_several_ends(queue, out):
    """The first terminal state counts; what is emitted after it is dropped."""
    await queue.enqueue_event(says(COMPLETED))
    for event in (says(FAILED), makes(), new_text_message("hi", role=Role.ROLE_AGENT), says(WORKING)):
        await queue.enqueue_event(event)
    assert queue.held.state == COMPLETED
    assert out.told == []


async def test_an_agent_that_does_nothing_but_emit_can_be_stopped(queue):
    """What comes after the end lets others run, so that its cancellation reaches it, and is logged once."""

    async def emit():
        while True:
            await queue.enqueue_event(makes(append=True))

    await queue.enqueue_event(makes())
    queue.close()
    with capture_logs() as logs:
        emitting = asyncio.create_task(emit())
        await asyncio.sleep(0)
        emitting.cancel()
        await asyncio.wait({emitting})
    assert emitting.cancelled()
    assert [line["event"] for line in logs] == ["agent.event_after_end"]


async def test_artifacts_after_asking(queue, out):
    """An artifact after INPUT_REQUIRED belongs to the turn, and takes nothing back."""
    await queue.enqueue_event(says(INPUT_REQUIRED))
    await queue.enqueue_event(makes())
    assert queue.held.state == INPUT_REQUIRED
    assert out.told == [("task", WORKING), "a"]


@pytest.mark.parametrize(
    "event",
    [
        makes("unknown", append=True),
        makes(""),
        makes(task_id="other"),
        says(WORKING, task_id="other"),
        says(TaskState.TASK_STATE_UNSPECIFIED),
        Task(id="other", context_id="ctx"),
    ],
    ids=["append to nothing", "no artifact id", "artifact of another", "status of another", "no state", "other task"],
)
async def test_mistakes_are_the_agents(queue, out, event):
    """What the SDK would answer with a broken task is an error where the agent made it; nothing is emitted."""
    with pytest.raises(AgentMistake):
        await queue.enqueue_event(event)
    assert [x for x in out.told if x != ("task", WORKING)] == []


async def test_an_append_to_what_was_made(queue, out):
    """Chunks follow their artifact."""
    await queue.enqueue_event(makes("a"))
    await queue.enqueue_event(makes("a", append=True))
    assert out.told[1:] == ["a", "a"]


async def test_events_get_the_tasks_own_ids(queue, out):
    """A context id that the agent made up does not reach the SDK, which would fail the task for it."""
    event = TaskStatusUpdateEvent(context_id="made up", status=status(WORKING))
    await queue.enqueue_event(event)
    assert (out.events[1].task_id, out.events[1].context_id) == ("t", "ctx")
    assert event.context_id == "made up"


async def test_a_status_without_a_time_gets_one(queue, out):
    """Every status has a timestamp, of the moment at which it was emitted; the agent's own is kept."""
    bare = TaskStatusUpdateEvent(task_id="t")
    bare.status.state = WORKING
    await queue.enqueue_event(bare)
    await queue.enqueue_event(says(AUTH_REQUIRED))
    assert out.events[1].status.timestamp.seconds > 0
    assert out.events[2].status.timestamp == status(AUTH_REQUIRED).timestamp


async def test_a_final_status_keeps_its_metadata(queue, out):
    """What comes with a state that is held back is emitted with it; not with another end than the agent's."""
    event = says(COMPLETED)
    event.metadata.update({"cost": 3})
    await queue.enqueue_event(event)
    await queue.finish(queue.held)
    assert dict(out.events[-1].metadata.items()) == {"cost": 3}


async def test_another_end_than_the_agents(queue, out):
    """A host that ends the turn otherwise says that, without the agent's metadata."""
    event = says(COMPLETED)
    event.metadata.update({"cost": 3})
    await queue.enqueue_event(event)
    await queue.finish(failed(REF, "no"))
    assert out.events[-1].status.state == FAILED
    assert not out.events[-1].metadata


async def test_the_end_is_announced_before_it_is_heard(queue, out):
    """The store has to know the very event that parks, before the SDK saves it."""
    announced = []

    def announce(event, reason):
        announced.append(event)
        assert event not in out.events
        assert reason is None

    await queue.finish(status(INPUT_REQUIRED), announce)
    assert out.events[-1] is announced[0]


async def test_nothing_after_the_end(queue, out):
    """A turn that is over takes nothing from an agent that goes on."""
    await queue.finish(status(COMPLETED))
    await queue.enqueue_event(makes())
    await queue.enqueue_event(says(WORKING))
    assert out.told == [("task", WORKING), COMPLETED]


# ---------------------------------------------------------------- messages and tasks


async def test_a_message_completes_a_task(queue, out):
    """Where every message becomes a task, a plain Message is its last status, with the task's ids."""
    await queue.enqueue_event(new_text_message("done", role=Role.ROLE_AGENT))
    assert out.told == []
    assert queue.held.state == COMPLETED
    said = queue.held.message
    assert (said.parts[0].text, said.task_id, said.context_id) == ("done", "t", "ctx")


async def test_a_message_is_the_answer(out):
    """In message mode the context is freed before the Message goes out, and nothing follows it."""
    order = []

    async def release():
        order.append(list(out.told))

    queue = TurnQueue(out, REF, message(), None, release)
    await queue.enqueue_event(new_text_message("hi", role=Role.ROLE_AGENT))
    await queue.enqueue_event(says(FAILED))
    assert order == [[]]
    assert out.told == ["hi"]
    assert queue.answered


async def test_a_message_that_cannot_be_given(out):
    """When the context cannot be freed the agent gets the error, and the client no answer (rule release)."""

    async def release():
        raise Unavailable("contexts/ctx/context.json")

    queue = TurnQueue(out, REF, message(), None, release)
    with pytest.raises(Unavailable):
        await queue.enqueue_event(new_text_message("hi", role=Role.ROLE_AGENT))
    assert out.told == []
    assert not queue.answered


async def test_a_message_after_a_task_began(out):
    """In message mode, too, a task that has begun is completed by a Message."""

    async def release():
        raise AssertionError("the context is not to be freed")

    queue = TurnQueue(out, REF, message(), None, release)
    await queue.enqueue_event(makes())
    await queue.enqueue_event(new_text_message("done", role=Role.ROLE_AGENT))
    assert queue.held.state == COMPLETED
    assert out.told == [("task", WORKING), "a"]


@pytest.mark.parametrize("state", [COMPLETED, INPUT_REQUIRED])
async def test_a_whole_task_is_taken_apart(queue, out, state):
    """A Task from the agent adds its artifacts and its state to the one that the host published."""
    await queue.enqueue_event(Task(id="t", context_id="x", status=status(state), artifacts=[artifact("a")]))
    assert out.told == [("task", WORKING), "a"]
    assert queue.held.state == state


@pytest.mark.parametrize("state", [SUBMITTED, TaskState.TASK_STATE_UNSPECIFIED])
async def test_a_task_that_only_begins(queue, out, state):
    """A Task in its first state says nothing new."""
    await queue.enqueue_event(Task(id="t", status=status(state)))
    assert out.told == [("task", WORKING)]
    assert queue.held is None
