"""The agent that the A2A conformance kit steers, by the beginning of messageIds (its SUT_REQUIREMENTS.md).

`make tck TCK_DIR=...` serves it as `tests.support.tck_agent:TckAgent`; the host
itself knows nothing of the kit.
"""

from __future__ import annotations

import asyncio
import os

from a2a.helpers.proto_helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentSkill, Part, Role, TaskState
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

LONG_SECONDS = 2 * float(os.environ.get("TCK_STREAMING_TIMEOUT", "2.0"))

FILE = Part(raw=b"file content", filename="output.txt", media_type="text/plain")
URL = Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain")
DATA = Part(data=ParseDict({"key": "value", "count": 42}, Value()))

ARTIFACTS = {
    "tck-artifact-text": Part(text="Generated text content"),
    "tck-artifact-file-url": URL,
    "tck-artifact-file": FILE,
    "tck-artifact-data": DATA,
    "tck-stream-001": Part(text="Stream hello from TCK"),
    "tck-stream-003": Part(text="Stream task lifecycle"),
    "tck-stream-ordering-001": Part(text="Ordered output"),
    "tck-stream-artifact-text": Part(text="Streamed text content"),
    "tck-stream-artifact-file": FILE,
}


class TckAgent(AgentExecutor):
    """Answers with what the kit's scenarios say, and completes anything else."""

    card = AgentCard(
        name="conformance",
        description="The agent of the conformance kit.",
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="tck", name="tck", description="What the kit asks for.", tags=["tck"])],
    )

    async def execute(self, context, event_queue):
        name = context.message.message_id
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        if name.startswith("tck-message-response"):
            answer = new_text_message("Direct message response", context_id=context.context_id, role=Role.ROLE_AGENT)
            await event_queue.enqueue_event(answer)
            return
        if name.startswith("tck-reject-task"):
            await task.reject(said(task, "rejected"))
            return
        if name.startswith("tck-input-required"):
            await task.update_status(TaskState.TASK_STATE_INPUT_REQUIRED, said(task, "more?"))
            return
        await task.start_work()
        if name.startswith("test-resubscribe-message-id"):
            await asyncio.sleep(LONG_SECONDS)
        elif name.startswith("tck-stream-artifact-chunked"):
            for text, last in (("chunk-1 ", False), ("chunk-2", True)):
                await task.add_artifact([Part(text=text)], artifact_id="chunks", append=last, last_chunk=last)
        elif (found := next((part for prefix, part in ARTIFACTS.items() if name.startswith(prefix)), None)) is not None:
            await task.add_artifact([found], last_chunk=True)
        await task.complete(said(task, "Hello from TCK"))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class TckAgent03(TckAgent):
    """For the kit of 0.3, which answers and cancels what it has just sent: every turn waits for the next message."""

    async def execute(self, context, event_queue):
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        await asyncio.sleep(LONG_SECONDS if context.message.message_id.startswith("test-resubscribe") else 0)
        await task.update_status(TaskState.TASK_STATE_INPUT_REQUIRED, said(task, "more?"))


def said(task, text):
    return task.new_agent_message([Part(text=text)])
