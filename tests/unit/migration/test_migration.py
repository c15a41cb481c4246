"""A migration writes a root that a host goes on with, once, whole, and only where there is nothing yet."""

import contextlib
import itertools
import random
import time

import pytest
from a2a.types.a2a_pb2 import TaskState

from a2a_gcs.errors import CorruptRecord, Unavailable
from a2a_gcs.layout import TaskRef, context_key, pointer_key, task_key, workspace_key
from a2a_gcs.ledger.errors import ContextBusy
from a2a_gcs.migration.files import BucketFiles, DirectoryFiles
from a2a_gcs.migration.migration import Migration
from a2a_gcs.migration.old_layout import OldLayout
from a2a_gcs.migration.report import MigrationRefused
from a2a_gcs.migration.source import context_of
from a2a_gcs.objectstore import MemoryStore, PrefixStore
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE
from a2a_gcs.pointers import PointerMeta
from a2a_gcs.records import ContextRecord
from a2a_gcs.task_json import status_millis
from a2a_gcs.task_records import TaskRecords
from tests.support.a2a_http import A2AClient
from tests.support.doctor import examined, found, only
from tests.support.faulty_store import FaultyStore
from tests.support.host_thread import serve_in_thread
from tests.support.hosts import Bucket, Clock
from tests.support.legacy import gemini, keep, keep_file, packed, packed_in_tar, workspace
from tests.support.moving import everything, picture

COMPLETED, FAILED, WAITS = (
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_INPUT_REQUIRED,
)
TASKS = (
    ("one", gemini("completed", "c"), workspace(notes_txt="one")),
    ("two", gemini("completed", "c"), workspace(notes_txt="two")),
    ("three", gemini("failed", "c"), workspace(notes_txt="three")),
    ("four", gemini("working", "c"), None),
    ("five", gemini("input-required", "c"), workspace(notes_txt="five")),
    ("six", gemini("input-required", "c"), workspace(notes_txt="six")),
    ("alone", gemini("completed"), workspace(notes_txt="alone")),
    ("odd ctx", gemini("canceled", "a/b ü"), None),
)


@pytest.fixture
async def old():
    """A bucket in the old layout, with what does not belong to it."""
    clock = Clock()
    store = MemoryStore(now=clock)
    for n, (task_id, metadata, archive) in enumerate(TASKS):
        clock.now += 1
        await keep(store, task_id, (packed, packed_in_tar)[n % 2](metadata), archive)
    await store.put("tasks/one/contextId.txt", b"of a newer layout", OVERWRITE)
    await store.put("tasks/loose.txt", b"", OVERWRITE)
    return store


def source(store):
    return OldLayout(BucketFiles(store), "gs://old")


async def run(read, target, *, dry=False, **options):
    migration = Migration(read, target, **options)
    return await migration.run(await migration.plan(), dry=dry)


async def states(store, context="c"):
    records, found = TaskRecords(store), {}
    for task_id, *_ in TASKS:
        if (record := await records.find(task_id)) is not None and record.ref.context_id == context:
            found[task_id] = record.task.status.state
    return found


async def record_of(store, context="c"):
    key = context_key(context)
    return ContextRecord.parse(key, (await store.get(key)).body)


async def test_a_root_is_made_that_a_host_goes_on_with(old):
    """States, workspaces, the record; the next task waits for the one that asks, and its answer continues it."""
    bucket = Bucket()
    report = await run(source(old), bucket.store)
    assert (report.contexts, report.tasks, report.moved, report.failed, report.minted) == (3, 8, 8, 2, 1)
    assert (report.workspaces, report.problems) == (6, [])
    assert await states(bucket.store) == {
        "one": COMPLETED,
        "two": COMPLETED,
        "three": FAILED,
        "four": FAILED,
        "five": FAILED,
        "six": WAITS,
    }
    record = await record_of(bucket.store)
    archive = await bucket.store.head(workspace_key(TaskRef("c", "two")))
    assert (record.last_completed.task_id, record.last_completed.pin.generation) == ("two", archive.version)
    assert record.active.task_id == "six"
    for task_id, _, body in TASKS:
        ref = TaskRef(await TaskRecords(bucket.store).context_of(task_id), task_id)
        if body is not None:
            assert (await bucket.store.get(workspace_key(ref))).body == body

    host = await bucket.host("a")
    with pytest.raises(ContextBusy, match="six"):
        await host.start("c")
    claim = await host.answer("six")
    assert claim.base.generation == (await bucket.store.head(workspace_key(TaskRef("c", "six")))).version
    await host.end(claim)
    assert (await host.start("c")).base_ref.task_id == "six"
    claim = await host.start(context_of("alone"))
    assert claim.base_ref.task_id == "alone"
    await host.die()


async def test_pointers_tell_listings_how_each_task_stands(old):
    """So that a listing across contexts reads no ended task."""
    target = MemoryStore()
    await run(source(old), target)
    for task_id, *_ in TASKS:
        task = (await TaskRecords(target).find(task_id)).task
        told = PointerMeta.from_metadata((await target.head(pointer_key(task_id))).metadata)
        assert told == PointerMeta(task.context_id, TaskState.Name(task.status.state), status_millis(task))


async def test_the_source_is_only_read_and_a_second_run_writes_nothing(old):
    target = MemoryStore()
    before = {info.key: info.version async for info in everything(old)}
    await run(source(old), target)
    written = {info.key: info.version async for info in everything(target)}
    faulty = FaultyStore(target)
    report = await run(source(old), faulty)
    assert (report.moved, report.present, report.workspaces, report.problems) == (0, 8, 0, [])
    assert {op for op, _ in faulty.calls} == {"list"}
    assert {info.key: info.version async for info in everything(target)} == written
    assert {info.key: info.version async for info in everything(old)} == before


async def test_a_dry_run_tells_the_same_and_writes_nothing(old):
    target = MemoryStore()
    dry = await run(source(old), target, dry=True)
    assert [info async for info in everything(target)] == []
    assert dry == await run(source(old), target)


async def test_a_run_that_broke_off_anywhere_is_completed_by_the_next(old):
    """After every single write, before and after it lands, the same command ends as one that never broke off."""
    whole = MemoryStore()
    await run(source(old), whole)
    expected, broken = await picture(whole, ""), 0
    for when in ("before", "after"):
        for nth in itertools.count(1):
            target = MemoryStore()
            faulty = FaultyStore(target)
            fault = faulty.fail("put", nth=nth, when=when)
            with contextlib.suppress(Unavailable):
                await run(source(old), faulty)
            await run(source(old), target)
            assert await picture(target, "") == expected
            if not fault.served:
                break
            broken += 1
    assert broken == 2 * (8 + 8 + 6 + 3 + 3)  # pointers, tasks, workspaces, guards, records


async def test_a_context_that_is_half_there_is_nobodys(old):
    """No host takes it for a new one, however long ago the run broke off; a later run completes it."""
    bucket = Bucket()
    bucket.clock.now = time.time()
    faulty = FaultyStore(bucket.store)
    faulty.fail("put", task_key(TaskRef("c", "two")))
    with pytest.raises(Unavailable):
        await run(source(old), faulty)
    host = await bucket.host("a")
    with pytest.raises(CorruptRecord, match=r"contexts/c/context\.json"):
        await host.start("c")
    assert not [key for key in await bucket.keys() if key.startswith("tasks/task-")]
    assert "context c is not migrated to its end" in only(await examined(bucket.store), "unfinished-migration").found
    await run(source(old), bucket.store)
    assert found(await examined(bucket.store)) == set()
    with pytest.raises(ContextBusy):
        await host.start("c")
    await host.die()


async def test_a_guard_goes_if_there_is_no_task_to_tell_of():
    """A context whose only task is refused stays as new as it was."""
    old, target = MemoryStore(), MemoryStore()
    await keep(old, "one", packed(gemini("completed", "c")))
    await target.put(pointer_key("one"), b"elsewhere", OVERWRITE)
    report = await run(source(old), target)
    assert len(report.problems) == 1
    assert [info.key async for info in everything(target)] == [pointer_key("one")]


async def test_a_large_workspace_is_written_in_a_stream_whose_lost_answer_is_found_out():
    old, target = MemoryStore(), MemoryStore()
    body = workspace(noise_txt=random.Random(1).randbytes(9 << 20).hex())
    await keep(old, "big", packed(gemini("completed", "c")), body)
    async with FaultyStore(target) as faulty:
        faulty.fail("put_stream", when="after")
        report = await run(source(old), faulty)
        assert (report.size, report.problems) == (len(body), [])
        ref = TaskRef("c", "big")
        assert (await target.get(workspace_key(ref))).body == body
        assert (await record_of(target)).last_completed.task_id == "big"


async def test_what_cannot_be_read_is_told_and_the_rest_is_moved(old):
    await keep(old, "broken", b"no gzip")
    await keep(old, "strange", packed(gemini("paused", "c")))
    await keep(old, "x" * 300, packed(gemini("completed", "c")))
    await old.put("tasks/only-files/workspace.tar.gz", workspace(a="b"), OVERWRITE)
    await keep(old, "torn", packed(gemini("completed", "t")), workspace(a="b" * 500)[:-9])
    target = MemoryStore()
    report = await run(source(old), target)
    assert report.moved == 9
    assert {problem.what: problem.why for problem in report.problems} == {
        "tasks/broken/metadata.tar.gz": problem_with(report, "broken", "not gzipped"),
        "tasks/strange/metadata.tar.gz": problem_with(report, "strange", "'paused'"),
        f"tasks/{'x' * 300}/metadata.tar.gz": problem_with(report, "xxx", "300 bytes"),
        "tasks/only-files/": problem_with(report, "only-files", "no metadata.tar.gz"),
        "workspace of task torn": problem_with(report, "torn", "the task has none now"),
    }
    assert (await record_of(target, "t")).last_completed is None
    assert (await states(target))["six"] == WAITS


def problem_with(report, name, why):
    [found] = [problem.why for problem in report.problems if name in problem.what]
    assert why in found
    return found


async def test_a_context_that_the_target_has_is_told_and_not_touched(old):
    bucket = Bucket()
    host = await bucket.host("a")
    theirs = await host.start("c")
    await host.end(theirs)
    await host.die()
    before = await picture(bucket.store, "contexts/c")
    report = await run(source(old), bucket.store)
    assert (report.moved, report.present) == (2, 0)
    assert problem_with(report, "context c", "not overwritten") == (
        "the target has this context already, without tasks one, two, three and 3 more; it is not overwritten"
    )
    assert await picture(bucket.store, "contexts/c") == before
    assert await TaskRecords(bucket.store).find("one") is None


async def test_a_task_whose_id_or_place_is_taken_is_told_and_not_touched(old):
    """A pointer to another context, another task.json, another workspace: each keeps only that task from moving."""
    target = MemoryStore()
    await target.put(pointer_key("one"), b"elsewhere", OVERWRITE)
    await target.put(task_key(TaskRef("c", "two")), b"{}", OVERWRITE)
    await target.put(workspace_key(TaskRef("c", "three")), b"other", OVERWRITE)
    report = await run(source(old), target)
    assert "in context 'elsewhere'" in problem_with(report, "one", "not overwritten")
    problem_with(report, "two", "another task of this id")
    problem_with(report, "three", "another object at")
    assert set(await states(target)) == {"four", "five", "six"}
    assert (await record_of(target)).last_completed is None
    assert (await target.get(workspace_key(TaskRef("c", "three")))).body == b"other"


async def test_a_host_that_begins_the_context_meanwhile_is_not_overwritten(old):
    target = MemoryStore()
    async with FaultyStore(target) as faulty:

        async def begins(key):
            await target.put(key, b'{"schema": 1, "contextId": "c", "epoch": 1}', IF_ABSENT)

        faulty.act("put", context_key("c"), begins)
        with pytest.raises(MigrationRefused, match="somebody has written context c"):
            await run(source(old), faulty)
    assert (await record_of(target)).epoch == 1


async def test_no_record_is_written_over_something_that_changed_meanwhile(old):
    """What was written is looked at again before it counts."""
    target = MemoryStore()
    async with FaultyStore(target) as faulty:

        async def replaced(_key):
            await target.put(task_key(TaskRef("c", "one")), b"{}", OVERWRITE)

        faulty.act("put", task_key(TaskRef("c", "six")), replaced)
        with pytest.raises(MigrationRefused, match="not in the target as it was written"):
            await run(source(old), faulty)
    with pytest.raises(CorruptRecord):
        await record_of(target)


async def test_source_and_target_may_be_one_bucket(old, tmp_path):
    """The layouts have no key in common; what is listed are the new tasks."""
    await old.delete("tasks/one/contextId.txt")
    before = {info.key: info.version async for info in everything(old)}
    assert (await run(source(old), old)).problems == []
    after = {info.key: info.version async for info in everything(old)}
    assert before.items() <= after.items()
    assert (await run(source(old), old)).present == len(TASKS)
    with serve_in_thread(old, work_dir=tmp_path) as host:
        async with A2AClient(host.url) as client:
            assert {task["id"] for task in (await client.list())["tasks"]} == {task_id for task_id, *_ in TASKS}


async def test_everything_goes_below_the_root(old):
    target = MemoryStore()
    await run(source(old), target, root="agents/writer")
    assert {info.key.split("/")[0] async for info in everything(target)} == {"agents"}
    assert (await record_of(PrefixStore(target, "agents/writer"))).active.task_id == "six"


async def test_a_directory_that_a_bucket_was_copied_to_is_read_in_the_order_of_its_files(tmp_path):
    for at, (task_id, metadata, archive) in zip(itertools.count(1_700_000_000), reversed(TASKS), strict=False):
        keep_file(tmp_path, task_id, packed(metadata), archive, at=at)
    target = MemoryStore()
    report = await run(OldLayout(DirectoryFiles(tmp_path), "file:old"), target)
    assert (report.moved, report.problems) == (8, [])
    assert (await record_of(target)).last_completed.task_id == "one"
    assert (await states(target))["five"] == WAITS
    task = (await TaskRecords(target).find("one")).task
    assert task.status.timestamp.ToMilliseconds() == 1_700_000_007_000
