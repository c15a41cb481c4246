"""Between a thread that works on files and a coroutine that talks to the store: bounded, and stopped at once.

Every transfer has a thread of its own. In a shared pool, writers that wait for
the store could hold every thread that the store needs to proceed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Generic, TypeVar

from a2a_gcs.objectstore.rules import Crc32c

T = TypeVar("T")
C = TypeVar("C")

CHUNK = 512 << 10
"""Bytes per chunk handed over, about."""

_DEPTH = 4


class Stopped(Exception):
    """The other side has gone; unwinds the thread, and is never seen outside of this package."""


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Runs a blocking function in a new thread; what it posted to the loop before arrives before its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            outcome = partial(future.set_result, function())
        except BaseException as error:  # noqa: BLE001 - handed over to whoever awaits
            outcome = partial(future.set_exception, error)
        with contextlib.suppress(Stopped):
            _post(loop, settle, outcome)

    threading.Thread(target=run, name="workspace", daemon=True).start()
    return future


async def outlast(future: asyncio.Future[T]) -> None:
    """Waits until a thread is done, also through cancellations; these are passed on afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if not future.cancelled():
        future.exception()  # whoever wanted it has it; asyncio need not warn
    if cancelled is not None:
        raise cancelled


async def together(*work: Coroutine[object, object, T]) -> list[T]:
    """Runs coroutines at once; the first failure ends the others before it is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _post(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError as error:  # the loop is closed: nobody waits any more
        raise Stopped from error


class Outflow(Generic[C]):
    """Chunks from a thread to a coroutine; `write` waits while the coroutine is `depth` chunks behind."""

    def __init__(self, depth: int = _DEPTH) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[C | None] = asyncio.Queue()
        self._slots = threading.Semaphore(depth)
        self._stopped = False

    def write(self, chunk: C) -> None:
        """Called in the thread. Raises Stopped."""
        self._slots.acquire()
        self.check()
        _post(self._loop, self._queue.put_nowait, chunk)

    def check(self) -> None:
        """Called in the thread. Raises Stopped."""
        if self._stopped:
            raise Stopped

    def stop(self) -> None:
        """Makes the thread end at its next write or check."""
        self._stopped = True
        self._slots.release()

    async def chunks(self, worker: asyncio.Future[T]) -> AsyncGenerator[C, None]:
        """Everything written until `worker` is done; raises what it raised."""
        worker.add_done_callback(lambda _: self._queue.put_nowait(None))
        while (chunk := await self._queue.get()) is not None:
            self._slots.release()
            yield chunk
        worker.result()


class Inflow(io.RawIOBase):
    """Chunks from a coroutine to a thread that reads them as a file; `feed` waits while the thread is behind.

    Attributes:
        fed: Bytes that came from the coroutine so far.
        taken: Bytes that the thread has read so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._space = asyncio.Semaphore(_DEPTH)
        self._stopped = False
        self._rest = memoryview(b"")
        self._checksum = Crc32c()
        self.fed = 0
        self.taken = 0

    @property
    def crc32c(self) -> str:
        """Checksum of the bytes fed so far, as in `ObjectInfo.crc32c`."""
        return self._checksum.encoded()

    async def feed(self, chunks: AsyncIterator[bytes], worker: asyncio.Future[T]) -> None:
        """Passes on all chunks, unless `worker` ends before."""
        worker.add_done_callback(lambda _: self._space.release())
        async for chunk in chunks:
            self._checksum.update(chunk)
            self.fed += len(chunk)
            for start in range(0, len(chunk), CHUNK):
                await self._space.acquire()
                if worker.done():
                    return
                self._queue.put(chunk[start : start + CHUNK])
        self._queue.put(None)

    def stop(self) -> None:
        """Makes the thread end at its next read."""
        self._stopped = True
        self._queue.put(None)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Called in the thread. Raises Stopped."""
        if not self._rest:
            self._rest = memoryview(self._next())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _next(self) -> bytes:
        chunk = self._queue.get()
        if self._stopped:
            raise Stopped
        if chunk is None:
            self._queue.put(None)  # the end stays the end
            return b""
        _post(self._loop, self._space.release)
        self.taken += len(chunk)
        return chunk
