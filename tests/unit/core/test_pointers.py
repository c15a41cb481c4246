"""Pointers tell how tasks stand: written after the task, never back, and left to readers where that fails."""

import asyncio

import pytest

from a2a_gcs.errors import Throttled
from a2a_gcs.layout import TaskRef, pointer_key
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.pointers import PointerIndex, PointerMeta, put_pointer
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import CANCELED, COMPLETED, FAILED, WORKING

REF = TaskRef("a context", "t1")
DONE, PARKED, SUBMITTED = "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_SUBMITTED"


async def told(store, task_id="t1"):
    blob = await store.get(pointer_key(task_id), with_metadata=True)
    return blob.body.decode(), PointerMeta.from_metadata(blob.info.metadata)


@pytest.fixture
async def store():
    async with FaultyStore(MemoryStore()) as store:
        await put_pointer(store, REF, IF_ABSENT, SUBMITTED, 5)
        yield store


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELED])
async def test_a_pointer_follows_its_task(bucket, state):
    """Submitted at the claim, waiting while parked, and in the end what the task became; the body stays."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.claim("a context", task_id="t1")
    assert (await told(bucket.store))[1].state == SUBMITTED
    await a.save(claim, WORKING)
    await a.index.drained()
    assert (await told(bucket.store))[1].state == SUBMITTED  # an open task is looked at anyway
    await a.park(claim)
    await a.index.drained()
    assert await told(bucket.store) == ("a context", PointerMeta("a context", PARKED, 1_800_000_000_000))
    if state == CANCELED:
        await b.tasks.cancel("t1")
    else:
        await b.end(await b.answer("t1"), state)
    await b.index.drained()
    stored = (await b.record("t1")).meta
    assert await told(bucket.store) == ("a context", PointerMeta("a context", stored.state, stored.status_time))


async def test_a_terminal_state_stays(store):
    """A host that is late with an earlier state does not write over the end."""
    late, index = PointerIndex(store, apart=0.0), PointerIndex(store, apart=0.0)
    gate = store.hold("put", pointer_key("t1"))
    late.note(REF, PARKED, 6)
    await gate.reached.wait()
    index.note(REF, DONE, 7)
    await index.drained()
    gate.release()
    await late.drained()
    late.note(REF, PARKED, 6)
    await late.drained()
    assert (await told(store))[1] == PointerMeta("a context", DONE, 7)


async def test_a_lost_race_is_run_again(store):
    """The end of a task gets into its pointer also when a parked state lands first."""
    first, index = PointerIndex(store, apart=0.0), PointerIndex(store, apart=0.0)
    gate = store.hold("put", pointer_key("t1"))
    index.note(REF, DONE, 7)
    await gate.reached.wait()
    first.note(REF, PARKED, 6)
    await first.drained()
    gate.release()
    await index.drained()
    assert (await told(store))[1] == PointerMeta("a context", DONE, 7)


async def test_changes_in_short_order_are_one_write(store):
    """Parked and ended within a moment: one write, of the end, whichever was noted last."""
    index = PointerIndex(store, apart=0.05)
    index.note(REF, PARKED, 6)
    index.note(REF, DONE, 7)
    index.note(REF, PARKED, 6)
    store.calls.clear()
    await index.drained()
    assert (store.count("put"), (await told(store))[1]) == (1, PointerMeta("a context", DONE, 7))


async def test_a_pointer_that_is_gone_is_not_made(store):
    """Whoever took it back, or removed the task, is right."""
    await store.delete(pointer_key("t1"))
    index = PointerIndex(store, apart=0.0)
    index.note(REF, DONE, 7)
    await index.drained()
    assert not (await store.list("tasks/")).objects


async def test_an_outage_is_left_to_readers(store):
    """A pointer that cannot be written is no error of anybody's."""
    index = PointerIndex(store, apart=0.0)
    store.fail("put", pointer_key("t1"), error=Throttled)
    index.note(REF, DONE, 7)
    await index.drained()
    assert (await told(store))[1].state == SUBMITTED


async def test_closing_writes_what_waits(store):
    """A host that stops does not leave its last tasks to the readers, and takes no more."""
    index = PointerIndex(store, apart=3600.0)
    index.note(REF, DONE, 7)
    await asyncio.wait_for(index.aclose(), 5)
    assert (await told(store))[1].state == DONE
    index.note(REF, PARKED, 8)
    assert not index._writers


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ({}, PointerMeta(None)),
        ({"context": "a%20context"}, PointerMeta("a context")),
        ({"context": "a context"}, PointerMeta(None)),
        ({"context": "x", "state": DONE, "status-time": "soon"}, PointerMeta("x")),
        ({"context": "x", "state": DONE}, PointerMeta("x")),
    ],
    ids=str,
)
def test_metadata_that_is_not_ours(raw, meant):
    """What does not say everything says nothing of the state, so the task is looked at."""
    assert PointerMeta.from_metadata(raw) == meant
    assert not meant.final
