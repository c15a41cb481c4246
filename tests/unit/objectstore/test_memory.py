"""What the memory store promises beyond the contract: it may be used from several threads."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

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
