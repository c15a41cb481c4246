"""The heartbeat of this process: hosts/<host>.json, renewed while it lives (service/docs/bucket.md).

It runs in a thread with an event loop and a store of its own, so that an agent
that blocks the host's loop does not lose its task. The lease runs from the
moment at which the last acknowledged renewal was *sent*, by a clock that also
counts suspended time. At two thirds of it all claims lapse: others take over
at three thirds, when the agents here have long been stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future

import structlog

from a2a_gcs.cas import VersionedObject
from a2a_gcs.claims import ClaimTable
from a2a_gcs.clock import boottime
from a2a_gcs.errors import A2AGcsError, Conflict, CorruptRecord, InvalidId, NotFound
from a2a_gcs.layout import heartbeat_key
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import HeartbeatRecord, Owner

DEFAULT_LEASE_SECONDS = 30.0
_FAREWELL_SECONDS = 1.0
"""What the last word may take: a host that is stopped has few seconds, and the bucket may be out of reach."""

log = structlog.get_logger(__name__)


class Heartbeat:
    """Renews the heartbeat of `table.host` from `start` to `stop`.

    Args:
        open_store: Opens the bucket at its prefix for the thread's own loop. A store that cannot be opened
            twice (memory, an object of the caller's) is passed with `own_thread=False` and used on the caller's loop.
        table: The claims to list; they lapse when the lease does.
        lease: Seconds after which others take this host for dead; whole seconds, 3 or more: HTTP dates count them.
        clock: What the lease is measured by here, in seconds.
    """

    def __init__(
        self,
        open_store: Callable[[], ObjectStore],
        table: ClaimTable,
        *,
        lease: float,
        own_thread: bool = True,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._open_store = open_store
        self._table = table
        self._lease = lease
        self._own_thread = own_thread
        self._clock = clock
        self._acknowledged = 0.0
        self._lapsed = False
        self._first: Future[None] = Future()
        self._runner: threading.Thread | asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._host_loop: asyncio.AbstractEventLoop | None = None

    @property
    def age(self) -> float:
        """Seconds since the last acknowledged renewal was sent."""
        return self._clock() - self._acknowledged

    async def start(self) -> None:
        """Returns once the heartbeat is durable, which is before the first claim. Raises StoreError."""
        self._host_loop = asyncio.get_running_loop()
        if self._own_thread:
            self._runner = threading.Thread(target=lambda: asyncio.run(self._run()), name="heartbeat", daemon=True)
            self._runner.start()
        else:
            self._runner = asyncio.create_task(self._run(), name="heartbeat")
        await asyncio.wrap_future(self._first)

    async def stop(self) -> None:
        """Stops renewing and deletes the heartbeat: claims that are still open count as dead at once."""
        if self._loop and self._stopping:
            with contextlib.suppress(RuntimeError):  # the loop of the thread is closed: it has ended already
                self._loop.call_soon_threadsafe(self._stopping.set)
        if isinstance(self._runner, threading.Thread):
            await asyncio.to_thread(self._runner.join, 2 * _FAREWELL_SECONDS)
        elif self._runner:
            await self._runner

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            async with contextlib.AsyncExitStack() as stack:
                store = self._open_store()
                if self._own_thread:
                    stack.push_async_callback(store.close)
                await self._beat(store)
        except BaseException as e:
            if self._first.done():
                raise
            self._first.set_exception(e)

    async def _beat(self, store: ObjectStore) -> None:
        assert self._stopping
        record = HeartbeatRecord(host=self._table.host, lease_seconds=self._lease)
        beat = VersionedObject(store, heartbeat_key(self._table.host), record)
        await self._renew(beat)
        self._first.set_result(None)
        while not self._stopping.is_set():
            failed = await self._renew_or_lapse(beat)
            pause = self._lease / (10 if failed else 3)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        with contextlib.suppress(A2AGcsError, TimeoutError):  # without an answer the lease runs out instead
            await asyncio.wait_for(store.delete(heartbeat_key(self._table.host)), _FAREWELL_SECONDS)

    async def _renew(self, beat: VersionedObject[HeartbeatRecord]) -> None:
        """One renewal by compare-and-swap; the lease counts from before it is sent."""
        sent = self._clock()
        seen = await beat.load()
        following, still_open = self._table.snapshot()
        with contextlib.suppress(Conflict):  # somebody tidied up: the next renewal sees it
            await beat.replace(seen, seen.value.renewed(following, still_open, self._table.roots()))
            self._acknowledged, self._lapsed = sent, False
            self._table.lease_until(sent + self._lease * 2 / 3)

    async def _renew_or_lapse(self, beat: VersionedObject[HeartbeatRecord]) -> bool:
        """Renews in time, or lets the claims lapse. Whether it failed."""
        stop_at = self._acknowledged + self._lease * 2 / 3
        if self._clock() >= stop_at:  # this process was suspended, or the bucket was out of reach
            self._lapse()
        patience = self._lease * 4 / 30
        remaining = stop_at - self._clock()
        try:
            await asyncio.wait_for(self._renew(beat), min(patience, remaining) if remaining > 0 else patience)
        except Exception as e:  # noqa: BLE001 - whatever it is, the lease runs out meanwhile, and somebody has to see that
            log.warning("heartbeat.not_renewed", error=str(e) or type(e).__name__, age_seconds=round(self.age, 1))
            if self._clock() >= stop_at:
                self._lapse()
            return True
        return self.age > patience

    def _lapse(self) -> None:
        if self._lapsed or not self._host_loop:
            return
        self._lapsed = True
        log.error("heartbeat.lapsed", age_seconds=round(self.age, 1), claims=len(self._table))
        self._table.disown()
        with contextlib.suppress(RuntimeError):  # the host's loop is closed: there is nothing left to stop
            self._host_loop.call_soon_threadsafe(self._table.lapse)


class Liveness:
    """Tells whether the owner of a claim is dead. Verdicts may be wrong: safety rests on compare-and-swap.

    Args:
        store: The bucket at its prefix, where the heartbeats are.
        table: This process's own claims, of which it knows better than its heartbeat.
    """

    def __init__(self, store: ObjectStore, table: ClaimTable) -> None:
        self._store = store
        self._table = table

    async def is_dead(self, owner: str) -> bool:
        """Judges one claim. Age of the claim itself never counts (rule *no_age*).

        Dead means: no heartbeat, one older than its lease by the store's own clock, or
        one that has given out later numbers and no longer lists this one (rule *openlist*).
        """
        try:
            claim = Owner.from_text(owner)
            key = heartbeat_key(claim.host) if claim else ""
        except (InvalidId, ValueError):
            return True
        if claim is None:
            return True
        if claim.host == self._table.host:
            following, still_open = self._table.snapshot()
            return claim.n < following and claim.n not in still_open
        try:
            blob = await self._store.get(key, with_metadata=True)
        except NotFound:
            return True
        try:
            record = HeartbeatRecord.parse(key, blob.body)
        except CorruptRecord as e:
            log.error("heartbeat.unreadable", key=key, error=str(e))  # noqa: TRY400 - the parser's traceback tells nothing
            return blob.info.age > DEFAULT_LEASE_SECONDS
        return blob.info.age > record.lease_seconds or not record.lists(claim.n)
