"""task.json and its pointer in a bucket: found by id, read as written, and never overwritten unread."""

import json

import pytest
from a2a.types.a2a_pb2 import ListTasksRequest
from structlog.testing import capture_logs

from a2a_gcs.errors import Conflict, CorruptRecord, Unavailable
from a2a_gcs.layout import TaskRef, pointer_key, task_key
from a2a_gcs.ledger.errors import ActiveTaskUnreadable, ContextBusy, Repeated, TaskMissing
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import Pin
from a2a_gcs.task_records import TaskRecords, UnreadableTask
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import COMPLETED, WORKING, Bucket, message

GARBAGE = b'{"id": "t", "conte'


@pytest.fixture(params=["memory", "local"])
def bucket(request, tmp_path):
    return Bucket(LocalStore(tmp_path / "bucket") if request.param == "local" else None)


async def stored(bucket, where):
    return await bucket.store.get(task_key(where), with_metadata=True)


async def corrupt(bucket, where, metadata=None):
    before = await stored(bucket, where)
    await bucket.overwrite_task(where, GARBAGE, dict(before.info.metadata) if metadata is None else metadata)


async def test_unknown_fields_survive_every_kind_of_write(bucket):
    """What a later release put into a task's body or metadata is there after a turn, its end and a settlement."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    await a.park(claim)
    blob = await stored(bucket, claim.ref)
    raw = json.loads(blob.body) | {"later": {"x": [1]}}
    raw["status"]["later"] = "y"
    await bucket.overwrite_task(claim.ref, json.dumps(raw).encode(), {**blob.info.metadata, "later": "z"})
    turn = await b.answer(claim.ref.task_id)
    await b.save(turn, WORKING)
    await b.die()
    settled = await a.tasks.read(claim.ref.task_id)
    after = await stored(bucket, claim.ref)
    body = json.loads(after.body)
    assert settled.terminal
    assert (body["later"], body["status"]["later"], after.info.metadata["later"]) == ({"x": [1]}, "y", "z")
    assert after.info.metadata["schema"] == "1"


@pytest.mark.parametrize("metadata", [None, {}, {"turn": "many"}], ids=["ours", "none", "garbage"])
async def test_an_unreadable_task_is_not_found_and_left_alone(bucket, metadata):
    """A task.json that cannot be parsed is not found for the caller, an error in the log, and stays byte for byte."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.run()
    await corrupt(bucket, claim.ref, metadata)
    before = await stored(bucket, claim.ref)
    with capture_logs() as logs:
        assert await b.tasks.get(claim.ref.task_id, None) is None
        assert await b.tasks.cancel(claim.ref.task_id) is None
        with pytest.raises(TaskMissing):
            await b.answer(claim.ref.task_id)
    after = await stored(bucket, claim.ref)
    assert (after.body, after.info.version) == (GARBAGE, before.info.version)
    assert {(entry["log_level"], entry["key"]) for entry in logs} == {("error", task_key(claim.ref))}


async def test_an_unreadable_task_does_not_break_a_listing(bucket):
    """A listing has all the others, and the log names the one that is left out, once."""
    a = await bucket.host("a")
    good, bad, foreign = await a.run("one"), await a.run("two"), TaskRef("three", "t")
    await corrupt(bucket, bad.ref)
    await bucket.overwrite_task(foreign, GARBAGE)
    await bucket.store.put(pointer_key("t"), b"three", OVERWRITE)
    with capture_logs() as logs:
        page = await a.tasks.list(ListTasksRequest(), None)
    assert [task.id for task in page.tasks] == [good.ref.task_id]
    assert {entry["key"] for entry in logs} == {task_key(bad.ref), task_key(foreign)}


@pytest.mark.parametrize("state", ["running", "parked", "unknown"])
async def test_a_context_whose_newest_task_is_unreadable(bucket, state):
    """Nobody knows whether it is done: new messages are refused, naming the object to repair, which is left alone."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    if state == "parked":
        await a.park(claim)
    await a.die()
    await corrupt(bucket, claim.ref, {} if state == "unknown" else None)
    before = await stored(bucket, claim.ref)
    with pytest.raises(ActiveTaskUnreadable) as caught:
        await b.claim()
    assert caught.value.key == task_key(claim.ref)
    assert (await stored(bucket, claim.ref)).info.version == before.info.version


async def test_an_unreadable_task_of_a_live_host_is_busy(bucket):
    """While the host that runs it lives, the context is merely busy."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    await corrupt(bucket, claim.ref)
    with pytest.raises(ContextBusy):
        await b.claim()


async def test_an_unreadable_task_that_is_known_to_have_ended(bucket):
    """Its metadata says COMPLETED and what it pinned: the context goes on from there."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.run(pin=Pin(generation=9, crc32c="x"))
    await corrupt(bucket, claim.ref)
    assert (await b.claim()).base == Pin(generation=9, crc32c="x")


async def test_a_repeat_of_a_message_whose_task_is_unreadable(bucket):
    """The work was done once: it is not run again because its record cannot be read."""
    a = await bucket.host("a")
    said = message()
    claim = await a.start(said=said)
    await a.end(claim)
    await corrupt(bucket, claim.ref)
    with pytest.raises(Repeated):
        await a.claim(said=said)


async def test_a_task_of_another_id(bucket):
    """A task.json that was copied to another task's place is unreadable there, and readable in its own."""
    a = await bucket.host("a")
    one, two = await a.run("one"), await a.run("two")
    await bucket.overwrite_task(two.ref, (await stored(bucket, one.ref)).body)
    assert await a.tasks.get(two.ref.task_id, None) is None
    assert (await a.tasks.get(one.ref.task_id, None)).task.id == one.ref.task_id


async def test_a_task_without_metadata(bucket):
    """A task.json copied in by hand is read, and its body says how it ended: it blocks nothing, and can be listed."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.run()
    await bucket.overwrite_task(claim.ref, (await stored(bucket, claim.ref)).body)
    assert (await b.tasks.get(claim.ref.task_id, None)).task.status.state == COMPLETED
    assert [t.id for t in (await b.tasks.list(ListTasksRequest(status=COMPLETED), None)).tasks] == [claim.ref.task_id]
    assert (await b.claim()).base is None


@pytest.mark.parametrize("owner", ["", "nobody", "a\nb/1", "x" * 500 + "/1", "a/" + "9" * 5000])
async def test_an_open_task_of_a_nonsensical_owner(bucket, owner):
    """An owner that no host can be is dead: the task is settled instead of breaking what touches it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    claim = await a.start()
    blob = await stored(bucket, claim.ref)
    await bucket.overwrite_task(claim.ref, blob.body, {**blob.info.metadata, "owner": owner})
    assert (await b.tasks.read(claim.ref.task_id)).terminal


@pytest.mark.parametrize("body", [b"\xff", b"", b"a\nb"])
async def test_a_garbled_pointer(bucket, body):
    """A pointer that holds no context id is reported to whoever follows it, and the task is not found by id."""
    a = await bucket.host("a")
    await bucket.store.put(pointer_key("t"), body, OVERWRITE)
    with pytest.raises(CorruptRecord):
        await a.records.find("t")
    assert await a.tasks.get("t", None) is None
    with pytest.raises(TaskMissing):
        await a.answer("t")


async def test_an_unknown_task_costs_one_read_and_creates_nothing():
    """Looking for a task that is not there reads its pointer, and writes nothing."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    store.calls.clear()
    assert await a.tasks.get("../../x", None) is None
    assert store.calls == [("get", pointer_key("../../x"))]


async def test_a_record_is_written_only_as_it_was_seen(bucket):
    """A write over an older version of task.json is a Conflict and changes nothing."""
    a = await bucket.host("a")
    claim = await a.start()
    seen = await a.record(claim.ref.task_id)
    await a.records.write(seen, seen.task, seen.meta.with_(seq=seen.meta.seq + 1))
    with pytest.raises(Conflict):
        await a.records.write(seen, seen.task, seen.meta.with_(seq=99))
    assert (await a.record(claim.ref.task_id)).meta.seq != 99


async def test_a_large_task_is_read_whole(bucket):
    """A task of a megabyte reads back equal (it is parsed in a thread)."""
    a = await bucket.host("a")
    claim = await a.start()
    task = claim.record.copy_task()
    task.artifacts.add(artifact_id="big").parts.add(text="x" * 1_000_000)
    await a.save_task(task)
    assert (await TaskRecords(bucket.store).load(claim.ref)).task == task


async def test_an_outage_is_no_missing_task():
    """A bucket that does not answer is an error, never "not found"."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        claim = await a.run()
        store.fail("get", "*/task.json")
        with pytest.raises(Unavailable):
            await a.tasks.get(claim.ref.task_id, None)


async def test_unreadable_says_why(bucket):
    """The error carries the task, its metadata and the parser's cause."""
    a = await bucket.host("a")
    claim = await a.run()
    await corrupt(bucket, claim.ref)
    with pytest.raises(UnreadableTask) as caught:
        await a.records.load(claim.ref)
    assert (caught.value.ref, caught.value.meta.state) == (claim.ref, "TASK_STATE_COMPLETED")
