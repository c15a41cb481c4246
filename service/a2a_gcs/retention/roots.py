"""The roots of a bucket, and what is kept beside them: heartbeats."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from a2a_gcs.errors import CorruptRecord, NotFound
from a2a_gcs.layout import (
    AGENTS,
    CONTEXTS_PREFIX,
    HOSTS_PREFIX,
    POINTERS_PREFIX,
    TENANTS,
    USERS,
    first_after,
)
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import HeartbeatRecord
from a2a_gcs.retention.collector import listed
from a2a_gcs.retention.remover import Remover

_LEASES = 10
"""After so many leases without a renewal nobody takes a heartbeat for that of a living host."""


async def roots(
    bucket: ObjectStore, root: str = "", kinds: Sequence[str] = (AGENTS, TENANTS, USERS)
) -> AsyncGenerator[str, None]:
    """Every root of a bucket that holds something; about three list requests for each. Raises StoreError."""
    start = f"{root}/" if root else ""
    pages = [await bucket.list(start + prefix, limit=1) for prefix in (CONTEXTS_PREFIX, POINTERS_PREFIX)]
    if any(page.objects for page in pages):
        yield root
    for number, kind in enumerate(kinds, 1):
        async for name in _names(bucket, f"{start}{kind}/"):
            async for found in roots(bucket, f"{start}{kind}/{name}", kinds[number:]):
                yield found


async def _names(bucket: ObjectStore, prefix: str) -> AsyncGenerator[str, None]:
    """The names below a prefix; each request skips what is below the one before."""
    start = ""
    while page := (await bucket.list(prefix, start=start, limit=1)).objects:
        name = page[0].key.removeprefix(prefix).split("/")[0]
        yield name
        start = first_after(f"{prefix}{name}/")


async def collect_heartbeats(bucket: ObjectStore, remover: Remover, runs: float) -> int:
    """Removes the heartbeats of hosts that are long gone, whose claims count as dead with or without; how many."""
    count = 0
    async for info in listed(bucket, HOSTS_PREFIX):
        try:
            lease = HeartbeatRecord.parse(info.key, (await bucket.get(info.key)).body).lease_seconds
        except NotFound:
            continue
        except CorruptRecord:
            lease = 0.0
        if info.age >= max(runs, _LEASES * lease):
            count += await remover.one(info)
    return count
