"""Runs an agent's turn in its workspace: restore, run, snapshot, and only then tell (invariant I4)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import structlog
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events.event_queue import Event, EventQueue
from a2a.types.a2a_pb2 import Message, Task, TaskState, TaskStatus

from a2a_gcs.claims import Claim, ClaimTable, End, Stop
from a2a_gcs.errors import A2AGcsError, Conflict, StoreError
from a2a_gcs.executors.checkpoints import checkpoints
from a2a_gcs.executors.large_parts import LargeParts, Limits
from a2a_gcs.executors.parts import PARTS_STATE
from a2a_gcs.executors.restoring import OnLost, restore
from a2a_gcs.executors.turn_queue import TurnQueue, failed, parked
from a2a_gcs.executors.workspace import WORKSPACE_STATE
from a2a_gcs.layout import TaskRef
from a2a_gcs.ledger.errors import Fenced
from a2a_gcs.ledger.ledger import Ledger
from a2a_gcs.task_json import INTERRUPTED
from a2a_gcs.tasks.files import TaskFiles
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.workspaces import Workspace, Workspaces

log = structlog.get_logger(__name__)

Answers = Literal["task", "message"]
OnShutdown = Literal["park", "fail"]

DRAIN_STOP_SECONDS = 1.0
"""What an agent gets to stop in when the host is being restarted."""
DRAIN_SNAPSHOT_SECONDS = 4.0
"""What a snapshot may take then: on Cloud Run SIGKILL follows SIGTERM after 10 s."""

_LOOK_SECONDS = 2.0
_KEEPS_GOING = frozenset({TaskState.TASK_STATE_COMPLETED}) | INTERRUPTED


class WorkspacedExecutor(AgentExecutor):
    """The SDK's executor around an agent of the user's.

    The SDK hears exactly one final state per turn, after the workspace that goes
    with it is stored; an agent that fails, says nothing or forgets to finish
    ends in FAILED with the reason.

    Args:
        agent: The agent.
        table: Where the turn's claim was entered by the ledger.
        ledger: Frees the context of a Message answer.
        workspaces: Makes, restores and saves the directories that agents work in.
        answers: `task`: every message becomes a task, published before the agent runs.
            `message`: a plain Message is the whole answer.
        on_shutdown: What becomes of a task whose host is restarted: `park` it for the next host, or `fail` it.
        longest_run: Seconds that a turn may take; None for any time.
        longest_wait: Seconds that a parked task may wait for its answer; 0 for any time.
        longest_snapshot: Seconds that the snapshot at the end of a turn may take; None for any time.
        checkpoint_every: Seconds between snapshots of a turn that still runs; None for none.
        on_lost: What becomes of a task whose workspace is gone or damaged: `fail`, or go on from the `previous` one.
        files: Where large parts go; None where everything stays in task.json.
        limits: What stays in task.json.
        max_task_bytes: Most that a task may hold.
        stop_patience: Seconds that an agent gets to stop when its turn ended without it.
    """

    def __init__(
        self,
        agent: AgentExecutor,
        table: ClaimTable,
        ledger: Ledger,
        workspaces: Workspaces,
        *,
        answers: Answers = "task",
        on_shutdown: OnShutdown = "park",
        longest_run: float | None = None,
        longest_wait: int = 0,
        longest_snapshot: float | None = None,
        checkpoint_every: float | None = None,
        on_lost: OnLost = "fail",
        files: TaskFiles | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        max_task_bytes: float = float("inf"),
        stop_patience: float = 5.0,
    ) -> None:
        self._agent = agent
        self._table = table
        self._ledger = ledger
        self._workspaces = workspaces
        self._answers = answers
        self._on_shutdown = on_shutdown
        self._longest_run = longest_run
        self._longest_wait = longest_wait
        self._longest_snapshot = longest_snapshot
        self._checkpoint_every = checkpoint_every
        self._on_lost: OnLost = on_lost
        self._files = files
        self._limits = limits
        self._max_task_bytes = max_task_bytes
        self._stop_patience = stop_patience

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Runs the turn that was claimed for this request.

        Raises:
            Fenced: The turn was lost to somebody else; task.json has what came of it.
        """
        claim = self._table.get(context.task_id or "")
        if claim is None or claim.started or context.message is None:
            raise Fenced(claim.ref if claim else TaskRef(context.context_id or "", context.task_id or ""))
        claim.start()
        current = context.current_task if claim.record.version else None
        release = (lambda: self._ledger.release(claim)) if self._answers == "message" and claim.ledger else None
        queue = self._queue(event_queue, claim, context.message, current, release)
        if current is None and self._answers == "task":
            context.current_task = await queue.publish()
        try:
            async with self._directory(claim) as work:
                context.call_context.state[WORKSPACE_STATE] = work.path
                if self._files is not None:
                    context.call_context.state[PARTS_STATE] = functools.partial(self._files.read, claim.ref)
                await self._turn(claim, context, queue, work)
        except WorkspaceError as e:
            if not claim.held:
                raise
            await queue.finish(failed(claim.ref, f"There is no place to work in: {e}"), claim.park_with)
        finally:
            queue.close()

    def _queue(
        self,
        out: EventQueue,
        claim: Claim,
        message: Message,
        current: Task | None,
        release: Callable[[], Awaitable[None]] | None,
    ) -> TurnQueue:
        large = None
        if self._files is not None:
            large = LargeParts(self._files, claim.ref, self._limits, current.artifacts if current else ())
        return TurnQueue(out, claim.ref, claim.entered or message, current, release, large, self._max_task_bytes)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Not used: the host stores CANCELED first, which ends the claim and so stops the agent."""

    @contextlib.asynccontextmanager
    async def _directory(self, claim: Claim) -> AsyncIterator[Workspace]:
        work = self._workspaces.create(claim.ref)
        try:
            yield work
        finally:
            await work.close()

    async def _turn(self, claim: Claim, context: RequestContext, queue: TurnQueue, work: Workspace) -> None:
        try:
            await restore(claim, work, queue, self._on_lost)
        except (WorkspaceError, StoreError) as e:
            log.error("workspace.not_restored", task_id=claim.ref.task_id, error=str(e))  # noqa: TRY400
            await self._end(claim, queue, _not_restored(claim, e), None)
            return
        if queue.too_large is not None:
            await self._end(claim, queue, failed(claim.ref, queue.too_large), work)
            return
        final = _taken(claim) or await self._run(claim, context, queue, work)
        if final is None:
            return
        if claim.end is End.CANCELED:
            work.leave()
            await queue.finish(final)
            await self._keep_for_inspection(claim, work)
        else:
            await self._end(claim, queue, final, work)

    # ------------------------------------------------------------------ running the agent

    async def _run(self, claim: Claim, context: RequestContext, queue: TurnQueue, work: Workspace) -> TaskStatus | None:
        """Runs the agent until it is done or has to stop. The state to end in; None after a Message answer."""
        run = asyncio.create_task(self._agent.execute(context, queue), name=f"agent:{claim.ref.task_id}")
        over = asyncio.Event()
        claim.on_stop(over.set)
        ended = asyncio.create_task(over.wait())
        try:
            async with checkpoints(claim, work, self._checkpoint_every):
                done, _ = await asyncio.wait(
                    {run, ended}, timeout=self._longest_run, return_when=asyncio.FIRST_COMPLETED
                )
            if not done:
                claim.ask_to_stop(Stop.DEADLINE)
        finally:
            ended.cancel()
            interrupted = not run.done()
            if interrupted and not queue.answered:
                queue.close()
                await self._stop(run, context, DRAIN_STOP_SECONDS if claim.stop else self._stop_patience)
            elif queue.answered:
                await self._let_finish(run)
            if not run.done():
                work.abandon()
        if queue.answered:
            return None
        if claim.end is End.SURRENDERED and run.done() and not run.cancelled() and run.exception() is not None:
            raise run.exception() or AssertionError  # the answer could not be given: is the context free?
        if (taken := _taken(claim)) is not None:
            return taken
        if interrupted and claim.stop is not None:
            return queue.held or self._stopped(claim, claim.stop)
        if queue.too_large is not None:
            return failed(claim.ref, queue.too_large)
        return _final_state(claim, queue, run)

    def _stopped(self, claim: Claim, why: Stop) -> TaskStatus:
        """What a turn comes to that the host had to end."""
        if why is Stop.DEADLINE:
            return failed(
                claim.ref,
                f"The task ran longer than the {self._longest_run:g} s that the host allows (max_run_seconds). "
                "Its artifacts are kept; the next task of this context starts from the last completed workspace.",
            )
        if self._on_shutdown == "fail":
            return failed(claim.ref, "The host was restarted while the task ran. Send again to start a new task.")
        return parked(claim.ref, "The host was restarted; send a message to continue.")

    async def _stop(self, run: asyncio.Task[None], context: RequestContext, patience: float) -> None:
        """Asks the agent to stop, then cancels it. One that goes on all the same is fenced, so it harms nobody."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._agent.cancel(context, _Unheard()), patience)
        run.cancel()
        await asyncio.wait({run}, timeout=patience)
        if not run.done():
            log.error("agent.does_not_stop", task_id=context.task_id, seconds=patience)
        elif not run.cancelled() and (error := run.exception()):
            log.info("agent.failed_while_stopping", task_id=context.task_id, error=str(error))

    async def _let_finish(self, run: asyncio.Task[None]) -> None:
        """After its Message the agent may tidy up; what it raises then changes nothing for the client."""
        await asyncio.wait({run}, timeout=self._stop_patience)
        run.cancel()
        await asyncio.wait({run}, timeout=self._stop_patience)
        if run.done() and not run.cancelled() and (error := run.exception()):
            log.warning("agent.failed_after_its_answer", error=str(error))

    # ------------------------------------------------------------------ ending the turn

    async def _end(self, claim: Claim, queue: TurnQueue, final: TaskStatus, work: Workspace | None) -> None:
        """Stores the workspace, then the state that goes with it (I4)."""
        if work is not None:
            final = await self._snapshot(claim, final, work)
            work.leave()
        claim.patience = self._longest_wait
        taken = _taken(claim)
        if work is not None and taken is None and claim.pin is not None and final.state in _KEEPS_GOING:
            work.offer(claim.pin)
        await queue.finish(taken or final, claim.park_with)

    async def _snapshot(self, claim: Claim, final: TaskStatus, work: Workspace) -> TaskStatus:
        """Pins a snapshot for the final state. Without one a task that was to go on or complete fails instead."""
        draining = claim.stop is Stop.DRAIN
        limits = [self._longest_snapshot, DRAIN_SNAPSHOT_SECONDS if draining else None]
        limit = min((limit for limit in limits if limit is not None), default=None)
        try:
            async with asyncio.timeout(limit):
                saved = await work.save(replaces=claim.workspace_generation, owner=str(claim.owner))
        except TimeoutError:
            why = "The host was restarted, and the workspace" if draining else "The workspace"
            setting = "" if draining else " (max_snapshot_seconds)"
            return await self._unsaved(
                claim, work, failed(claim.ref, f"{why} could not be saved within {limit:g} s{setting}.")
            )
        except Conflict as e:
            self._table.finish(claim, End.FENCED)
            raise Fenced(claim.ref) from e
        except (WorkspaceError, StoreError) as e:
            log.error("workspace.not_saved", task_id=claim.ref.task_id, error=str(e))  # noqa: TRY400
            if final.state in _KEEPS_GOING:
                final = failed(claim.ref, f"The workspace could not be saved, so the task fails: {e}")
            return await self._unsaved(claim, work, final)
        claim.pin = saved.pin
        for note in saved.notes:
            log.info("workspace.note", task_id=claim.ref.task_id, note=note)
        return final

    async def _unsaved(self, claim: Claim, work: Workspace, final: TaskStatus) -> TaskStatus:
        """The task pins what its archive holds: a checkpoint, or a save that got through without an answer."""
        with contextlib.suppress(A2AGcsError, TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                claim.pin = await work.stored(str(claim.owner))
        return final

    async def _keep_for_inspection(self, claim: Claim, work: Workspace) -> None:
        """A canceled task's files are stored too, if that is possible; nothing resumes from them by itself."""
        with contextlib.suppress(A2AGcsError):
            await work.save(replaces=claim.workspace_generation, owner=str(claim.owner))


class _Unheard(EventQueue):
    """What an agent says in its `cancel`: the host has stored CANCELED already."""

    async def enqueue_event(self, event: Event) -> None:
        del event


def _taken(claim: Claim) -> TaskStatus | None:
    """CANCELED if that is what ended the claim, None while it is held. Raises Fenced."""
    if claim.end is End.CANCELED:
        return claim.record.task.status
    if claim.end is not None:
        raise Fenced(claim.ref)
    return None


def _final_state(claim: Claim, queue: TurnQueue, run: asyncio.Task[None]) -> TaskStatus:
    """What the turn comes to, by what the agent raised, or said last."""
    if run.cancelled():
        return failed(claim.ref, "The agent stopped itself before the task was done.")
    if (error := run.exception()) is not None:
        log.error("agent.failed", task_id=claim.ref.task_id, exc_info=error)
        queue.raised = error
        return failed(claim.ref, f"The agent failed: {type(error).__name__}: {error}")
    if queue.held is not None:
        return queue.held
    if queue.last is not None and queue.last.state in INTERRUPTED:
        return queue.last
    if not queue.said_something:
        return failed(claim.ref, "The agent returned without an answer.")
    return failed(claim.ref, "The agent returned before it had finished the task.")


def _not_restored(claim: Claim, error: Exception) -> TaskStatus:
    whose = claim.base_ref.task_id if claim.base_ref else ""
    return failed(
        claim.ref,
        f"The workspace of task {whose} could not be restored, so the agent was not started: {error}. "
        "Nothing was overwritten. Put the archive back, or go on in another context.",
    )
