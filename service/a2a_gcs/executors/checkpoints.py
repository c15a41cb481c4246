"""Snapshots of a turn that still runs, so that the death of its host costs minutes and not hours.

A checkpoint goes where the turn's final snapshot goes, on the condition of the
generation that the claim knows (rule *wscas*), and the claim then knows the new
one. It is pinned by nothing: a task that dies is settled as FAILED without a
pin, and only a message that names it starts from its archive. So a task of
the context's history never rests on a checkpoint (I4, I5).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from a2a_gcs.claims import Claim
from a2a_gcs.errors import Conflict, StoreError
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.workspaces import Workspace

log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def checkpoints(claim: Claim, work: Workspace, every: float | None) -> AsyncIterator[None]:
    """Saves the workspace every so many seconds; when this ends, no save is under way."""
    if every is None:
        yield
        return
    saving = asyncio.create_task(_keep_saving(claim, work, every), name=f"checkpoints:{claim.ref.task_id}")
    try:
        yield
    finally:
        saving.cancel()
        await asyncio.wait([saving])


async def _keep_saving(claim: Claim, work: Workspace, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        if not claim.held or claim.stop is not None:
            return
        try:
            saved = await work.save(replaces=claim.workspace_generation, owner=str(claim.owner))
        except Conflict:  # somebody else has taken the task over, and the host will hear of it
            log.warning("checkpoint.refused", task_id=claim.ref.task_id)
            return
        except (WorkspaceError, StoreError) as e:
            log.warning("checkpoint.failed", task_id=claim.ref.task_id, error=str(e))
            continue
        claim.workspace_generation = saved.pin.generation
        log.info("checkpoint.saved", task_id=claim.ref.task_id, bytes=saved.size, sent=saved.sent)
