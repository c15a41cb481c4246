"""What `send` shows of a stream: artifacts on stdout, everything about them on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from a2a.helpers import get_message_text
from a2a.types.a2a_pb2 import TaskState
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.text import Text

from a2a_gcs.cli.connection import command, state_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from a2a.types.a2a_pb2 import Artifact, Part, StreamResponse, TaskStatus

WAITING = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)
RUNNING = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
STYLES = {
    TaskState.TASK_STATE_COMPLETED: "green",
    **dict.fromkeys(RUNNING, "cyan"),
    **dict.fromkeys(WAITING, "yellow"),
}


class Transcript:
    """Shows events as they come, and remembers what the end of the command needs.

    Attributes:
        task_id: The task's id, empty before the first event and for an answer without a task.
        context_id: Likewise.
        state: The last state heard of, None without a task.
    """

    def __init__(self, url: str, *, as_json: bool) -> None:
        self.task_id = self.context_id = ""
        self.state: TaskState | None = None
        self._answered = False
        self._url, self._json = url, as_json
        self._shown: set[str] = set()
        self._open: str | None = None
        self._last = "\n"
        self._err = Console(stderr=True, highlight=False, soft_wrap=True)

    @property
    def succeeded(self) -> bool:
        """The task completed or waits for the caller, or the agent answered without a task."""
        if self.state is None:
            return self._answered
        return self.state in (TaskState.TASK_STATE_COMPLETED, *WAITING)

    def show(self, event: StreamResponse) -> None:
        """Prints one event and takes note of it."""
        if self._json:
            self._write(json.dumps(MessageToDict(event), ensure_ascii=False) + "\n")
        match event.WhichOneof("payload"):
            case "task":
                self._know(event.task.id, event.task.context_id)
                for artifact in event.task.artifacts:
                    if artifact.artifact_id not in self._shown:
                        self._artifact(artifact, last=True)
                self._status(event.task.status)
            case "status_update":
                self._know(event.status_update.task_id, event.status_update.context_id)
                self._status(event.status_update.status)
            case "artifact_update":
                self._know(event.artifact_update.task_id, event.artifact_update.context_id)
                self._artifact(event.artifact_update.artifact, last=event.artifact_update.last_chunk)
            case "message":
                self._know(event.message.task_id, event.message.context_id)
                self._answered = True
                self._parts(event.message.parts)
                self._end_line()

    def close(self) -> None:
        """Prints ids, state, and what can be done next."""
        self._end_line()
        if self.state is None:
            return
        self._say(f"task {self.task_id}  context {self.context_id}  {state_name(self.state)}", "bold")
        if self.state in WAITING:
            self._say(f"to answer: {command('send', self._url, '--task', self.task_id, 'your answer')}")
        elif self.state in RUNNING:
            self._say("the stream ended before the task did; it may go on")

    def interrupted(self) -> str:
        """What to say when the person stops watching."""
        self._end_line()
        if not self.task_id:
            return "interrupted; whether the host took the message is not known"
        return f"interrupted; the task goes on, to cancel it: {command('cancel', self._url, self.task_id)}"

    def _know(self, task_id: str, context_id: str) -> None:
        self.task_id, self.context_id = task_id or self.task_id, context_id or self.context_id

    def _status(self, status: TaskStatus) -> None:
        text = get_message_text(status.message) if status.HasField("message") else ""
        repeated = self.state == status.state and not text  # as the first event, a whole task, does
        self.state = status.state
        if self._json or repeated:
            return
        self._end_line()
        self._say(state_name(status.state), STYLES.get(status.state, "red"), f": {text}" if text else "")

    def _artifact(self, artifact: Artifact, *, last: bool) -> None:
        if self._open != artifact.artifact_id and not self._json:
            self._end_line()
            self._say(f"artifact {artifact.name or artifact.artifact_id}", "dim")
        self._open = None if last else artifact.artifact_id
        self._shown.add(artifact.artifact_id)
        self._parts(artifact.parts)
        if last:
            self._end_line()

    def _parts(self, parts: Iterable[Part]) -> None:
        if self._json:
            return
        for part in parts:
            match part.WhichOneof("content"):
                case "text":
                    self._write(part.text)
                case "data":
                    self._write(json.dumps(MessageToDict(part.data), ensure_ascii=False) + "\n")
                case "url":
                    self._write(part.url + "\n")
                case "raw":
                    name = part.filename or part.media_type or "no name"
                    self._say(f"({len(part.raw)} bytes: {name}; --json shows them)")

    def _say(self, text: str, style: str = "default", rest: str = "") -> None:
        self._err.print(Text(text, style).append(rest, "default"))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._last = text[-1:] or self._last

    def _end_line(self) -> None:
        if self._last != "\n":
            self._write("\n")
