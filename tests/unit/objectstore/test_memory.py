"""What the memory store promises beyond the contract: it may be used from several threads."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from a2a_gcs.errors import Conflict
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import IF_ABSENT


@pytest.fixture
def quick_switches():
    """Threads change places so often that a step between two reads is met."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def test_a_listing_holds_while_another_thread_writes_and_deletes(quick_switches):
    """A test's own look into the bucket of a host in a thread finds whole listings, never an error."""
    store = MemoryStore()
    stop = threading.Event()

    async def churn():
        while not stop.is_set():
            for n in range(300):
                await store.put(f"k/{n}", b"x", IF_ABSENT)
            for n in range(300):
                await store.delete(f"k/{n}")

    thread = threading.Thread(target=lambda: asyncio.run(churn()))
    thread.start()
    try:
        for _ in range(1000):
            assert len((await store.list("k/")).objects) <= 300
    finally:
        stop.set()
        thread.join()


async def test_of_many_threads_one_creates_a_key(quick_switches):
    """if_absent has one winner, also over threads."""
    store = MemoryStore()
    start = threading.Barrier(8)
    won: list[int] = []

    async def create(n):
        start.wait()
        for key in range(200):
            try:
                await store.put(f"k/{key}", b"%d" % n, IF_ABSENT)
            except Conflict:
                continue
            won.append(key)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(create(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(200))
