"""The command agent: any program, run in the workspace of each task.

    --agent "command:mytool --flag {text}"

The message is an argument where the command line has `{text}`, a JSON file
where it has `{message_file}`, and standard input otherwise. What the program
writes to standard output becomes an artifact while it runs; what it writes to
standard error, working messages. How it ends is how the turn ends:

    status 0     completed
    status 10    input-required; the last paragraph of the output is the question
    any other    failed, with the end of standard error

The README's section on command agents is the whole contract.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import structlog
from a2a.helpers import get_message_text
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import AgentCard, AgentSkill, Message, Part, Role, TaskState

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.executors.command_files import OutboxRefused, TurnFiles, handed_out, turn_files
from a2a_gcs.executors.command_line import CommandLine, MessageRefused, environment
from a2a_gcs.executors.command_output import Notes, Output, TooMuchOutput
from a2a_gcs.executors.command_process import Ended, Lease, NotStarted, Program, running
from a2a_gcs.executors.workspace import workspace
from a2a_gcs.layout import TaskRef
from a2a_gcs.workspaces.workdir import WorkDirs

log = structlog.get_logger(__name__)

ASKS = 10
"""Exit status of a program that waits for an answer."""

HOME_IN_WORKSPACE = ".home"
"""Where HOME is, below the workspace, with command_home = workspace."""

LEFT_READING_SECONDS = 2.0
"""How long output is still read when processes are left that could not be ended, and may hold it open for ever."""

COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """What a host gives to its command agent.

    Attributes:
        workdirs: Makes the directory beside the workspace that each turn gets.
        lease: How long a program may run without hearing of this host.
        host_environment: The host's own variables.
        pass_on: Names or patterns of those that the program gets beside the usual ones.
        home: HOME is a directory of the turn (`tmp`), or one in the workspace.
        max_output: Most bytes of standard output, and of the outbox.
        grace: Seconds between TERM and KILL.
    """

    workdirs: WorkDirs
    lease: Lease
    host_environment: Mapping[str, str]
    pass_on: tuple[str, ...] = ()
    home: Literal["tmp", "workspace"] = "tmp"
    max_output: int = 16 << 20
    grace: float = 5.0


@dataclass(slots=True)
class _Run:
    """A program at work."""

    program: Program
    stopping: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


class CommandAgent(AgentExecutor):
    """Runs one program per turn."""

    def __init__(self, line: CommandLine, options: CommandOptions) -> None:
        self._line = line
        self._options = options
        self._runs: dict[str, _Run] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message or Message()
        turn = _Turn(context, event_queue, self._line, self._options)
        try:
            async with turn_files(self._options.workdirs, turn.ref, message) as files:
                ended = await self._run(turn, message, files)
                if ended is None:
                    return
                await turn.hand_out(files)
        except (MessageRefused, NotStarted, TooMuchOutput, OutboxRefused) as error:
            await turn.fail(error)
            return
        await turn.end(ended)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Sends TERM, then KILL after the grace, to the program and all that it started; returns when that is done.

        When whoever called has no more patience and cancels `execute` itself, KILL follows at once.
        """
        run = self._runs.get(context.task_id or "")
        if run is not None:
            run.stopping = True
            run.program.stop()
            await run.over.wait()
        if context.current_task is not None:
            task = context.current_task
            await TaskUpdater(event_queue, task.id, task.context_id).cancel()

    def card(self) -> AgentCard:
        """Tells the name of the program; the rest of the command line is nobody's business."""
        name = self._line.name
        skill = AgentSkill(id="run", name=name, description=f"Runs {name} in the workspace.", tags=["command"])
        modes = ["text/plain", "application/octet-stream"]
        return AgentCard(
            name=name,
            description=f"Runs {name} in the workspace of each task.",
            version=version("a2a-gcs"),
            default_input_modes=modes,
            default_output_modes=modes,
            skills=[skill],
        )

    async def _run(self, turn: _Turn, message: Message, files: TurnFiles) -> Ended | None:
        """Runs the program to its end; None if it was stopped by `cancel`."""
        async with turn.started(message, files) as program:
            run = self._runs[turn.ref.task_id] = _Run(program)
            try:
                ended = await turn.follow(program)
            finally:
                del self._runs[turn.ref.task_id]
                run.over.set()
        return None if run.stopping else ended


class _Turn:
    """One run of the program for one message, and what is told of it."""

    def __init__(self, context: RequestContext, queue: EventQueue, line: CommandLine, options: CommandOptions) -> None:
        self.ref = TaskRef(context.context_id or "", context.task_id or "")
        self._number = _turn_number(context)
        self._workspace = workspace(context)
        self._line = line
        self._options = options
        self._updater = TaskUpdater(queue, self.ref.task_id, self.ref.context_id)
        self._artifact = "output" if self._number == 1 else f"output-{self._number}"
        self._begun = False
        self._output = Output(self._send_output, options.max_output)
        self._notes = Notes(self._send_note)

    @contextlib.asynccontextmanager
    async def started(self, message: Message, files: TurnFiles) -> AsyncIterator[Program]:
        """The program, until the end of the `async with`. Raises MessageRefused and NotStarted."""
        values = {
            "text": get_message_text(message),
            "task": self.ref.task_id,
            "context": self.ref.context_id,
            "workspace": str(self._workspace),
            "message_file": str(files.message),
        }
        options = self._options
        async with running(
            self._line.filled(values),
            directory=self._workspace,
            keeps=options.workdirs.lock_of(self._workspace),
            environment=environment(options.host_environment, options.pass_on, self._variables(files)),
            stdin=files.stdin if self._line.reads_stdin else None,
            grace=options.grace,
            lease=options.lease,
        ) as program:
            await self._updater.start_work()
            yield program

    def _variables(self, files: TurnFiles) -> dict[str, str]:
        return {
            "A2A_TASK_ID": self.ref.task_id,
            "A2A_CONTEXT_ID": self.ref.context_id,
            "A2A_TURN": str(self._number),
            "A2A_WORKSPACE": str(self._workspace),
            "A2A_MESSAGE_FILE": str(files.message),
            "A2A_INBOX": str(files.inbox),
            "A2A_OUTBOX": str(files.outbox),
            "HOME": str(self._home(files)),
            "PWD": str(self._workspace),
        }

    def _home(self, files: TurnFiles) -> Path:
        if self._options.home == "tmp":
            return files.home
        home = self._workspace / HOME_IN_WORKSPACE
        try:
            home.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise NotStarted(f"{HOME_IN_WORKSPACE} in the workspace cannot be its home: {error.strerror}") from error
        return home

    async def follow(self, program: Program) -> Ended:
        """Passes on what the program writes until it has ended. Raises TooMuchOutput and NotStarted."""
        end = asyncio.create_task(program.ended())
        reading = {
            asyncio.create_task(self._output.run(program.stdout)),
            asyncio.create_task(self._notes.run(program.stderr)),
        }
        try:
            await _all_of(end, reading)
        except asyncio.CancelledError:
            program.stop()  # and its output is read on, as a program that cannot write does not end
            await asyncio.wait({end})
            raise
        finally:
            for task in (end, *reading):
                task.cancel()
            await asyncio.gather(end, *reading, return_exceptions=True)
        return end.result()

    async def hand_out(self, files: TurnFiles) -> None:
        """Ends the output, and sends the files of the outbox. Raises OutboxRefused."""
        if self._begun:
            await self._send_output("", last=True)
        for part in await asyncio.to_thread(lambda: list(handed_out(files.outbox, self._options.max_output))):
            name = part.filename
            await self._updater.add_artifact([part], artifact_id=f"outbox/{name}", name=name, last_chunk=True)

    async def end(self, ended: Ended) -> None:
        """Says what the turn came to."""
        if ended.left:
            log.error("command.processes_left", task_id=self.ref.task_id, processes=ended.left)
        if ended.code == 0:
            await self._updater.complete()
        elif ended.code == ASKS:
            question = self._output.tail.last_paragraph() or f"{self._line.name} waits for an answer."
            await self._updater.requires_input(self._said(question))
        else:
            tail = self._notes.tail.take() or self._output.tail.take()
            await self._updater.failed(self._said(f"{self._line.name} {ended}." + (f"\n{tail}" if tail else "")))

    async def fail(self, error: A2AGcsError) -> None:
        """Says why there is no result."""
        about = {NotStarted: f"{self._line.name} could not be started: {error}.", MessageRefused: str(error)}
        await self._updater.failed(self._said(about.get(type(error), f"{self._line.name} {error}.")))

    async def _send_output(self, text: str, *, last: bool = False) -> None:
        append, self._begun = self._begun, True
        await self._updater.add_artifact(
            [Part(text=text)], artifact_id=self._artifact, name="output", append=append, last_chunk=last
        )

    async def _send_note(self, text: str) -> None:
        await self._updater.start_work(self._said(text))

    def _said(self, text: str) -> Message:
        return self._updater.new_agent_message([Part(text=text)])


async def _all_of(end: asyncio.Task[Ended], reading: set[asyncio.Task[None]]) -> None:
    """Waits for the end and for all output before it; raises the first error."""
    waiting: set[asyncio.Task[Any]] = {end, *reading}
    while waiting:
        patience = LEFT_READING_SECONDS if end.done() and end.result().left else None
        done, waiting = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if not done:
            return


def _turn_number(context: RequestContext) -> int:
    """Counts what the user said in this task, this message included."""
    history = context.current_task.history if context.current_task is not None else []
    said = {message.message_id for message in history if message.role == Role.ROLE_USER}
    return len(said | ({context.message.message_id} if context.message is not None else set()))
