"""Agents under test, named `tests.support.agents:<class>` on the command line.

`Scripted` obeys the demo agent's words and these, whose files are the test's:

    hold <file>            works until the file exists
    drip <file> <n>        streams chunk after chunk, n of them once the file exists, then completes
    deaf <file>            works until the file exists, whoever cancels it; says in `<file>.done` that it has ended
    tick <file>            appends to the file and to an artifact for ever; says in the file that it was stopped
    block <seconds>        blocks the event loop that long (time.sleep in execute)
    mute <file>            emits nothing at all until the file exists
    ask_on <state> <file>  asks, ending in that state as far as anybody may think, then works until the file exists
    message <text>         answers with a plain Message
    gather <id> <text>     sends an artifact of this id, then asks for more
    empty                  sends parts without any content, in an artifact and in a question
    spoil <path> <text>    writes a file, then fails

`Files` is for large content, and sends back the files that it gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from pathlib import Path

from a2a.helpers.proto_helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import Message, Part, Role, TaskState

from a2a_gcs.executors.demo import DemoAgent
from a2a_gcs.executors.workspace import workspace

LOOK_EVERY = 0.02


class Scripted(DemoAgent):
    async def execute(self, context, event_queue):
        word, _, rest = context.get_user_input().partition(" ")
        obey = getattr(self, f"_{word}", None)
        if obey is None:
            await super().execute(context, event_queue)
            return
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await obey(rest, updater, context, event_queue)

    async def _hold(self, rest, updater, context, _queue):
        (workspace(context) / "held.txt").write_text(rest)
        await updater.start_work()
        await updater.add_artifact([Part(text="before")], artifact_id="early", name="early", last_chunk=True)
        await _exists(rest)
        await _complete(updater, "held")

    async def _drip(self, rest, updater, _context, _queue):
        path, count = rest.split()
        await updater.start_work()
        for number in range(1, 100_000):
            await updater.add_artifact(
                [Part(text=f"[{number}]")], artifact_id="drip", name="drip", append=number > 1, last_chunk=False
            )
            if _there(path) and number >= int(count):
                await _complete(updater, str(number))
                return
            await asyncio.sleep(LOOK_EVERY)

    async def _deaf(self, rest, updater, _context, _queue):
        await updater.start_work()
        while not _there(rest):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LOOK_EVERY)
        await updater.add_artifact([Part(text="late")], artifact_id="late", name="late", last_chunk=True)
        await _complete(updater, "never heard of a cancel")
        _append(f"{rest}.done", "ended\n")

    async def _tick(self, rest, updater, _context, _queue):
        await updater.start_work()
        try:
            for number in itertools.count():
                _append(rest, "tick\n")
                await updater.add_artifact([Part(text="tick ")], artifact_id="ticks", append=number > 0)
                await asyncio.sleep(LOOK_EVERY)
        finally:
            _append(rest, "stopped\n")

    async def _block(self, rest, updater, _context, _queue):
        await updater.start_work()
        time.sleep(float(rest))  # noqa: ASYNC251 - what agents should not do, and do
        await _complete(updater, "blocked")

    async def _mute(self, rest, updater, _context, _queue):
        await _exists(rest)
        await _complete(updater, "spoke at last")

    async def _ask_on(self, rest, updater, _context, _queue):
        state, path = rest.split()
        await updater.start_work()
        await updater.update_status(TaskState.Value(f"TASK_STATE_{state}"), _said(updater, "or not?"))
        await updater.add_artifact([Part(text="goes on")], artifact_id="on", name="on", last_chunk=True)
        await _exists(path)
        await _complete(updater, "no need to ask")

    async def _message(self, rest, _updater, context, queue):
        await queue.enqueue_event(new_text_message(rest, context_id=context.context_id, role=Role.ROLE_AGENT))

    async def _gather(self, rest, updater, _context, _queue):
        artifact, _, text = rest.partition(" ")
        await updater.start_work()
        await updater.add_artifact([Part(text=text)], artifact_id=artifact, name=artifact, last_chunk=True)
        await updater.update_status(TaskState.TASK_STATE_INPUT_REQUIRED, _said(updater, "more?"))

    async def _empty(self, _rest, updater, _context, _queue):
        await updater.start_work()
        await updater.add_artifact([Part(), Part(text="full")], artifact_id="half", last_chunk=True)
        question = _said(updater, "more?")
        question.parts.add()
        await updater.requires_input(question)

    async def _spoil(self, rest, updater, context, _queue):
        path, _, text = rest.partition(" ")
        (workspace(context) / path).write_text(text)
        await updater.update_status(TaskState.TASK_STATE_FAILED, _said(updater, "failed after writing"))


class Files(AgentExecutor):
    """Sends the files of its message back as artifacts, and completes; or asks, if the message's metadata says so.

    Words: `large <n> <bytes>` sends the artifact `large` in n chunks of so many bytes; `events <n>` n events:
    messages, chunks of an artifact, and an artifact that is replaced again and again; `flood <n> <bytes>` the same once
    the task has so many bytes, and while its host waits for the bucket.
    """

    async def execute(self, context, event_queue):
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        word, _, rest = context.get_user_input().partition(" ")
        if word == "large":
            await self._large(updater, *map(int, rest.split()))
        elif word == "events":
            await self._events(updater, int(rest))
        elif word == "flood":
            await self._flood(updater, *map(int, rest.split()))
        for number, part in enumerate(p for p in context.message.parts if p.raw):
            await updater.add_artifact([part], artifact_id=f"echo-{number}", last_chunk=True)
        if "ask" in context.message.metadata:
            question = _said(updater, "more?")
            if context.message.metadata["ask"] == "with files":
                question.parts.extend(part for part in context.message.parts if part.raw)
            await updater.requires_input(question)
        else:
            await _complete(updater, "done")

    async def _events(self, updater, count):
        for number in range(count):
            text, kind = f"event {number}", number % 5
            if kind == 0:
                await updater.update_status(TaskState.TASK_STATE_WORKING, _said(updater, text))
            elif kind == 1:
                await updater.add_artifact([Part(text=text)], artifact_id="log", append=number > 1)
            else:
                await updater.add_artifact([Part(text=text)], artifact_id="progress")

    async def _flood(self, updater, count, size):
        for number in range(size // 4096):
            await updater.add_artifact([Part(text="x" * 4096)], artifact_id=f"bulk-{number}")
        for state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING):
            await updater.update_status(state, _said(updater, "stored before anything that follows"))
        await self._events(updater, count)

    async def _large(self, updater, count, size):
        for number in range(count):
            content = number.to_bytes(8, "big") * (size // 8)
            await updater.add_artifact(
                [Part(raw=content, media_type="application/x-large")],
                artifact_id="large",
                append=number > 0,
                last_chunk=number == count - 1,
            )

    async def cancel(self, context, event_queue):
        pass


def _append(path, text):
    with Path(path).open("a") as file:
        file.write(text)


def _there(path):
    return Path(path).exists()


async def _exists(path):
    while not _there(path):  # noqa: ASYNC110 - it is another process that makes it
        await asyncio.sleep(LOOK_EVERY)


async def _complete(updater, text):
    await updater.update_status(TaskState.TASK_STATE_COMPLETED, _said(updater, text))


def _said(updater, text) -> Message:
    return updater.new_agent_message([Part(text=text)])
