"""Waiting for what another process does: a condition and a deadline, never a pause."""

from __future__ import annotations

import asyncio
import inspect

LOOK_EVERY = 0.05


async def until(condition, *, seconds=30.0, what="the condition"):
    """Returns the first true value of a condition (a function or a coroutine function)."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert loop.time() < deadline, f"{what} did not come true within {seconds} s"
        await asyncio.sleep(LOOK_EVERY)
