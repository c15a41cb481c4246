"""Compare-and-swap under contention: what the ledger stands on."""

from __future__ import annotations

import asyncio

from a2a_gcs.errors import Conflict, Unavailable
from a2a_gcs.objectstore import IF_ABSENT, IfVersion


async def test_fifty_racers_create_one_key(store):
    """Exactly one wins, all others meet a Conflict, and the object is the winner's."""

    async def race(number):
        try:
            return await store.put("k", str(number).encode(), IF_ABSENT)
        except Conflict:
            return None

    results = await asyncio.gather(*(race(number) for number in range(50)))
    winners = [number for number, info in enumerate(results) if info is not None]
    assert len(winners) == 1
    blob = await store.get("k")
    assert blob.body == str(winners[0]).encode()
    assert blob.info.version == results[winners[0]].version


async def test_increments_by_compare_and_swap(store):
    """Ten writers that add one twenty times each come to two hundred."""
    await store.put("n", b"0", IF_ABSENT)

    async def increment():
        while True:
            blob = await store.get("n")
            try:
                await store.put("n", str(int(blob.body) + 1).encode(), IfVersion(blob.info.version))
            except Conflict:
                continue
            return

    async def writer():
        for _ in range(20):
            await increment()

    await asyncio.gather(*(writer() for _ in range(10)))
    assert (await store.get("n")).body == b"200"


async def test_body_and_metadata_are_of_one_version(store):
    """A reader beside a writer never sees the body of one version with the metadata of another."""
    info = await store.put("k", b"0", IF_ABSENT, metadata={"n": "0"})
    done = asyncio.Event()

    async def write():
        nonlocal info
        for number in range(1, 60):
            info = await store.put("k", str(number).encode(), IfVersion(info.version), metadata={"n": str(number)})
        done.set()

    async def read():
        seen = 0
        while not done.is_set():
            try:
                blob = await store.get("k", with_metadata=True)
            except Unavailable:  # a bare adapter may give up on an object that changes all the time
                continue
            assert blob.body.decode() == blob.info.metadata["n"]
            seen = max(seen, int(blob.body))
        return seen

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        readers = [group.create_task(read()) for _ in range(4)]
    assert max(reader.result() for reader in readers) > 0
