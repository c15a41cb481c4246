"""How busy the event loop is: what blocks it, such as an agent that computes, holds up every request of the host."""

from __future__ import annotations

import asyncio

from a2a_gcs import telemetry

EVERY_SECONDS = 0.5


async def measure_loop_lag(every: float = EVERY_SECONDS) -> None:
    """Records how late the loop wakes this task, until it is cancelled.

    Args:
        every: Seconds between two looks.
    """
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + every
        await asyncio.sleep(every)
        telemetry.loop_lag.record(max(0.0, loop.time() - due))
