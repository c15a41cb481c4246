"""A run's events, taken as they come: a slow reader holds neither the run nor its memory.

The SDK keeps each event that a subscriber has not taken together with a copy of
the whole task, and 1024 of them: one reader that stalls on a task of 5 MB would
cost this host gigabytes (measured).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Self

from a2a_gcs.tasks.stream import Told

MAX_WAITING_BYTES = 1024**2
"""What one reader may leave waiting; it then goes on from what is stored."""


class ReadAhead:
    """Reads a stream in a task of its own, between `async with` and its end.

    Args:
        stream: Closed with its last event, or once too many wait, or at the end.
        limit: Bytes of events that may wait; beyond that all that wait are dropped, and the stream is closed.
    """

    def __init__(self, stream: AsyncGenerator[Told, None], limit: int = MAX_WAITING_BYTES) -> None:
        self._stream = stream
        self._limit = limit
        self._waiting: deque[Told] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # whoever wanted it has had it from `events`

    async def events(self) -> AsyncIterator[Told]:
        """The events, until the stream ends or its events are dropped. Raises what the stream raises."""
        assert self._task is not None
        while True:
            while self._waiting:
                told = self._waiting.popleft()
                self._bytes -= told.event.ByteSize()
                yield told
            if self._task.done():
                self._task.result()
                return
            self._news.clear()
            await self._news.wait()

    async def _read(self) -> None:
        try:
            async for told in self._stream:
                self._waiting.append(told)
                self._bytes += told.event.ByteSize()
                self._news.set()
                if self._bytes > self._limit and len(self._waiting) > 1:
                    self._waiting.clear()
                    return
        finally:
            try:
                await self._stream.aclose()  # at once: a reader who stalls comes back late, or never
            finally:
                self._news.set()
