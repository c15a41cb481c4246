"""A host without a server: agents run under the SDK's handler, with workspaces, over a store of the test's."""

from __future__ import annotations

import asyncio

from a2a.helpers import get_message_text
from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
)

from a2a_gcs.executors.workspaced import WorkspacedExecutor
from a2a_gcs.host.admission import Admission
from a2a_gcs.host.request_handler import RequestHandler
from a2a_gcs.objectstore import ObjectStore
from a2a_gcs.workspaces.snapshots import Snapshots
from a2a_gcs.workspaces.workdir import WorkDirs
from tests.support.hosts import Host, message


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

    def __init__(self, store: ObjectStore, name: str, script, directory, **options) -> None:
        super().__init__(store, name)
        self.agent = Agent(script)
        self.workdirs = WorkDirs(directory / name)
        snapshots = Snapshots(store, pause=0.0)
        executor = WorkspacedExecutor(
            self.agent, self.table, self.ledger, snapshots, self.workdirs, stop_patience=0.2, **options
        )
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
        self.handler = RequestHandler(executor, self.tasks, self.stream, self.ledger, self.table, card, Admission())

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
