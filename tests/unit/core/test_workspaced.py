"""A turn from its claim to its end under the SDK's handler: restore, run, snapshot, and only then tell."""

import asyncio
import contextlib

import pytest
from a2a.helpers import new_text_message
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueueLegacy
from a2a.types.a2a_pb2 import Message, Role, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from a2a.utils.errors import InternalError, TaskNotCancelableError, UnsupportedOperationError

from a2a_gcs.errors import PermissionDenied, Unavailable
from a2a_gcs.executors.turn_queue import AgentMistake
from a2a_gcs.executors.workspace import workspace
from a2a_gcs.layout import context_key, workspace_key
from a2a_gcs.ledger.errors import Fenced
from a2a_gcs.objectstore.port import OVERWRITE
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    Bucket,
    artifact,
    status,
)
from tests.support.turn_host import TurnHost, said
from tests.support.waiting import until


@pytest.fixture
def bucket():
    return Bucket()


@pytest.fixture
async def start(bucket, tmp_path):
    """Starts hosts, and stops them after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(script, name="a", store=None, **options):
            host = TurnHost(store or bucket.store, name, script, tmp_path, **options)
            await host.beat()
            stack.push_async_callback(host.close)
            return host

        yield begin


def says(state, text=None):
    event = TaskStatusUpdateEvent(status=status(state))
    if text:
        event.status.message.CopyFrom(new_text_message(text, role=Role.ROLE_AGENT))
    return event


def makes(name="a", text="content", *, append=False):
    return TaskArtifactUpdateEvent(artifact=artifact(name, text), append=append)


def emits(*events):
    async def script(context, queue):
        for event in events:
            await queue.enqueue_event(event)

    return script


def journals(state=COMPLETED):
    """Appends the message to a file, says what is in it, and ends in a state that the message may name."""

    async def script(context, queue):
        path = workspace(context) / "journal"
        with path.open("a") as file:
            file.write(context.get_user_input() + ";")
        word = context.get_user_input().partition(" ")[0]
        ends = {"ask": INPUT_REQUIRED, "fail": FAILED, "auth": AUTH_REQUIRED}.get(word, state)
        await queue.enqueue_event(says(ends, path.read_text()))

    return script


# ---------------------------------------------------------------- how a turn ends


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


async def parked_or_ended(host, task_id):
    """Waits until the turn of a task is over: AUTH_REQUIRED is told while it is still open."""
    claim = host.table.get(task_id)
    if claim is not None:
        over = asyncio.Event()
        claim.on_stop(over.set)
        await over.wait()


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
    """The client has its answer; nothing is saved for a claim that is over (FACTS 6)."""

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


# ---------------------------------------------------------------- workspaces


async def test_a_task_starts_where_the_last_completed_one_ended(start):
    """Completed tasks add up, on any host; failed ones leave no trace."""
    a, b = await start(journals()), await start(journals(), "b")
    texts = [said(await host.send(text)) for host, text in [(a, "1"), (b, "2"), (a, "fail 3"), (b, "4")]]
    assert texts == ["1;", "1;2;", "1;2;fail 3;", "1;2;4;"]


async def test_an_answered_task_resumes_its_own_files(start):
    """Turn after turn, wherever it is answered, and by its id alone."""
    a, b = await start(journals()), await start(journals(), "b")
    await a.send("1")
    asked = await a.send("ask 2")
    again = await b.send("ask 3", task_id=asked.id)
    done = await a.send("4", task_id=asked.id)
    assert [said(task) for task in (asked, again, done)] == ["1;ask 2;", "1;ask 2;ask 3;", "1;ask 2;ask 3;4;"]
    assert (done.id, done.context_id, done.status.state) == (asked.id, "ctx", COMPLETED)


@pytest.mark.parametrize("text", ["1", "ask 1", "fail 1"])
async def test_the_workspace_is_stored_before_anybody_is_told(start, bucket, text):
    """While the archive is on its way nobody sees an end of the task; then the state comes with its pin (I4)."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        gate = store.hold("put_stream", "*/workspace.tar.gz")
        sending = asyncio.create_task(host.send(text))
        await gate.reached.wait()
        [claim] = host.table
        seen = await host.tasks.read(claim.ref.task_id)
        assert seen is None or seen.task.status.state == WORKING
        assert not sending.done()
        gate.release()
        task = await sending
        stored = await host.record(task.id)
        archive = await bucket.store.head(workspace_key(stored.ref))
        assert (stored.meta.pin.generation, stored.meta.pin.crc32c) == (archive.version, archive.crc32c)


@pytest.mark.parametrize("text", ["1", "ask 1"])
@pytest.mark.parametrize("error", [Unavailable, PermissionDenied])
async def test_a_snapshot_that_cannot_be_saved_fails_the_task(start, bucket, text, error):
    """A task whose files are lost has not completed, and cannot be continued: it fails and says so."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        store.fail("put_stream", times=4 if error is Unavailable else 1, error=error)
        task = await host.send(text)
        assert task.status.state == FAILED
        assert said(task).startswith("The workspace could not be saved")
        assert said(await host.send("2")) == "2;"


async def test_a_failed_task_without_a_snapshot_keeps_its_reason(start, bucket):
    """What the agent said of its failure is worth more than that its files are gone."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        store.fail("put_stream", error=PermissionDenied)
        assert said(await host.send("fail 1")) == "fail 1;"


@pytest.mark.parametrize("damage", ["gone", "replaced"])
async def test_a_restore_that_fails_says_so(start, bucket, damage):
    """The agent does not run on files that are not there; the task fails, nothing is overwritten, so does the next."""
    host = await start(journals())
    first = await host.send("1")
    key = workspace_key((await host.record(first.id)).ref)
    if damage == "gone":
        await bucket.store.delete(key)
    else:
        await bucket.store.put(key, b"something else", OVERWRITE)
    for _ in range(2):
        task = await host.send("2")
        assert task.status.state == FAILED
        assert f"The workspace of task {first.id} could not be restored" in said(task)
    assert host.agent.runs == 1


async def test_a_foreign_archive_is_not_overwritten(start, bucket):
    """Somebody else has written the task's archive: this host is fenced, and its end is not stored (rule wscas)."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)

        async def rival(key):
            await bucket.store.put(key, b"theirs", OVERWRITE)

        store.act("put_stream", "*/workspace.tar.gz", rival)
        with contextlib.suppress(InternalError):
            await asyncio.wait_for(host.send("1", at_once=True), 5)
        await host.agent.left.wait()
        await until(lambda: len(host.table) == 0)
        [key] = [key for key in await bucket.keys() if key.endswith(".tar.gz")]
        assert (await bucket.store.get(key)).body == b"theirs"
        [record] = [key for key in await bucket.keys() if key.endswith("task.json")]
        assert b"TASK_STATE_COMPLETED" not in (await bucket.store.get(record)).body


# ---------------------------------------------------------------- slow stores


async def test_a_continued_turn_is_not_parked_by_its_backlog(start, bucket):
    """Artifacts that are saved after the workspace was stored, while the state is still that of the turn before, end
    nothing: the agent's COMPLETED does."""
    turns = iter([[says(INPUT_REQUIRED, "more?")], [*(makes(f"x{i}") for i in range(5)), says(COMPLETED, "done")]])

    async def script(context, queue):
        for event in next(turns):
            await queue.enqueue_event(event)

    async with FaultyStore(bucket.store) as store:
        host = await start(script, store=store)
        asked = await host.send()
        save = store.hold("put", "*.events.json")
        done = asyncio.create_task(host.send(task_id=asked.id))
        await save.reached.wait()
        save.release()
        task = await done
        assert (task.status.state, said(task)) == (COMPLETED, "done")
        assert [x.artifact_id for x in task.artifacts] == [f"x{i}" for i in range(5)]


async def test_what_follows_auth_required_is_kept(start):
    """AUTH_REQUIRED passes at once; artifacts after it, and the parking at the end, come in order."""
    host = await start(emits(says(AUTH_REQUIRED, "log in"), makes("after")))
    answer = await host.send()
    assert answer.status.state == AUTH_REQUIRED
    await parked_or_ended(host, answer.id)
    stored = await host.record(answer.id)
    assert stored.parked
    assert [x.artifact_id for x in stored.task.artifacts] == ["after"]
    assert stored.meta.pin is not None


# ---------------------------------------------------------------- stopping


def waits(*, deaf=False):
    """An agent that says nothing and works on until it is stopped; a deaf one does not hear the first request."""

    async def script(context, queue):
        (workspace(context) / "begun").touch()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not deaf:
                    raise
                await queue.enqueue_event(makes("late"))
                await queue.enqueue_event(says(COMPLETED, "late"))
                return

    return script


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_cancel_stops_a_silent_agent(start, bucket, deaf):
    """Canceled is what is answered and stored; the agent is asked, then cancelled, and not heard any more."""
    host = await start(waits(deaf=deaf))
    task = await host.send(at_once=True)
    await until(lambda: host.agent.runs)
    assert (await host.cancel(task.id)).status.state == CANCELED
    await host.agent.left.wait()
    assert host.agent.stopped.is_set()
    stored = await host.record(task.id)
    assert (stored.task.status.state, list(stored.task.artifacts)) == (CANCELED, [])
    with pytest.raises(TaskNotCancelableError):
        await host.cancel(task.id)
    with pytest.raises(UnsupportedOperationError):
        await host.send(task_id=task.id)


async def test_a_canceled_task_is_never_resumed_from(start):
    """Its files are kept for inspection; the next task does not see them."""
    first = asyncio.Event()

    async def script(context, queue):
        listing = sorted(path.name for path in workspace(context).iterdir())
        if not first.is_set():
            first.set()
            (workspace(context) / "trace").touch()
            await asyncio.Event().wait()
        await queue.enqueue_event(says(COMPLETED, repr(listing)))

    host = await start(script)
    task = await host.send(at_once=True)
    await first.wait()
    await host.cancel(task.id)
    assert said(await host.send()) == "[]"


@pytest.mark.parametrize("how", ["canceled elsewhere", "settled elsewhere", "lapsed"])
async def test_a_run_that_is_fenced_stops(start, bucket, how):
    """Whoever has lost the turn stops its agent, stores nothing more, and tells its client what is stored."""
    host, other = await start(waits()), await bucket.host("b")
    sending = asyncio.create_task(host.send())
    await until(lambda: host.agent.runs)
    [claim] = host.table
    await until(lambda: claim.record.version)
    if how == "lapsed":
        host.table.disown()
        host.table.lapse()
        await host.die()
    elif how == "settled elsewhere":
        await host.die()
        await other.tasks.read(claim.ref.task_id)
        await host.tasks.still_ours(claim)
    else:
        await other.tasks.cancel(claim.ref.task_id)
        await host.tasks.still_ours(claim)
    await host.agent.left.wait()
    assert host.agent.stopped.is_set()
    task = await sending
    assert task.status.state == (CANCELED if how.startswith("canceled") else FAILED)
    assert (await other.tasks.read(claim.ref.task_id)).task.status.state == task.status.state


async def test_a_claim_lost_during_the_restore_starts_no_agent(start, bucket):
    """The agent of a task that was canceled before it began does not run at all."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        await host.send("1")
        gate = store.hold("stream", "*/workspace.tar.gz")
        task = await host.send("2", at_once=True)
        await gate.reached.wait()
        await host.cancel(task.id)
        gate.release()
        assert said(await host.send("3")) == "1;3;"
        assert host.agent.runs == 2


async def test_an_execution_without_a_claim_is_refused(start):
    """A claim that was lost between its making and its start runs nothing, and is no crash."""
    host = await start(journals())
    context = RequestContext(ServerCallContext(), host.request(), "t", "ctx")
    with pytest.raises(Fenced) as caught:
        await host.executor.execute(context, EventQueueLegacy())
    assert caught.value.ref == ("ctx", "t")
    assert host.agent.runs == 0


async def test_a_claim_is_executed_once(start):
    """A second execution of the same turn is refused."""
    host = await start(journals())
    claim = await host.claim(task_id="t")
    claim.started = True
    context = RequestContext(ServerCallContext(), host.request(), "t", "ctx")
    with pytest.raises(Fenced):
        await host.executor.execute(context, EventQueueLegacy())
