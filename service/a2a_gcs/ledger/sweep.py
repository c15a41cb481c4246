"""The sweep: ends what dead hosts left, also where nobody touches it (invariant I6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from a2a_gcs.errors import A2AGcsError, Conflict, CorruptRecord, NotFound
from a2a_gcs.jitter import jittered
from a2a_gcs.layout import HOSTS_PREFIX, TaskRef, heartbeat_key
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.records import HeartbeatRecord, Owner

log = structlog.get_logger(__name__)


class Sweep:
    """Looks at the heartbeats of other hosts now and then, and settles the claims on the lists of dead ones.

    Claims that a dead host made after its last renewal are on no list; they are
    settled by whoever touches them.

    Args:
        bucket: The bucket at its prefix, where the heartbeats are.
        settler_of: Gives the settler of a root.
        host: This host, which is not looked at.
        every: Seconds between sweeps, on average.
    """

    def __init__(
        self,
        bucket: ObjectStore,
        settler_of: Callable[[str], Settler],
        *,
        host: str,
        every: float,
    ) -> None:
        self._bucket = bucket
        self._settler_of = settler_of
        self._host = host
        self._every = every

    async def run(self) -> None:
        """Sweeps until cancelled; errors are logged, the next sweep tries again."""
        while True:
            await asyncio.sleep(jittered(self._every))
            try:
                await self.once()
            except A2AGcsError as e:
                log.warning("sweep.failed", error=str(e))

    async def once(self) -> None:
        """One look at every heartbeat. Raises StoreError."""
        page = None
        while True:
            listing = await self._bucket.list(HOSTS_PREFIX, page=page)
            for info in listing.objects:
                await self._look(info)
            if (page := listing.next) is None:
                return

    async def _look(self, info: ObjectInfo) -> None:
        """Settles what a dead host lists, then removes its heartbeat: absent means dead as well."""
        if info.key == heartbeat_key(self._host):
            return
        try:
            blob = await self._bucket.get(info.key, with_metadata=True)
            beat = HeartbeatRecord.parse(info.key, blob.body)
        except NotFound:
            return
        except CorruptRecord as e:
            log.error("heartbeat.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
            return
        if blob.info.age <= beat.lease_seconds:
            return
        for claim in beat.claims:
            ref, owner = TaskRef(claim.context_id, claim.task_id), str(Owner(host=beat.host, n=claim.n))
            try:
                await self._settler_of(claim.root).bury(ref, owner)
            except CorruptRecord as e:
                log.error("task.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
        try:
            await self._bucket.delete(info.key, version=blob.info.version)
        except (Conflict, NotFound):
            return  # it lives after all, or somebody else swept
        log.info("sweep.host_buried", dead_host=beat.host, claims=len(beat.claims))
