"""The stores that the contract is held against: every adapter, and every decorator over one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest
import pytest_asyncio

from a2a_gcs.objectstore import (
    GCSStore,
    InstrumentedStore,
    LocalStore,
    MemoryStore,
    ObjectStore,
    PrefixStore,
    RetryingStore,
)
from fake_gcs.process import FakeGcs
from tests.support.faulty_store import FaultyStore

DECORATORS = {
    "": lambda store: store,
    "retry-": lambda store: RetryingStore(store, budget=1.0),
    "prefix-": lambda store: PrefixStore(store, "ten ants/ü"),
    "instrument-": InstrumentedStore,
    "faulty-": FaultyStore,
    "stack-": lambda store: PrefixStore(RetryingStore(InstrumentedStore(store), budget=1.0), "agents/a"),
}
STACKS = [
    *("memory", "local", "gcs"),
    *("retry-memory", "retry-gcs", "prefix-memory", "prefix-gcs", "instrument-memory", "faulty-memory"),
    *("stack-local", "stack-gcs"),
]


@dataclass
class Rig:
    """A store under test, and the adapter at its bottom for reaching behind it."""

    name: str
    store: ObjectStore
    adapter: ObjectStore


@pytest.fixture(scope="session")
def emulator():
    """The gateway. Races on one key take more than a write a second; the limit has tests of its own."""
    with FakeGcs.start() as server, server.settings(write_limit_refill=1000.0):
        yield server


@pytest.fixture
def bucket(emulator):
    """The name of a new bucket."""
    name = f"test-{uuid.uuid4().hex[:20]}"
    emulator.create_bucket(name)
    return name


@pytest_asyncio.fixture(params=STACKS)
async def rig(request, tmp_path):
    decorator, _, adapter_name = request.param.rpartition("-")
    if adapter_name == "memory":
        adapter = MemoryStore()
    elif adapter_name == "local":
        adapter = LocalStore(tmp_path / "store")
    else:
        emulator = request.getfixturevalue("emulator")
        adapter = GCSStore(request.getfixturevalue("bucket"), emulator=emulator.url)
    store = DECORATORS[f"{decorator}-" if decorator else ""](adapter)
    yield Rig(request.param, store, adapter)
    await store.close()


@pytest.fixture
def store(rig):
    return rig.store
