"""Drain: what happens between SIGTERM and the end of the process. A deploy destroys no work.

Cloud Run gives 10 s; all of this fits into 8. It runs before uvicorn's own shutdown, which
would cut the streams first (measured: before the lifespan's shutdown begins).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from a2a_gcs.claims import Claim, ClaimTable, Stop
from a2a_gcs.clock import boottime
from a2a_gcs.host.admission import Admission

log = structlog.get_logger(__name__)

FINISH_SECONDS = 1.0
"""What short work gets to finish by itself."""
LIMIT_SECONDS = 7.0
"""By then every task is written, or left to whoever settles it."""
_LOOK_EVERY_SECONDS = 0.05


class Drain:
    """Ends the runs of one host in order. May be run once.

    Args:
        admission: Takes no new work from the first moment on.
        table: What runs in this process.
        surrender: Gives back the claims whose agents have not started.
    """

    def __init__(self, admission: Admission, table: ClaimTable, surrender: Callable[[], Awaitable[None]]) -> None:
        self._admission = admission
        self._table = table
        self._surrender = surrender

    @property
    def begun(self) -> bool:
        return self._admission.draining

    async def run(self) -> None:
        """Returns once every run has ended and its last event is on its way, or the time is up."""
        self._admission.draining = True
        began = boottime()
        log.info("drain.begun", running=len(self._running()))
        await self._surrender()
        await self._until_idle(began + FINISH_SECONDS)
        for claim in self._running():
            claim.ask_to_stop(Stop.DRAIN)
        await self._until_idle(began + LIMIT_SECONDS)
        for claim in self._running():
            log.error("drain.not_ended", task_id=claim.ref.task_id, context_id=claim.ref.context_id)
        await asyncio.sleep(_LOOK_EVERY_SECONDS)  # the last events leave the SDK's queues
        log.info("drain.done", seconds=round(boottime() - began, 1))

    def _running(self) -> list[Claim]:
        return [claim for _, claim in self._table.all_claims()]

    async def _until_idle(self, deadline: float) -> None:
        while self._running() and boottime() < deadline:  # noqa: ASYNC110 - a look at a table costs nothing
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
