"""Moving a root: what is moved, in which order, what is refused, and that a move may break off anywhere."""

import contextlib
import itertools
import json

import pytest

from a2a_gcs.errors import Unavailable
from a2a_gcs.layout import TaskRef, parse_context, parse_task, workspace_key
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE, Source
from a2a_gcs.relocation import RelocationRefused, live_hosts
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import Bucket
from tests.support.moving import KEPT, MARKS, NEW, below, everything, fill, move, picture

MOVED_MARKS = {f"push/{NEW}/t.json", *MARKS[1:]}


async def marks(store):
    return {info.key async for info in everything(store) if info.key.startswith("push/")}


async def test_everything_of_a_root_is_moved_and_means_the_same(tmp_path):
    """Bodies byte for byte, metadata, content types; pins name the copies. Neighbours stay as they are."""
    bucket = await fill(tmp_path)
    before, kept = await picture(bucket.store, ""), await picture(bucket.store, "users/bob")
    assert "the archive" in str(before["contexts/ctx/context.json"])

    copied, deleted = await move(bucket.store)

    assert copied == deleted == len(before)
    after = await picture(bucket.store, NEW)
    assert after.pop(KEPT)[0] == b"alice's"
    assert after == before
    assert await picture(bucket.store, "") == {}
    assert await picture(bucket.store, "users/bob") == kept
    assert await marks(bucket.store) == MOVED_MARKS
    assert (await bucket.store.head(f"push/{NEW}/t.json")).metadata == {"context": "ctx"}


async def test_what_is_known_of_a_context_is_byte_for_byte_the_same_but_for_its_pin(tmp_path):
    """context.json keeps members that this version does not know, and its form."""
    bucket = await fill(tmp_path)
    key = "contexts/ctx/context.json"
    record = json.loads((await bucket.store.get(key)).body) | {"later": {"z": 1, "a": [2]}}
    record["lastCompleted"]["later"] = "x"
    body = json.dumps(record, indent=2).encode() + b"\n"
    await bucket.store.put(key, body, OVERWRITE, content_type="application/json")
    await move(bucket.store)
    moved = (await bucket.store.get(f"{NEW}/{key}")).body
    last = record["lastCompleted"]
    version = (await bucket.store.head(f"{NEW}/{workspace_key(TaskRef('ctx', last['taskId']))}")).version
    assert version != last["generation"]
    assert moved == body.replace(f'"generation": {last["generation"]}'.encode(), f'"generation": {version}'.encode())


async def test_there_and_back_again(tmp_path):
    """A move to another root and one back leave what there was."""
    bucket = await fill(tmp_path)
    before = await picture(bucket.store, "")
    await bucket.store.delete(f"{NEW}/{KEPT}")
    await move(bucket.store)
    await move(bucket.store, NEW, "")
    assert await picture(bucket.store, "") == before
    assert await below(bucket.store, NEW) == []
    assert await marks(bucket.store) == set(MARKS)


async def test_a_move_that_broke_off_anywhere_is_completed_by_the_next(tmp_path):
    """After every single write, before and after it lands: the same call again ends as one that never broke off."""
    broken = 0
    for op, when in itertools.product(("compose", "put", "delete"), ("before", "after")):
        for nth in itertools.count(1):
            bucket = await fill(tmp_path)
            before = await picture(bucket.store, "")
            store = FaultyStore(bucket.store)
            fault = store.fail(op, nth=nth, when=when)
            with contextlib.suppress(Unavailable):
                await move(store)
            await move(bucket.store)
            after = await picture(bucket.store, NEW)
            del after[KEPT]
            assert after == before
            assert await picture(bucket.store, "") == {}
            assert await marks(bucket.store) == MOVED_MARKS
            if not fault.served:
                break
            broken += 1
    assert broken > 4 * len(before) - 8


LAST = {"put": {"put", "compose"}, "delete": {"delete"}}


async def test_copies_and_deletions_go_in_the_order_of_a_host_and_in_reverse(tmp_path):
    """No pointer before the archives, no task.json before its pointer, no context.json before its tasks.

    A mark, by which a host finds a task whose notifications are owed, is made and removed after all.
    """
    bucket = await fill(tmp_path)
    store = FaultyStore(bucket.store)
    await move(store)

    marked = [(op, key) for op, key in store.calls if key.startswith("push/") and op != "list"]
    assert marked == [("put", f"push/{NEW}/t.json"), ("delete", "push/t.json")]
    last = {op: max(n for n, (of, _) in enumerate(store.calls) if of in ops) for op, ops in LAST.items()}
    assert [store.calls[n] for n in last.values()] == marked
    store.calls = [call for call in store.calls if call not in marked]

    def rank(key):
        key = key.removeprefix(f"{NEW}/")
        return 2 if parse_task(key) else 3 if parse_context(key) else 1 if key.startswith("tasks/") else 0

    written = [rank(key) for op, key in store.calls if op in {"put", "compose"}]
    gone = [rank(key) for op, key in store.calls if op == "delete"]
    assert written == sorted(written)
    assert gone == sorted(gone, reverse=True)
    assert set(written) == set(gone) == {0, 1, 2, 3}
    assert {op for op, _ in store.calls} <= {"list", "get", "put", "compose", "delete"}
    assert [key for op, key in store.calls if op == "get" and not key.endswith("context.json")] == []


async def test_the_order_of_a_contexts_tasks_is_kept(tmp_path):
    """By the time of their last write, which `workspace diff` goes by."""
    bucket = await fill(tmp_path)

    async def order(root):
        infos = [info for info in await below(bucket.store, root) if "/ctx/" in info.key and "task.json" in info.key]
        return [info.key.rpartition("/ctx/")[2] for info in sorted(infos, key=lambda info: info.version)]

    for info in reversed([info async for info in everything(bucket.store)]):
        bucket.clock.now += 1
        if parse_task(info.key):
            blob = await bucket.store.get(info.key, with_metadata=True)
            await bucket.store.put(
                info.key,
                blob.body,
                OVERWRITE,
                metadata=blob.info.metadata,
                content_type=blob.info.content_type,
            )
    before = await order("contexts")
    await move(bucket.store)
    assert await order(NEW) == before


@pytest.mark.parametrize("kind", ["context.json", "task.json", "workspace.tar.gz", "contextId.txt"])
async def test_other_data_of_the_same_id_is_refused_before_anything_is_written(tmp_path, kind):
    """Whatever object of the new root it is."""
    bucket = await fill(tmp_path)
    key = next(info.key for info in await below(bucket.store, "") if info.key.endswith(kind))
    await bucket.store.put(f"{NEW}/{key}", b"other", OVERWRITE)
    before = {info.key: info.version async for info in everything(bucket.store)}
    with pytest.raises(RelocationRefused, match="is not a copy of"):
        await move(bucket.store)
    assert {info.key: info.version async for info in everything(bucket.store)} == before


@pytest.mark.parametrize("op", ["compose", "delete"])
async def test_a_source_that_is_written_meanwhile_is_kept(tmp_path, op):
    """Neither a copy of something older nor a deletion of something newer."""
    bucket = await fill(tmp_path)
    key = next(info.key for info in await below(bucket.store, "") if parse_task(info.key))
    store = FaultyStore(bucket.store)

    async def write(_):
        await bucket.store.put(key, b"newer", OVERWRITE)

    store.act(op, f"*{key}", write)
    with pytest.raises(RelocationRefused, match="written meanwhile"):
        await move(store)
    store.verify()
    assert (await bucket.store.get(key)).body == b"newer"


async def test_a_copy_that_somebody_changes_is_found_before_anything_is_deleted(tmp_path):
    """The whole new root is compared once more."""
    bucket = await fill(tmp_path)
    before = await picture(bucket.store, "")
    store = FaultyStore(bucket.store)

    async def damage(key):
        await bucket.store.put(f"{NEW}/{max(before)}", b"damaged", OVERWRITE)

    store.act("put", "*context.json", damage)
    with pytest.raises(RelocationRefused):
        await move(store)
    store.verify()
    assert await picture(bucket.store, "") == before


async def test_what_cannot_be_read_is_moved_as_it_is():
    """A context.json and metadata that are not ours; ids that no key of ours has."""
    store = MemoryStore()
    keys = ["contexts/c/context.json", "contexts/%zz/t/task.json", "tasks/odd", "contexts/c/t/task.json"]
    for key in keys:
        await store.put(key, b"\xff", OVERWRITE, metadata={"pin-generation": "many"})
    await move(store)
    assert {info.key async for info in everything(store)} == {f"{NEW}/{key}" for key in keys}


async def test_a_copy_of_a_run_that_was_killed_may_land_late(tmp_path):
    """Between the comparison and the write: it is the same copy. Anything else there is refused."""
    bucket = await fill(tmp_path)
    before = await picture(bucket.store, "")
    store = FaultyStore(bucket.store)

    async def lands(key):
        source = await bucket.store.head(key.removeprefix(f"{NEW}/"))
        await bucket.store.compose(
            key, [Source(source.key)], IF_ABSENT, metadata=source.metadata, content_type=source.content_type
        )

    store.act("compose", "*workspace.tar.gz", lands)
    await move(store)
    store.verify()
    after = await picture(bucket.store, NEW)
    del after[KEPT]
    assert after == before


async def test_only_hosts_that_renew_their_heartbeats_count():
    """By the store's clock and the lease of each."""
    bucket = Bucket()
    for name in ("a", "b"):
        await bucket.host(name)
    await bucket.store.put("hosts/odd.json", b"{", OVERWRITE)
    assert await live_hosts(bucket.store) == ["a", "b", "odd"]
    bucket.clock.now += 29
    await bucket.host("b")
    bucket.clock.now += 2
    assert await live_hosts(bucket.store) == ["b"]
