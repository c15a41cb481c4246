"""Writes of many coroutines, made together: one lock, one transaction and one wait for the disk for all that wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from a2a_gcs.objectstore.local_tree import Change, Outcome
from a2a_gcs.objectstore.port import ObjectInfo

_MOST = 64
"""Changes in one transaction: other processes wait meanwhile."""

_Told = Outcome | BaseException


@dataclass(frozen=True, slots=True)
class _Waiting:
    change: Change
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[_Told]


class Writes:
    """Hands changes to a thread, which goes on as long as there are any; what comes meanwhile goes together.

    Args:
        apply: Makes the changes, in their order; blocks.
    """

    def __init__(self, apply: Callable[[Sequence[Change]], Sequence[Outcome]]) -> None:
        self._apply = apply
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._working = False

    async def make(self, change: Change) -> ObjectInfo | None:
        """What a change made. Raises what it was refused with, and what `apply` raises: then nobody knows.

        Cancelling this does not stop the change.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(change, loop, loop.create_future())
        with self._lock:
            self._waiting.append(waiting)
            begins, self._working = not self._working, True
        if begins:
            try:
                loop.run_in_executor(None, self._work)
            except RuntimeError as error:  # its threads have been shut down
                self._give_up(error)
        told = await waiting.future
        if isinstance(told, BaseException):
            raise told
        return told

    def _work(self) -> None:
        while batch := self._next():
            try:
                told: Sequence[_Told] = self._apply([one.change for one in batch])
            except BaseException as error:  # noqa: BLE001 - handed over to those who wait
                told = [error] * len(batch)
            _tell(batch, told)

    def _next(self) -> list[_Waiting]:
        with self._lock:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            self._working = bool(batch)
            return batch

    def _give_up(self, error: RuntimeError) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
            self._working = False
        _tell(batch, [error] * len(batch))


def _tell(batch: Sequence[_Waiting], told: Sequence[_Told]) -> None:
    pairs = defaultdict(list)
    for one, outcome in zip(batch, told, strict=True):
        pairs[one.loop].append((one.future, outcome))
    for loop, theirs in pairs.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, theirs)


def _settle(pairs: Sequence[tuple[asyncio.Future[_Told], _Told]]) -> None:
    for future, told in pairs:
        if not future.done():
            future.set_result(told)
