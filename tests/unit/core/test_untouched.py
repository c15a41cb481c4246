"""The look for writes that integration tests share: what it finds, and what it leaves to earlier tasks."""

import asyncio

import pytest

from a2a_gcs.objectstore import MemoryStore
from tests.support.places import Place
from tests.support.untouched import at_rest, untouched

ENDED, CANCELED, RUNS = (
    {"open": "0", "state": "TASK_STATE_COMPLETED"},
    {"open": "0", "state": "TASK_STATE_CANCELED"},
    {"open": "1", "state": "TASK_STATE_WORKING"},
)


async def test_an_empty_place_is_at_rest():
    """And what is written first is found."""
    place = Place("memory", opened=MemoryStore())
    with pytest.raises(AssertionError, match=r"\['k'\]"):
        async with untouched(place):
            await place.write("k", b"")


@pytest.fixture(params=["", "agents/a/users/me/"])
async def place(request):
    """What three tasks of earlier tests have left, and the root that they are below."""
    place = Place("memory", opened=MemoryStore())
    place.root = request.param
    for task, meta in (("done", ENDED), ("canceled", CANCELED)):
        await place.write(f"{place.root}tasks/{task}/contextId.txt", b"c")
        await place.write(f"{place.root}contexts/c/{task}/task.json", b"{}", metadata=meta)
        await place.write(f"push/{place.root}{task}.json", b"{}")
        await place.write(f"{place.root}contexts/c/{task}/push/owed/1.json", b"{}")
        await place.write(f"{place.root}contexts/c/{task}/push/one.json", b"{}")
    await place.write(f"{place.root}contexts/c/context.json", b"{}")
    await place.write(f"{place.root}contexts/c/done/workspace.tar.gz", b"")
    return place


@pytest.mark.parametrize(
    "key",
    [
        "tasks/new/contextId.txt",
        "contexts/new/context.json",
        "contexts/c/context.json",
        "contexts/c/new/task.json",
        "contexts/c/done/task.json",
        "contexts/c/canceled/task.json",
        "contexts/c/done/workspace.tar.gz",
        "contexts/c/new/workspace.tar.gz",
        "contexts/c/done/push/another.json",
        "contexts/c/done/push/owed/2.json",
        "contexts/c/done/files/" + "0" * 64,
        "whatever",
    ],
)
async def test_what_is_written_is_found(place, key):
    """Also a second version with the same bytes, and also below a root."""
    with pytest.raises(AssertionError):
        async with untouched(place):
            await place.write(place.root + key, b"{}")


async def test_a_new_push_mark_is_found(place):
    """Marks are at the bucket's prefix, whatever the root."""
    for key in (f"push/{place.root}new.json", f"push/{place.root}done.json"):
        with pytest.raises(AssertionError):
            async with untouched(place):
                await place.write(key, b"{}")


@pytest.mark.parametrize(
    "key", ["tasks/done/contextId.txt", "contexts/c/context.json", "contexts/c/done/task.json",
            "contexts/c/done/workspace.tar.gz", "contexts/c/done/push/one.json"],
)  # fmt: skip
async def test_what_is_removed_is_found(place, key):
    """Of what no task removes behind its answer."""
    with pytest.raises(AssertionError):
        async with untouched(place):
            await place.delete(place.root + key)


async def test_what_follows_an_answer_is_left_out(place):
    """Pointers, archives of canceled tasks, and what receivers of push have heard."""
    async with untouched(place):
        for key in (
            "tasks/done/contextId.txt",
            "contexts/c/done/push/one.json",
            "contexts/c/canceled/workspace.tar.gz",
        ):
            await place.write(place.root + key, b"again")
        await place.delete(f"{place.root}contexts/c/done/push/owed/1.json")
        await place.delete(f"push/{place.root}done.json")


async def test_a_turn_that_is_under_way_is_waited_for(place):
    """Unless the test says that it is at work on purpose; then what it writes is found."""
    key = f"{place.root}contexts/c/new/task.json"
    await place.write(key, b"{}", metadata=RUNS)
    waiting = asyncio.create_task(at_rest(place))
    await at_rest(place, running=["new"])
    assert not waiting.done()
    await place.write(key, b"{}", metadata=ENDED)
    assert (await waiting)[key].metadata["open"] == "0"
