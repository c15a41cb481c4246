"""The demo agent: no model and no network, and every state of a task can be tried with a word.

It appends each message to `journal.md` in its workspace, one numbered line a
message, and sends the list of files as the artifact `files`, so that what
persists is there to see. The first word of a message may be a command:

    ask <question>        ends input-required; the answer is the next message of the same task
    fail [reason]         the task fails
    sleep <seconds>       works that long, then completes; can be canceled meanwhile
    stream <n> [bytes]    sends the artifact `stream` in n chunks, each of so many bytes
    write <path> <text>   writes the text, as it is, to a file of the workspace
    read <path>           answers with the content of a file, and sends it as the artifact `read`
    rm <path>             removes a file, or a directory with all in it

Anything else completes with the number of messages in the journal. Paths stay
inside the workspace. A command that cannot be carried out fails its task with
a message that shows the usage. `WORDS` below is what the agent obeys and what
its card shows.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import AgentSkill, Message, Part, Task, TaskState, TaskStatus

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.executors.workspace import workspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from a2a.server.events import EventQueue

JOURNAL = "journal.md"
FILES_PER_CHUNK = 100
MAX_READ_BYTES = 1024**2
MAX_SLEEP_SECONDS = 24 * 3600
MAX_CHUNKS = 100_000
MAX_STREAM_BYTES = 64 * 1024**2

_COUNT = re.compile("[0-9]{1,9}")
COMPLETED = TaskState.TASK_STATE_COMPLETED


class CannotDo(A2AGcsError):
    """A command that fails its task; the text is what the caller reads."""


@dataclass(frozen=True)
class Outcome:
    """How a turn ends."""

    text: str
    state: TaskState = COMPLETED


@dataclass(frozen=True)
class Turn:
    """What a command works with."""

    updater: TaskUpdater
    files: WorkspaceFiles


@dataclass(frozen=True)
class Word:
    """One command: how it is written, what it does, and the function that does it."""

    usage: str
    does: str
    example: str
    run: Callable[[Turn, str], Awaitable[Outcome]]

    def refused(self, reason: str) -> CannotDo:
        return CannotDo(f"{reason}; usage: {self.usage}")


class DemoAgent(AgentExecutor):
    """Keeps a journal in its workspace and obeys the words of this module."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        if task is None:
            task = _submitted(context)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        outcome = await _answer(Turn(updater, WorkspaceFiles(workspace(context))), context.get_user_input())
        await updater.update_status(outcome.state, _message(updater, outcome.text))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Only says so: `execute` is cancelled by the host and leaves nothing to clean up."""
        if context.current_task is not None:
            task = context.current_task
            await TaskUpdater(event_queue, task.id, task.context_id).cancel()


def skills() -> list[AgentSkill]:
    """What the agent card says that this agent can do."""
    journal = AgentSkill(
        id="journal",
        name="journal",
        description=f"Appends every message to {JOURNAL} and says how many it holds.",
        tags=["demo"],
        examples=["hello"],
    )
    words = (
        AgentSkill(id=name, name=word.usage, description=word.does, tags=["demo"], examples=[word.example])
        for name, word in WORDS.items()
    )
    return [journal, *words]


async def _answer(turn: Turn, text: str) -> Outcome:
    """Journal, command, file list: in this order, so that the list shows what the command did."""
    name, argument = (*text.split(maxsplit=1), "", "")[:2]
    try:
        count = turn.files.append_to_journal(text)
        word = WORDS.get(name)
        if word is None:
            outcome = Outcome(f"{JOURNAL} holds {count} message{'' if count == 1 else 's'}")
        else:
            outcome = await word.run(turn, argument)
    except CannotDo as error:
        outcome = Outcome(str(error), TaskState.TASK_STATE_FAILED)
    except OSError as error:
        outcome = Outcome(f"the workspace cannot be used: {error.strerror}", TaskState.TASK_STATE_FAILED)
    await _send_files(turn)
    return outcome


async def _send_files(turn: Turn) -> None:
    lines = await asyncio.to_thread(turn.files.listing)
    chunks = ["".join(lines[i : i + FILES_PER_CHUNK]) for i in range(0, len(lines), FILES_PER_CHUNK)]
    await _send_artifact(turn.updater, "files", chunks or ["(no files)\n"])


async def _send_artifact(updater: TaskUpdater, name: str, chunks: list[str]) -> None:
    for i, chunk in enumerate(chunks):
        await updater.add_artifact(
            [Part(text=chunk)], artifact_id=name, name=name, append=i > 0, last_chunk=i == len(chunks) - 1
        )


async def _ask(_turn: Turn, question: str) -> Outcome:
    if not question.strip():
        raise WORDS["ask"].refused("there is no question")
    return Outcome(question.strip(), TaskState.TASK_STATE_INPUT_REQUIRED)


async def _fail(_turn: Turn, reason: str) -> Outcome:
    return Outcome(reason.strip() or "failed, as asked", TaskState.TASK_STATE_FAILED)


async def _sleep(_turn: Turn, argument: str) -> Outcome:
    try:
        seconds = float(argument)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_SLEEP_SECONDS:
        raise WORDS["sleep"].refused(f"{argument.strip()!r} is not a number of seconds from 0 to {MAX_SLEEP_SECONDS}")
    await asyncio.sleep(seconds)
    return Outcome(f"slept {argument.strip()} s")


async def _stream(turn: Turn, argument: str) -> Outcome:
    numbers = [int(word) if _COUNT.fullmatch(word) else 0 for word in argument.split()]
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise WORDS["stream"].refused(f"{argument.strip()!r} is not a number of chunks (and of bytes in each)")
    count, size = numbers[0], numbers[1] if len(numbers) > 1 else None
    if count > MAX_CHUNKS or count * (size or 1) > MAX_STREAM_BYTES:
        raise WORDS["stream"].refused(f"at most {MAX_CHUNKS} chunks and {MAX_STREAM_BYTES} bytes in all")
    await _send_artifact(turn.updater, "stream", [_chunk(i, count, size) for i in range(1, count + 1)])
    return Outcome(f"streamed {count} chunk{'' if count == 1 else 's'}")


def _chunk(number: int, count: int, size: int | None) -> str:
    text = f"chunk {number} of {count}"
    return f"{text}\n" if size is None else text.ljust(size - 1, ".")[: size - 1] + "\n"


async def _write(turn: Turn, argument: str) -> Outcome:
    path, text = (*argument.split(maxsplit=1), "", "")[:2]
    if not text:
        raise WORDS["write"].refused("a path and a text are needed")
    size = turn.files.write(path, text)
    return Outcome(f"wrote {size} bytes to {path}")


async def _read(turn: Turn, argument: str) -> Outcome:
    path = argument.strip()
    if not path:
        raise WORDS["read"].refused("there is no path")
    content = turn.files.read(path)
    await turn.updater.add_artifact([Part(text=content)], artifact_id="read", name=path, last_chunk=True)
    return Outcome(content)


async def _rm(turn: Turn, argument: str) -> Outcome:
    path = argument.strip()
    if not path:
        raise WORDS["rm"].refused("there is no path")
    turn.files.remove(path)
    return Outcome(f"removed {path}")


WORDS = {
    "ask": Word("ask <question>", "Ends input-required with the question.", "ask Which colour?", _ask),
    "fail": Word("fail [reason]", "Fails the task.", "fail out of ink", _fail),
    "sleep": Word("sleep <seconds>", "Works that long, then completes.", "sleep 5", _sleep),
    "stream": Word("stream <n> [bytes]", "Sends an artifact in n chunks of so many bytes.", "stream 3 1024", _stream),
    "write": Word("write <path> <text>", "Writes a file of the workspace.", "write notes/a.txt hello", _write),
    "read": Word("read <path>", "Answers with the content of a file.", "read notes/a.txt", _read),
    "rm": Word("rm <path>", "Removes a file or directory of the workspace.", "rm notes", _rm),
}


class WorkspaceFiles:
    """The files below one directory, by relative path; nothing outside of it is read, written or removed.

    Links are followed as long as they lead to a place inside. The messages of
    its errors name relative paths only.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def append_to_journal(self, text: str) -> int:
        """Adds one line and returns its number; a message of several lines becomes one."""
        journal = self._inside(JOURNAL)
        before = journal.read_text("utf-8", "replace") if journal.exists() else ""
        number = len(before.splitlines()) + 1
        start = "\n" if before and not before.endswith("\n") else ""
        with journal.open("a", encoding="utf-8") as file:
            file.write(f"{start}{number}. {' '.join(text.splitlines()) or '(no text)'}\n")
        return number

    def listing(self) -> list[str]:
        """`path size` for every file and `path -> target` for every link, in the order of their names."""
        found = []
        for directory, directories, files in os.walk(self._root):
            here = Path(directory)
            links = [name for name in directories if (here / name).is_symlink()]
            found += [here / name for name in (*files, *links)]
        return [f"{self._described(path)}\n" for path in sorted(found)]

    def read(self, name: str) -> str:
        path = self._inside(name)
        if not path.is_file():
            raise CannotDo(f"{name!r} is not a file of the workspace")
        if path.stat().st_size > MAX_READ_BYTES:
            raise CannotDo(f"{name!r} is larger than {MAX_READ_BYTES} bytes")
        return path.read_bytes().decode("utf-8", "replace")

    def write(self, name: str, text: str) -> int:
        path = self._inside(name)
        if path.exists() and not path.is_file():
            raise CannotDo(f"{name!r} is not a file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.write_bytes(text.encode())
        except OSError as error:
            raise CannotDo(f"{name!r} cannot be written: {error.strerror}") from error

    def remove(self, name: str) -> None:
        path = self._inside(str(Path(name).parent)) / Path(name).name  # a link itself, not what it leads to
        if not os.path.lexists(path) or path == self._root:
            raise CannotDo(f"{name!r} is not in the workspace")
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError as error:
            raise CannotDo(f"{name!r} cannot be removed: {error.strerror}") from error

    def _inside(self, name: str) -> Path:
        outside = CannotDo(f"{name!r} is not a path inside the workspace; write it relative, without '..'")
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise outside
        try:
            path = (self._root / name).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name too long, a NUL
            raise CannotDo(f"{name!r} cannot be used as a path") from error
        if not path.is_relative_to(self._root):
            raise outside
        return path

    def _described(self, path: Path) -> str:
        name = path.relative_to(self._root).as_posix()
        line = f"{name} -> {path.readlink()}" if path.is_symlink() else f"{name} {path.lstat().st_size}"
        return line.encode("utf-8", "backslashreplace").decode()  # a name need not be text; a part must be


def _submitted(context: RequestContext) -> Task:
    """The task of a message that no host has published: the first event has to be one."""
    status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
    status.timestamp.GetCurrentTime()
    history = [context.message] if context.message is not None else []
    return Task(id=context.task_id or "", context_id=context.context_id or "", status=status, history=history)


def _message(updater: TaskUpdater, text: str) -> Message:
    return updater.new_agent_message([Part(text=text)])
