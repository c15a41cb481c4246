"""The agent of the chaos test: what it says lets a checker see what was lost, doubled or restored wrongly.

Every run appends the task's id to `lineage.txt` in the workspace and emits that file as
artifact `lineage-<k>`, where k counts the runs of this task by what the workspace says.
Chunks are numbered: the i-th of run k is `[k.i]`, in artifact `chunks-<k>`. Words:

    work <n> [ms]       n chunks, ms milliseconds apart, then completed
    ask <n> [ms]        the same, then input-required; the answer is a word again
    fail <n>            n chunks, then failed
    silent <seconds>    says nothing for that long, then completed
    block <seconds>     the same, and blocks the event loop of its host meanwhile
    deaf <seconds>      silent, and refuses to be cancelled
    thread <seconds>    silent, and waits in a thread, which nobody can stop
    message <text>      answers with a plain Message

What it does is also noted, a line a moment, in the file that CHAOS_LOG names: for what no
client is told, such as an agent that goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from datetime import datetime, timedelta
from pathlib import Path

from a2a.helpers.proto_helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import Part, Role, TaskState

from a2a_gcs import clock
from a2a_gcs.executors.workspace import workspace
from tests.chaos.mutations import apply

TICK_SECONDS = 0.05


def make():
    """Named as the agent on the command line: breaks the host first, if CHAOS_MUTANT and CHAOS_CLOCK say how."""
    apply(os.environ.get("CHAOS_MUTANT", ""))
    misset_clock(float(os.environ.get("CHAOS_CLOCK", "0")))
    return ChaosAgent()


def misset_clock(hours):
    """Makes this host's clock wrong, as far as the product reads it."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(hours=hours)

    clock.datetime = Wrong


class ChaosAgent(AgentExecutor):
    async def execute(self, context, event_queue):
        run = _Run(context, event_queue)
        run.note("start", message=context.message.message_id)
        try:
            await run.obey(context.get_user_input())
        finally:
            run.note("stop")

    async def cancel(self, context, event_queue):
        """Nothing to tidy up: the host cancels `execute`."""


class _Run:
    def __init__(self, context, event_queue):
        self.task = context.task_id
        self.queue = event_queue
        self.context_id = context.context_id
        self.updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        self.lineage = workspace(context) / "lineage.txt"
        lines = self.lineage.read_text().split() if self.lineage.exists() else []
        self.lines = [*lines, self.task]
        self.number = self.lines.count(self.task)

    async def obey(self, text):
        word, _, rest = text.partition(" ")
        if word == "message":
            await self.queue.enqueue_event(new_text_message(rest, context_id=self.context_id, role=Role.ROLE_AGENT))
            return
        self.lineage.write_text("".join(f"{line}\n" for line in self.lines))
        await self.updater.start_work()
        name = f"lineage-{self.number}"
        await self.updater.add_artifact([Part(text=" ".join(self.lines))], artifact_id=name, name=name, last_chunk=True)
        await getattr(self, f"_{word}")(*map(float, rest.split()))

    async def _work(self, count, pause=0.0):
        await self._chunks(count, pause)
        await self._end(TaskState.TASK_STATE_COMPLETED)

    async def _ask(self, count, pause=0.0):
        await self._chunks(count, pause)
        await self._end(TaskState.TASK_STATE_INPUT_REQUIRED)

    async def _fail(self, count):
        await self._chunks(count, 0.0)
        await self._end(TaskState.TASK_STATE_FAILED)

    async def _silent(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.note("tick")
            await asyncio.sleep(TICK_SECONDS)
        await self._end(TaskState.TASK_STATE_COMPLETED)

    async def _block(self, seconds):
        await asyncio.sleep(0.5)  # what it said so far is on its way
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.note("tick")
            time.sleep(TICK_SECONDS)  # noqa: ASYNC251 - what agents should not do, and do
        await asyncio.sleep(0)
        await self._end(TaskState.TASK_STATE_COMPLETED)

    async def _deaf(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.note("tick")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(TICK_SECONDS)
        await self._end(TaskState.TASK_STATE_COMPLETED)

    async def _thread(self, seconds):
        await asyncio.to_thread(time.sleep, seconds)
        await self._end(TaskState.TASK_STATE_COMPLETED)

    async def _chunks(self, count, milliseconds):
        name = f"chunks-{self.number}"
        for i in range(1, int(count) + 1):
            await self.updater.add_artifact(
                [Part(text=f"[{self.number}.{i}]")], artifact_id=name, name=name, append=i > 1, last_chunk=i == count
            )
            self.note("tick", chunk=i)
            await asyncio.sleep(milliseconds / 1000)

    async def _end(self, state):
        said = self.updater.new_agent_message([Part(text=f"run {self.number}")])
        await self.updater.update_status(state, said)

    def note(self, what, **more):
        path = os.environ.get("CHAOS_LOG")
        if path:
            entry = {"at": time.time(), "host": os.environ["CHAOS_HOST"], "task": self.task, "what": what, **more}
            with Path(path).open("a") as log:
                log.write(json.dumps({**entry, "run": self.number}) + "\n")
