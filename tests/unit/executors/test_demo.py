"""The demo agent under the SDK's own handler: what its words do to the task and to the workspace."""

import asyncio
import os
from contextlib import aclosing

import pytest
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueueLegacy
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    CancelTaskRequest,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)

import a2a_gcs
from a2a_gcs.executors import demo
from a2a_gcs.executors.workspace import WORKSPACE_STATE, NoWorkspace

COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


class Host(AgentExecutor):
    """What a host adds to an agent: a directory in the call context."""

    def __init__(self, directory):
        self.agent, self.directory = demo.DemoAgent(), directory

    async def execute(self, context, event_queue):
        context.call_context.state[WORKSPACE_STATE] = self.directory
        await self.agent.execute(context, event_queue)

    async def cancel(self, context, event_queue):
        await self.agent.cancel(context, event_queue)


class Caller:
    """Sends messages through the SDK's handler, as its routes do."""

    def __init__(self, directory):
        card = AgentCard(name="demo", capabilities=AgentCapabilities(streaming=True))
        self.handler = DefaultRequestHandler(Host(directory), InMemoryTaskStore(), card)

    def request(self, text, task_id=None, context_id=None):
        message = new_text_message(text, role=Role.ROLE_USER, task_id=task_id, context_id=context_id)
        return SendMessageRequest(message=message)

    async def send(self, text, **ids) -> Task:
        return await self.handler.on_message_send(self.request(text, **ids), ServerCallContext())

    def stream(self, text):
        return self.handler.on_message_send_stream(self.request(text), ServerCallContext())


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def caller(directory):
    return Caller(directory)


def said(task):
    return get_message_text(task.status.message)


def artifacts(task):
    return {artifact.name: get_artifact_text(artifact, "") for artifact in task.artifacts}


async def test_each_message_becomes_a_numbered_line_of_the_journal(caller, directory):
    """Numbers go on over tasks, several lines become one, and the reply counts."""
    first = await caller.send("hello")
    second = await caller.send("hello\nagain")
    assert (first.status.state, said(first)) == (COMPLETED, "journal.md holds 1 message")
    assert (second.status.state, said(second)) == (COMPLETED, "journal.md holds 2 messages")
    assert (directory / "journal.md").read_text() == "1. hello\n2. hello again\n"


async def test_a_journal_without_a_last_line_end_keeps_its_lines(caller, directory):
    """What somebody else wrote is not glued to the next entry."""
    (directory / "journal.md").write_text("mine")
    await caller.send("hello")
    assert (directory / "journal.md").read_text() == "mine\n2. hello\n"


async def test_the_files_are_sent_as_an_artifact_with_sizes_and_links(caller, directory):
    """One line a file, sorted; a link shows its target and is not followed."""
    (directory / "sub").mkdir()
    (directory / "sub" / "data").write_bytes(b"12345")
    (directory / "away").symlink_to("/etc")
    task = await caller.send("hello")
    assert artifacts(task) == {"files": "away -> /etc\njournal.md 9\nsub/data 5\n"}


async def test_many_files_are_streamed_in_chunks(caller, directory):
    """The list is one artifact in chunks of a hundred, and names that are no text do not break it."""
    for i in range(100):
        (directory / f"{i:03}").touch()
    (directory / os.fsdecode(b"z\xff")).touch()
    async with aclosing(caller.stream("hello")) as stream:
        chunks = [event async for event in stream if isinstance(event, TaskArtifactUpdateEvent)]
    assert [(c.append, c.last_chunk) for c in chunks] == [(False, False), (True, True)]
    assert get_artifact_text(chunks[1].artifact).splitlines() == ["journal.md 9", "z\\udcff 0"]


async def test_ask_parks_the_task_and_the_answer_completes_it(caller, directory):
    """The answer is journaled and handled as a message of its own, by task id alone."""
    asked = await caller.send("ask Which colour?", context_id="c1")
    assert (asked.status.state, said(asked)) == (INPUT_REQUIRED, "Which colour?")
    answered = await caller.send("blue", task_id=asked.id)
    assert (answered.id, answered.context_id) == (asked.id, "c1")
    assert (answered.status.state, said(answered)) == (COMPLETED, "journal.md holds 2 messages")
    assert (directory / "journal.md").read_text() == "1. ask Which colour?\n2. blue\n"


async def test_an_answer_may_be_a_command(caller):
    """Asked twice in a row, then told to fail: one task, three turns."""
    first = await caller.send("ask One?")
    second = await caller.send("ask Two?", task_id=first.id)
    assert (second.status.state, said(second)) == (INPUT_REQUIRED, "Two?")
    third = await caller.send("fail enough", task_id=first.id)
    assert (third.id, third.status.state, said(third)) == (first.id, FAILED, "enough")


@pytest.mark.parametrize(("text", "reply"), [("fail", "failed, as asked"), ("fail out of ink", "out of ink")])
async def test_fail_fails_with_the_reason(caller, text, reply):
    """The reason is the status message; without one there is a default."""
    task = await caller.send(text)
    assert (task.status.state, said(task)) == (FAILED, reply)


async def test_sleep_completes(caller):
    """Fractions of a second are seconds too."""
    task = await caller.send("sleep 0.01")
    assert (task.status.state, said(task)) == (COMPLETED, "slept 0.01 s")


async def test_a_sleeping_task_can_be_canceled(caller):
    """Cancel answers CANCELED at once, an hour before the sleep would end."""
    async with aclosing(caller.stream("sleep 3600")) as stream:
        working = await anext(event async for event in stream if not isinstance(event, Task))
        assert working.status.state == TaskState.TASK_STATE_WORKING
        canceled = await caller.handler.on_cancel_task(CancelTaskRequest(id=working.task_id), ServerCallContext())
    assert canceled.status.state == TaskState.TASK_STATE_CANCELED


async def test_cancel_without_a_task_does_nothing():
    """A host that cancels before anything is published meets no error."""
    queue = EventQueueLegacy()
    await demo.DemoAgent().cancel(RequestContext(ServerCallContext(), task_id="t", context_id="c"), queue)
    await queue.close(immediate=True)


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("stream 1", ["chunk 1 of 1\n"]),
        ("stream 3", ["chunk 1 of 3\n", "chunk 2 of 3\n", "chunk 3 of 3\n"]),
        ("stream 2 16", ["chunk 1 of 2...\n", "chunk 2 of 2...\n"]),
        ("stream 2 1", ["\n", "\n"]),
    ],
)
async def test_stream_sends_one_artifact_in_chunks(caller, text, chunks):
    """The first chunk starts the artifact, later ones append, the last one says so; sizes are exact."""
    async with aclosing(caller.stream(text)) as stream:
        events = [e async for e in stream if isinstance(e, TaskArtifactUpdateEvent) and e.artifact.name == "stream"]
    assert [get_artifact_text(event.artifact) for event in events] == chunks
    assert [event.append for event in events] == [False] + [True] * (len(chunks) - 1)
    assert [event.last_chunk for event in events] == [False] * (len(chunks) - 1) + [True]


async def test_write_read_rm_work_on_the_workspace(caller, directory):
    """Text is kept as it is; directories come into being and go as a whole."""
    written = await caller.send("write notes/a.txt  two words\nand a line ")
    assert (written.status.state, said(written)) == (COMPLETED, "wrote 21 bytes to notes/a.txt")
    read = await caller.send("read notes/a.txt")
    assert (read.status.state, said(read)) == (COMPLETED, "two words\nand a line ")
    assert artifacts(read)["notes/a.txt"] == "two words\nand a line "
    removed = await caller.send("rm notes")
    assert (removed.status.state, said(removed)) == (COMPLETED, "removed notes")
    assert sorted(path.name for path in directory.iterdir()) == ["journal.md"]


async def test_rm_removes_a_link_and_not_what_it_leads_to(caller, directory, tmp_path):
    """A link that leaves the workspace can be removed; its target stays."""
    (tmp_path / "outside").mkdir()
    (directory / "link").symlink_to(tmp_path / "outside")
    assert (await caller.send("rm link")).status.state == COMPLETED
    assert not (directory / "link").is_symlink()
    assert (tmp_path / "outside").is_dir()


async def test_rm_of_the_journal_empties_the_list(caller):
    """Also the journal is only a file of the workspace."""
    assert artifacts(await caller.send("rm journal.md")) == {"files": "(no files)\n"}


PATHS_OUT = ["../secret", "a/../../secret", "{tmp}/secret", "out/secret"]


@pytest.mark.parametrize(
    "command",
    [word.format(path) for word in ("read {}", "write {} gotcha", "rm {}") for path in PATHS_OUT]
    + ["read file", "write file gotcha"],  # rm would remove the link itself
)
async def test_no_word_leaves_the_workspace(caller, directory, tmp_path, command):
    """`..`, absolute paths and links that lead out fail the task and touch nothing."""
    (tmp_path / "secret").write_text("secret")
    (directory / "out").symlink_to(tmp_path)
    (directory / "file").symlink_to(tmp_path / "secret")
    task = await caller.send(command.format(tmp=tmp_path))
    assert task.status.state == FAILED
    assert "is not a path inside the workspace; write it relative, without '..'" in said(task)
    assert (tmp_path / "secret").read_text() == "secret"


async def test_the_journal_is_not_written_through_a_link(caller, directory, tmp_path):
    """A workspace whose journal.md leads out fails the task instead of growing a file elsewhere."""
    (tmp_path / "secret").write_text("secret")
    (directory / "journal.md").symlink_to(tmp_path / "secret")
    task = await caller.send("hello")
    assert (task.status.state, (tmp_path / "secret").read_text()) == (FAILED, "secret")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ask", "there is no question; usage: ask <question>"),
        ("sleep", "'' is not a number of seconds from 0 to 86400; usage: sleep <seconds>"),
        ("sleep abc", "'abc' is not a number of seconds"),
        ("sleep nan", "'nan' is not a number of seconds"),
        ("sleep -1", "'-1' is not a number of seconds"),
        ("sleep 1e99", "'1e99' is not a number of seconds"),
        ("stream", "usage: stream <n> [bytes]"),
        ("stream -1", "'-1' is not a number of chunks (and of bytes in each); usage: stream <n> [bytes]"),
        ("stream 0", "'0' is not a number of chunks"),
        ("stream 2 0", "'2 0' is not a number of chunks"),
        ("stream 1 2 3", "'1 2 3' is not a number of chunks"),
        ("stream " + 5000 * "9", "is not a number of chunks"),
        ("stream 99999999", "at most 100000 chunks"),
        ("stream 1000 1000000", "at most 100000 chunks and 67108864 bytes in all"),
        ("write", "a path and a text are needed; usage: write <path> <text>"),
        ("write a.txt", "usage: write <path> <text>"),
        ("write sub text", "'sub' is not a file"),
        ("write journal.md/x text", "'journal.md/x' cannot be written"),
        ("read", "there is no path; usage: read <path>"),
        ("read nothing", "'nothing' is not a file of the workspace"),
        ("read sub", "'sub' is not a file of the workspace"),
        ("read pipe", "'pipe' is not a file of the workspace"),
        ("read loop", "'loop' "),
        ("read a\0b", "cannot be used as a path"),
        ("read large", "'large' is larger than 1048576 bytes"),
        ("rm", "there is no path; usage: rm <path>"),
        ("rm nothing", "'nothing' is not in the workspace"),
        ("rm .", "'.' is not in the workspace"),
    ],
)
async def test_what_cannot_be_done_fails_the_task_with_a_clear_message(caller, directory, text, says):
    """A wrong argument shows the usage, a missing file its name; no directory of the host appears."""
    (directory / "sub").mkdir()
    (directory / "loop").symlink_to("loop")
    os.mkfifo(directory / "pipe")
    with (directory / "large").open("wb") as large:
        large.truncate(1024**2 + 1)
    task = await caller.send(text)
    assert task.status.state == FAILED
    assert says in said(task)
    assert str(directory) not in said(task)


async def test_a_published_task_is_not_published_again(directory):
    """With a current task the agent's first event is WORKING, under that task's context, whatever the call says."""
    queue = EventQueueLegacy()
    call = ServerCallContext(state={WORKSPACE_STATE: directory})
    request = SendMessageRequest(message=new_text_message("hello", role=Role.ROLE_USER))
    context = RequestContext(call, request, task=Task(id="t1", context_id="c1"))
    assert context.context_id != "c1"
    await demo.DemoAgent().execute(context, queue)
    first = await asyncio.wait_for(queue.dequeue_event(), 5)
    assert (first.task_id, first.context_id) == ("t1", "c1")
    assert first.status.state == TaskState.TASK_STATE_WORKING
    await queue.close(immediate=True)


def test_every_word_is_documented_once_for_readers_and_once_for_the_card():
    """The module's docstring shows each usage, and the card a skill with an example that starts with its word."""
    card = {skill.id: skill for skill in demo.skills()}
    assert set(card) == {"journal", *demo.WORDS}
    for name, word in demo.WORDS.items():
        assert f"\n    {word.usage}  " in demo.__doc__
        assert card[name].examples[0].split()[0] == name


def test_workspace_outside_a_host_says_what_to_do():
    """The error is of this package, and a RuntimeError for whoever catches that."""
    with pytest.raises(NoWorkspace, match="a2a-gcs serve --agent") as raised:
        a2a_gcs.workspace(RequestContext(ServerCallContext()))
    assert isinstance(raised.value, RuntimeError)
