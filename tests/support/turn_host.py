"""A host without a server: agents run under the SDK's handler, with workspaces, over a store of the test's."""

from __future__ import annotations

import asyncio

from a2a.helpers import get_message_text, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

from a2a_gcs.executors.large_parts import Limits, entering
from a2a_gcs.executors.workspace import workspace
from a2a_gcs.executors.workspaced import WorkspacedExecutor
from a2a_gcs.host.request_handler import RequestHandler
from a2a_gcs.objectstore import ObjectStore
from a2a_gcs.tasks.files import TaskFiles
from a2a_gcs.workspaces.snapshots import Snapshots
from a2a_gcs.workspaces.warm import WarmDirs
from a2a_gcs.workspaces.workdir import WorkDirs
from a2a_gcs.workspaces.workspaces import Workspaces
from tests.support.hosts import AUTH_REQUIRED, COMPLETED, FAILED, INPUT_REQUIRED, Host, artifact, message, status


class Agent(AgentExecutor):
    """Runs a coroutine function of the test's as an agent.

    Attributes:
        stopped: Set when the agent was asked to stop.
        left: Set when its run has come to an end, however that was.
    """

    def __init__(self, script):
        self.script = script
        self.stopped = asyncio.Event()
        self.left = asyncio.Event()
        self.runs = 0

    async def execute(self, context, event_queue):
        self.runs += 1
        try:
            await self.script(context, event_queue)
        finally:
            self.left.set()

    async def cancel(self, context, event_queue):
        self.stopped.set()


class TurnHost(Host):
    """A host whose turns an agent runs, driven as a binding of the server would."""

    def __init__(self, store: ObjectStore, name: str, script, directory, *, warm_bytes=0, inline=0, **options) -> None:
        super().__init__(store, name)
        self.agent = Agent(script)
        self.workdirs = WorkDirs(directory / name)
        workspaces = Workspaces(Snapshots(store, pause=0.0), self.workdirs, WarmDirs(warm_bytes))
        enter = None
        if inline:
            files, limits = TaskFiles(store), Limits(inline)
            options |= {"files": files, "limits": limits}
            enter = entering(files, limits)
        executor = WorkspacedExecutor(self.agent, self.table, self.ledger, workspaces, stop_patience=0.2, **options)
        card = AgentCard(
            name="test",
            description="test",
            version="1",
            default_input_modes=["text"],
            default_output_modes=["text"],
            capabilities=AgentCapabilities(streaming=True),
            supported_interfaces=[
                AgentInterface(url="http://127.0.0.1", protocol_binding="JSONRPC", protocol_version="1.0")
            ],
        )
        card.skills.add(id="t", name="t", description="t", tags=["t"])
        self.executor = executor
        self.handler = RequestHandler(executor, self.tasks, self.stream, self.ledger, self.table, card, entering=enter)

    def request(self, text="hello", *, task_id=None, context_id="ctx", at_once=False, message_id=None):
        said = message(text, message_id)
        said.task_id, said.context_id = task_id or "", "" if task_id else context_id
        return SendMessageRequest(message=said, configuration=SendMessageConfiguration(return_immediately=at_once))

    async def send(self, text="hello", **options) -> Task | Message:
        return await self.handler.on_message_send(self.request(text, **options), ServerCallContext())

    def send_stream(self, text="hello", **options):
        return self.handler.on_message_send_stream(self.request(text, **options), ServerCallContext())

    async def cancel(self, task_id) -> Task:
        return await self.handler.on_cancel_task(CancelTaskRequest(id=task_id), ServerCallContext())

    async def close(self):
        await self.handler.aclose()
        await self.tasks.aclose()
        self.workdirs.close()


def said(task: Task) -> str:
    """The text of a task's status message."""
    return get_message_text(task.status.message)


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


async def parked_or_ended(host, task_id):
    """Waits until the turn of a task is over: AUTH_REQUIRED is told while it is still open."""
    claim = host.table.get(task_id)
    if claim is not None:
        over = asyncio.Event()
        claim.on_stop(over.set)
        await over.wait()
