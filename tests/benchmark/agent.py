"""The one agent that every store and host is measured with. Needs nothing but a2a-sdk 1.x.

A message `<chunks> <bytes>` is answered by one artifact in so many chunks of so many bytes, and completes.
`ask` asks back, `wait` waits until it is canceled, `write <bytes>` writes a file of its workspace (a2a-gcs only).
`WAITING` chunks let other tasks run in between, as a model would.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part

from tests.benchmark.chunks import chunk_of


class BenchmarkAgent(AgentExecutor):
    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        words = context.get_user_input().split()
        match words:
            case ["ask"]:
                await updater.requires_input()
            case ["wait"]:
                await updater.start_work()
                await asyncio.Event().wait()
            case ["write", size]:
                _write(context, int(size))
                await updater.complete()
            case [chunks, size]:
                await _stream(updater, int(chunks), int(size))
                await updater.complete()
            case _:
                await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def _stream(updater, chunks, size):
    await updater.start_work()
    for number in range(chunks):
        parts = [Part(text=chunk_of(number, size))]
        await updater.add_artifact(
            parts, artifact_id="output", name="output", append=number > 0, last_chunk=number == chunks - 1
        )


def _write(context, size):
    from a2a_gcs.executors.workspace import workspace

    Path(workspace(context), "output.bin").write_bytes(os.urandom(size))


def card(url="http://127.0.0.1/"):
    return AgentCard(
        name="benchmark",
        description="Answers in as many chunks as it is asked for.",
        version="1",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="chunks", name="chunks", description="Chunks.", tags=["benchmark"])],
    )
