"""Writes that are made together: in their order, each with its own outcome."""

import asyncio
import threading

from a2a_gcs.errors import Conflict, NotFound, Unavailable
from a2a_gcs.objectstore import IF_ABSENT, LocalStore
from a2a_gcs.objectstore.local_draft import Draft
from a2a_gcs.objectstore.local_tree import LocalTree, Put, Remove, incoming
from a2a_gcs.objectstore.local_writes import Writes
from a2a_gcs.objectstore.port import OVERWRITE, IfVersion, ObjectInfo


class Applied:
    """Stands in for a tree; the first batch waits until the test lets it go on."""

    def __init__(self, error=None):
        self.batches = []
        self.began, self.go_on = threading.Event(), threading.Event()
        self.error = error

    def __call__(self, changes):
        self.batches.append([change.key for change in changes])
        self.began.set()
        assert self.go_on.wait(30)
        if self.error:
            raise self.error
        return [Conflict(c.key) if c.key == "refused" else ObjectInfo(c.key, 1, 0, "") for c in changes]


async def under_way(writes, applied, *keys):
    """The first write being made, and the others waiting for it."""
    tasks = [asyncio.create_task(writes.make(Remove(keys[0], None)))]
    await asyncio.to_thread(applied.began.wait)
    tasks += [asyncio.create_task(writes.make(Remove(key, None))) for key in keys[1:]]
    await asyncio.sleep(0)
    return tasks


async def test_what_comes_meanwhile_goes_together():
    """One alone does not wait for company; those that come while it is made are one batch, in their order."""
    applied = Applied()
    tasks = await under_way(Writes(applied), applied, "a", "b", "refused", "c")
    applied.go_on.set()
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert applied.batches == [["a"], ["b", "refused", "c"]]
    assert [one.key for one in told] == ["a", "b", "refused", "c"]
    assert [isinstance(one, Conflict) for one in told] == [False, False, True, False]


async def test_a_failure_is_told_to_all_that_were_in_it():
    """Nobody waits for ever, and what comes later is tried anew."""
    applied = Applied(OSError("the disk is full"))
    writes = Writes(applied)
    tasks = await under_way(writes, applied, "a", "b")
    applied.go_on.set()
    assert [type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == [OSError, OSError]
    applied.error = None
    assert (await writes.make(Remove("c", None))).key == "c"


async def test_a_cancelled_writer_holds_up_no_other():
    """Its change is made all the same, as it may have been under way."""
    applied = Applied()
    tasks = await under_way(Writes(applied), applied, "a", "b", "c")
    tasks[1].cancel()
    applied.go_on.set()
    assert (await tasks[2]).key == "c"
    assert applied.batches == [["a"], ["b", "c"]]
    assert tasks[1].cancelled()


async def test_writes_of_several_loops_go_together():
    """The heartbeat has a loop of its own; each writer is answered in its own."""
    applied = Applied()
    writes = Writes(applied)
    (first,) = await under_way(writes, applied, "a")
    other = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(writes.make(Remove("b", None)))))
    while not writes._waiting:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)
    applied.go_on.set()
    assert ((await first).key, (await other).key) == ("a", "b")


async def test_a_batch_is_as_if_one_came_after_the_other(tmp_path):
    """Each condition is checked against what the changes before it have made, and a refusal undoes none of them."""
    tree = LocalTree(tmp_path, durable=True)
    (one,) = tree.apply([put(tmp_path, "k", b"1", IF_ABSENT)])
    outcomes = tree.apply(
        [
            put(tmp_path, "k", b"2", IfVersion(one.version)),
            put(tmp_path, "k", b"3", IfVersion(one.version)),
            put(tmp_path, "n", b"4" * 70_000, IF_ABSENT),
            Remove("n", None),
            Remove("n", None),
            put(tmp_path, "n", b"5" * 70_000, IF_ABSENT),
        ]
    )
    tree.close()
    kinds = [ObjectInfo, Conflict, ObjectInfo, type(None), NotFound, ObjectInfo]
    assert [type(one) for one in outcomes] == kinds
    async with LocalStore(tmp_path) as store:
        assert [(await store.get(key)).body[:1] for key in ("k", "n")] == [b"2", b"5"]
    assert [(tmp_path / key).read_bytes()[:1] for key in ("k", "n")] == [b"2", b"5"]
    assert len([path for path in (tmp_path / ".objectstore/blobs").rglob("*") if path.is_file()]) == 1


async def test_a_disk_that_refuses_makes_every_write_ambiguous(tmp_path):
    """The index has failed: each of the writes that were under way is told, under its own key."""
    async with LocalStore(tmp_path) as store:
        await store.put("k", b"", OVERWRITE)
        store._opened._index._writer.close()
        told = await asyncio.gather(*(store.put(key, b"", OVERWRITE) for key in "ab"), return_exceptions=True)
    assert [(type(one), one.key, one.ambiguous) for one in told] == [(Unavailable, key, True) for key in "ab"]


def put(root, key, body, mode):
    draft = Draft(incoming(root))
    draft.write(body)
    draft.finish(durable=False)
    return Put(key, draft, mode, {}, "text/plain")
