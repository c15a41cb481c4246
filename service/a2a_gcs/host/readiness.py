"""Whether the bucket answers, asked once in a few seconds however many probes want to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from a2a_gcs.clock import boottime
from a2a_gcs.errors import StoreError

KEEP_SECONDS = 3.0
"""How long an answer counts: no longer than probes are apart, and a look is a class B request."""

WITHIN_SECONDS = 3.0


class Readiness:
    """Remembers how the last look at the bucket ended. All who ask while one is under way wait for that one.

    Args:
        look: One read of the bucket. Raises StoreError.
        now: A clock in seconds that never jumps.
    """

    def __init__(self, look: Callable[[], Awaitable[None]], now: Callable[[], float] = boottime) -> None:
        self._look = look
        self._now = now
        self._looked: asyncio.Task[str | None] | None = None
        self._until = 0.0

    async def problem(self) -> str | None:
        """Why the bucket cannot be used, or None if it answers. A caller that goes away cuts nobody else off."""
        if self._looked is None or (self._looked.done() and self._now() >= self._until):
            self._looked = asyncio.create_task(self._fresh(), name="readiness")
        return await asyncio.shield(self._looked)

    async def _fresh(self) -> str | None:
        try:
            await asyncio.wait_for(self._look(), WITHIN_SECONDS)
        except StoreError as e:
            return f"the bucket does not answer: {e}"
        except TimeoutError:
            return f"the bucket did not answer within {WITHIN_SECONDS:.0f} s"
        finally:
            self._until = self._now() + KEEP_SECONDS
        return None
