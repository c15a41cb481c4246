"""The command agent: what a program's output, files and end come to in its task."""

import asyncio
import contextlib
import json
import shlex
import sys
import uuid
from pathlib import Path

import pytest
from a2a.helpers import get_message_text
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.types.a2a_pb2 import (
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

from a2a_gcs.clock import boottime
from a2a_gcs.executors.command import CommandOptions
from a2a_gcs.executors.command_process import Lease
from a2a_gcs.executors.spec import load_agent
from a2a_gcs.executors.workspace import WORKSPACE_STATE
from a2a_gcs.workspaces.workdir import WorkDirs
from tests.support.processes import NAMES, alive, started, write_tree
from tests.support.waiting import until

COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
WORKING = TaskState.TASK_STATE_WORKING


class Heard(EventQueue):
    """Keeps what an agent emits, as a client sees it.

    Attributes:
        artifacts: Text of each, put together from its chunks.
        files: Name to media type and bytes.
        notes: Working messages.
        state: The last one, and `said` what came with it.
    """

    def __init__(self):
        self.artifacts, self.files, self.notes = {}, {}, []
        self.events, self.finished = [], set()
        self.state, self.said = None, ""
        self.news = asyncio.Event()

    async def enqueue_event(self, event):
        self.events.append(event)
        if isinstance(event, TaskStatusUpdateEvent):
            self.state, self.said = event.status.state, get_message_text(event.status.message)
            if self.said and self.state == WORKING:
                self.notes.append(self.said)
        else:
            assert isinstance(event, TaskArtifactUpdateEvent)
            self._artifact(event)
        self.news.set()

    def _artifact(self, event):
        (part,), key = event.artifact.parts, event.artifact.artifact_id
        if part.WhichOneof("content") == "raw":
            assert key == f"outbox/{part.filename}"
            self.files[event.artifact.name] = part.media_type, part.raw
            return
        assert event.append == (key in self.artifacts)
        assert key not in self.finished
        self.artifacts[key] = self.artifacts.get(key, "") + part.text
        if event.last_chunk:
            self.finished.add(key)

    async def until(self, condition):
        while not condition(self):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 20)


class Caller:
    """Runs turns of one task."""

    def __init__(self, tmp_path, workdirs):
        self.workspace, self.work, self.workdirs = tmp_path / "workspace", tmp_path / "work", workdirs
        self.workspace.mkdir()
        self.task = Task(id="task-1", context_id="ctx-1")

    def agent(self, line, **changes):
        options = {
            "workdirs": self.workdirs,
            "lease": Lease(lambda: boottime() + 3600, every=0.05),
            "host_environment": {"PATH": "/usr/bin:/bin", "SECRET": "s", "GOOGLE_APPLICATION_CREDENTIALS": "/k"},
        }
        return load_agent(f"command:{line}", CommandOptions(**options | changes))

    def context(self, *parts):
        message = Message(message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=parts)
        self.task.history.append(message)
        context = RequestContext(
            ServerCallContext(), SendMessageRequest(message=message), self.task.id, self.task.context_id, self.task
        )
        context.call_context.state[WORKSPACE_STATE] = self.workspace
        return context

    async def run(self, line, text="hello", *parts, **changes):
        heard = Heard()
        await self.agent(line, **changes).execute(self.context(Part(text=text), *parts), heard)
        assert not list(self.work.glob("run-*/*")), "the turn's own files are still there"
        return heard


@pytest.fixture
def caller(tmp_path):
    workdirs = WorkDirs(tmp_path / "work")
    yield Caller(tmp_path, workdirs)
    workdirs.close()


def sh(script, *arguments):
    return shlex.join(["/bin/sh", "-c", script, "sh", *arguments])


def python(script):
    return shlex.join([sys.executable, "-I", "-c", script])


async def test_the_message_is_standard_input_and_the_output_an_artifact(caller):
    """Nothing else is emitted than the start, the artifact with its last chunk, and the end."""
    heard = await caller.run("cat", "hello\nworld")
    assert (heard.state, heard.said) == (COMPLETED, "")
    assert heard.artifacts == {"output": "hello\nworld\n"}
    assert heard.finished == {"output"}
    assert heard.events[0].status.state == WORKING


async def test_the_message_is_an_argument(caller):
    """As one word, whatever it holds; standard input is empty then."""
    text = 'a "b" $HOME;\n`c` *'
    heard = await caller.run(shlex.join(["/bin/sh", "-c", 'printf %s "$1"; cat', "sh", "--text={text}"]), text)
    assert heard.artifacts == {"output": f"--text={text}"}


async def test_the_message_is_a_file(caller):
    """With all its parts, as A2A writes them in JSON."""
    heard = await caller.run("cat {message_file}", "hi", Part(raw=b"\0\1", filename="a.bin"))
    assert json.loads(heard.artifacts["output"])["parts"] == [{"text": "hi"}, {"raw": "AAE=", "filename": "a.bin"}]


async def test_the_environment_is_what_is_documented_and_nothing_of_the_host(caller):
    """Its task, its directories, PATH; no credential and no other variable."""
    script = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
    heard = await caller.run(python(script))
    environment, directory = json.loads(heard.artifacts["output"])
    assert directory == str(caller.workspace)
    assert environment.keys() - {"LC_CTYPE"} == {
        *("A2A_TASK_ID", "A2A_CONTEXT_ID", "A2A_TURN", "A2A_WORKSPACE", "A2A_MESSAGE_FILE", "A2A_INBOX", "A2A_OUTBOX"),
        *("HOME", "PWD", "PATH"),
    }
    assert (environment["A2A_TASK_ID"], environment["A2A_CONTEXT_ID"]) == ("task-1", "ctx-1")
    assert environment["A2A_WORKSPACE"] == environment["PWD"] == str(caller.workspace)
    assert str(caller.workspace) not in environment["HOME"]


@pytest.mark.skipif(not Path("/proc").exists(), reason="there is no /proc to look at descriptors")
async def test_its_supervisor_holds_the_place_of_the_workspace(caller):
    """So that nobody else gets that path while something of the program runs, whatever becomes of the host."""
    caller.workspace = caller.workdirs.occupy("", "ctx-1", "task-1").path
    heard = await caller.run(sh("ls -l /proc/$PPID/fd"))
    assert f"-> {caller.workspace.parent}/lock\n" in heard.artifacts["output"]


async def test_home_in_the_workspace_is_there_in_the_next_turn(caller):
    """With command_home = workspace; else it is empty each time."""
    line = sh('cat "$HOME/session" 2>/dev/null; echo saved > "$HOME/session"')
    assert [(await caller.run(line, home="tmp")).artifacts for _ in range(2)] == [{}, {}]
    first, second = [(await caller.run(line, home="workspace")).artifacts for _ in range(2)]
    assert (first, second) == ({}, {"output-4": "saved\n"})
    assert (caller.workspace / ".home/session").read_text() == "saved\n"


async def test_a_home_that_cannot_be_one_fails_the_task(caller):
    """With the reason, and before the program starts."""
    (caller.workspace / ".home").touch()
    heard = await caller.run("true", home="workspace")
    assert (heard.state, heard.said) == (
        FAILED,
        "true could not be started: .home in the workspace cannot be its home: File exists.",
    )


async def test_turns_of_a_task_are_counted_and_have_artifacts_of_their_own(caller):
    """The second turn leaves the output of the first as it is."""
    line = sh("echo turn $A2A_TURN")
    assert [(await caller.run(line)).artifacts for _ in range(3)] == [
        {"output": "turn 1\n"},
        {"output-2": "turn 2\n"},
        {"output-3": "turn 3\n"},
    ]


async def test_output_streams_while_the_program_runs(caller, tmp_path):
    """Its first line is out before it goes on."""
    gate, heard = tmp_path / "gate", Heard()
    line = sh('echo first; while [ ! -e "$1" ]; do sleep 0.02; done; echo second', str(gate))
    run = asyncio.create_task(caller.agent(line).execute(caller.context(Part(text="x")), heard))
    await heard.until(lambda h: h.artifacts == {"output": "first\n"})
    gate.touch()
    await run
    assert heard.artifacts == {"output": "first\nsecond\n"}


async def test_output_that_is_no_utf8_is_replaced(caller):
    """Byte for byte where it cannot be decoded; NUL is a character."""
    heard = await caller.run(sh(r"printf 'a\0b\377\303\251\n\342\202'"))
    assert heard.artifacts == {"output": "a\0b\N{REPLACEMENT CHARACTER}é\n\N{REPLACEMENT CHARACTER}"}


async def test_a_megabyte_arrives_whole_in_bounded_pieces(caller):
    """No event is larger than 32 Ki characters."""
    heard = await caller.run(python("print('\\n'.join(map(str, range(150_000))))"))
    assert heard.artifacts["output"] == "".join(f"{n}\n" for n in range(150_000))
    sizes = [len(event.artifact.parts[0].text) for event in heard.events if isinstance(event, TaskArtifactUpdateEvent)]
    assert max(sizes) <= 32 * 1024


async def test_standard_error_is_working_messages(caller):
    """They come while the program runs, and do not end up in the artifact."""
    heard = await caller.run(sh("echo looking >&2; sleep 0.5; echo done"))
    assert (heard.notes, heard.artifacts, heard.state) == (["looking"], {"output": "done\n"}, COMPLETED)


@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        ("exit 0", COMPLETED, ""),
        ("echo working; echo; echo Which colour?; exit 10", INPUT_REQUIRED, "Which colour?"),
        ("exit 10", INPUT_REQUIRED, "sh waits for an answer."),
        ("echo out; exit 3", FAILED, "sh ended with status 3.\nout"),
        ("echo out; echo no ink >&2; exit 3", FAILED, "sh ended with status 3.\nno ink"),
        ("exit 3", FAILED, "sh ended with status 3."),
        ("echo why >&2; kill -SEGV $$", FAILED, "sh was killed by SIGSEGV.\nwhy"),
    ],
)
async def test_its_end_is_that_of_the_turn(caller, script, state, said):
    """0 completes, 10 asks with the last paragraph, all else fails with what was said last."""
    heard = await caller.run(sh(script))
    assert (heard.state, heard.said) == (state, said)


async def test_a_failure_keeps_the_end_of_a_long_log(caller):
    """The last lines, not the first."""
    heard = await caller.run(
        python("import sys; [print('line', n, file=sys.stderr) for n in range(9999)]; sys.exit(1)")
    )
    assert heard.said.endswith("line 9997\nline 9998")
    assert len(heard.said) < 5000


async def test_files_come_in_and_go_out(caller):
    """From the message into A2A_INBOX, and from A2A_OUTBOX into artifacts, whatever the status is."""
    line = sh(
        'ls "$A2A_INBOX"; mkdir "$A2A_OUTBOX/sub"; tr a-z A-Z < "$A2A_INBOX/in.txt" > "$A2A_OUTBOX/sub/o.txt"; exit 3'
    )
    heard = await caller.run(line, "x", Part(raw=b"shout", filename="../in.txt"))
    assert heard.artifacts == {"output": "in.txt\n"}
    assert heard.files == {"sub/o.txt": ("text/plain", b"SHOUT")}
    assert heard.state == FAILED


@pytest.mark.parametrize(
    ("line", "text", "says"),
    [
        ("echo {text}", "--help", "A message that begins with '-' could be taken for an option of echo."),
        ("echo {text}", "a\0b", "echo could not be started: embedded null byte."),
        ("echo {text}", "x" * 200_000, "echo could not be started: Argument list too long; a long message needs"),
        ("yes", "x", "yes wrote more than the 100,000 bytes that the host allows (command_max_output)."),
        (sh('ln -s / "$A2A_OUTBOX/x"'), "x", "sh put 'x' into its outbox, which cannot be read"),
    ],
)
async def test_what_cannot_be_done_fails_the_task_and_says_why(caller, line, text, says):
    """A program that is too loud is ended; others are not even started."""
    heard = await caller.run(line, text, max_output=100_000)
    assert heard.state == FAILED
    assert heard.said.startswith(says)


async def begin(caller, tmp_path, mode, **changes):
    """A tree at work: its agent, its run, its context and its processes."""
    agent, heard = (
        caller.agent(shlex.join([sys.executable, str(write_tree(tmp_path)), mode, str(tmp_path)]), **changes),
        Heard(),
    )
    context = caller.context(Part(text="x"))
    run = asyncio.create_task(agent.execute(context, heard))
    return agent, run, context, heard, await until(lambda: started(tmp_path))


async def test_cancel_ends_the_whole_tree_and_says_nothing_of_its_status(caller, tmp_path):
    """It returns once nothing is left; what TERM did to the program is no failure of the task."""
    agent, run, context, heard, pids = await begin(caller, tmp_path, "polite")
    told = Heard()
    await agent.cancel(context, told)
    assert not any(map(alive, pids))
    assert {path.name for path in tmp_path.glob("*-heard")} == {f"{name}-heard" for name in NAMES}
    await run
    assert (told.state, heard.state) == (CANCELED, WORKING)


async def test_cancel_kills_what_ignores_term(caller, tmp_path):
    """After the grace."""
    agent, run, context, _, pids = await begin(caller, tmp_path, "deaf", grace=0.2)
    await agent.cancel(context, Heard())
    assert not any(map(alive, pids))
    await run


async def test_cancelling_the_run_itself_gives_it_the_grace(caller, tmp_path):
    """TERM first: whoever did not call cancel before has shown no impatience yet."""
    _, run, _, _, pids = await begin(caller, tmp_path, "polite")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not any(map(alive, pids))
    assert len(list(tmp_path.glob("*-heard"))) == len(NAMES)


async def test_a_host_without_patience_gets_kill(caller, tmp_path):
    """It asked with cancel, and now cancels the run: nothing waits for the grace of an hour."""
    agent, run, context, _, pids = await begin(caller, tmp_path, "deaf", grace=3600)
    asking = asyncio.create_task(agent.cancel(context, Heard()))
    await asyncio.wait({asking}, timeout=0.2)
    run.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await run
    assert not any(map(alive, pids))
    await asking


async def test_cancel_of_what_does_not_run_only_says_so(caller):
    """The task may be between two turns, or on another host."""
    told = Heard()
    await caller.agent("cat").cancel(caller.context(Part(text="x")), told)
    assert told.state == CANCELED


def test_the_card_tells_the_program_and_not_its_arguments(caller):
    """A command line may hold what is nobody's business."""
    card = caller.agent("cat --token=secret").card()
    assert card.name == "cat"
    assert "secret" not in str(card)
