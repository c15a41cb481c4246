"""Watches the tasks that run here: one that was canceled or taken over elsewhere stops within seconds (DESIGN 5)."""

from __future__ import annotations

import asyncio

import structlog

from a2a_gcs.claims import Claim, ClaimTable
from a2a_gcs.errors import A2AGcsError
from a2a_gcs.tasks.store import BucketTaskStore

log = structlog.get_logger(__name__)


class Watch:
    """Compares task.json of every open turn with what this process wrote last.

    Args:
        tasks: The tasks.
        table: The turns.
        every: Seconds between two looks at the same task; a cancel takes effect within twice that.
    """

    def __init__(self, tasks: BucketTaskStore, table: ClaimTable, *, every: float = 1.0) -> None:
        self._tasks = tasks
        self._table = table
        self._every = every

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            await asyncio.gather(*(self._look(claim) for claim in self._table if claim.record.version))

    async def _look(self, claim: Claim) -> None:
        try:
            await self._tasks.still_ours(claim)
        except A2AGcsError as e:  # the heartbeat decides how long a host may go on without the bucket
            log.info("watch.not_read", task_id=claim.ref.task_id, error=str(e))
