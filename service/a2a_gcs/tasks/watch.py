"""Watches the tasks that run here: one that was canceled or taken over elsewhere stops within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from a2a_gcs.claims import Claim, ClaimTable
from a2a_gcs.errors import A2AGcsError
from a2a_gcs.tasks.store import BucketTaskStore

log = structlog.get_logger(__name__)


class Watch:
    """Compares task.json of every open turn with what this process wrote last.

    Args:
        watched: Gives the tasks and turns of each root that this host serves.
        every: Seconds between two looks at the same task; a cancel takes effect within twice that.
    """

    def __init__(
        self, watched: Callable[[], Iterable[tuple[BucketTaskStore, ClaimTable]]], *, every: float = 1.0
    ) -> None:
        self._watched = watched
        self._every = every

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            looks = [
                self._look(tasks, claim) for tasks, table in self._watched() for claim in table if claim.record.version
            ]
            await asyncio.gather(*looks)

    async def _look(self, tasks: BucketTaskStore, claim: Claim) -> None:
        try:
            await tasks.still_ours(claim)
        except A2AGcsError as e:  # the heartbeat decides how long a host may go on without the bucket
            log.info("watch.not_read", task_id=claim.ref.task_id, error=str(e))
