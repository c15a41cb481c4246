"""Workspaces in a host's turns: kept directories, checkpoints, starts that a message names, lost archives, limits."""

import asyncio
import contextlib

import pytest
from a2a.helpers import get_message_text
from a2a.server.context import ServerCallContext
from a2a.utils.errors import InvalidParamsError

from a2a_gcs.errors import PermissionDenied, Unavailable
from a2a_gcs.executors.workspace import workspace
from a2a_gcs.layout import TaskRef, workspace_key
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import START_FROM
from a2a_gcs.task_records import TaskRecords
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import COMPLETED, FAILED, INPUT_REQUIRED, Bucket
from tests.support.places import Place
from tests.support.turn_host import TurnHost, journals, said
from tests.support.untouched import untouched
from tests.support.waiting import until

KEPT = 1 << 20


@pytest.fixture
def bucket():
    return Bucket()


@pytest.fixture
async def start(bucket, tmp_path):
    """Starts hosts, and stops them after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(script, name="a", store=None, **options):
            host = TurnHost(store or bucket.store, name, script, tmp_path, **options)
            await host.beat()
            stack.push_async_callback(host.close)
            return host

        yield begin


async def archive_of(bucket, task_id):
    return await bucket.store.head(workspace_key(TaskRef("ctx", task_id)))


async def starting_from(host, named, text="go", **options):
    request = host.request(text, **options)
    request.message.metadata[START_FROM] = named
    return await host.handler.on_message_send(request, ServerCallContext())


def write(context):
    """What `journals` does first."""
    with (workspace(context) / "journal").open("a") as file:
        file.write(context.get_user_input() + ";")


# ---------------------------------------------------------------- kept directories


async def test_the_next_turn_on_the_same_host_downloads_nothing(start, bucket):
    """New task or answer: the directory of the turn before is there, and holds what its archive does."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store, warm_bytes=KEPT)
        await host.send("1")
        asked = await host.send("ask 2")
        assert said(await host.send("3", task_id=asked.id)) == "1;ask 2;3;"
        assert store.count("stream") == 0
        assert store.count("head", "*/workspace.tar.gz") == 2


@pytest.mark.parametrize("text", ["fail 2", "cancel"])
async def test_the_directory_of_a_turn_that_did_not_end_well_is_never_used(start, bucket, text):
    """What a failed or canceled task has left is in no later one's directory, on the same host either."""
    running = asyncio.Event()

    async def script(context, queue):
        if context.get_user_input() == "cancel":
            write(context)
            running.set()
            await asyncio.Event().wait()
        await journals()(context, queue)

    host = await start(script, warm_bytes=KEPT)
    await host.send("1")
    if text == "cancel":
        task = await host.send(text, at_once=True)
        await running.wait()
        await host.cancel(task.id)
    else:
        assert (await host.send(text)).status.state == FAILED
    assert said(await host.send("3")) == "1;3;"


async def test_a_directory_serves_only_the_state_that_counts(start):
    """Another host has gone on with the context: what this one has kept is not the newest any more."""
    a, b = await start(journals(), warm_bytes=KEPT), await start(journals(), "b", warm_bytes=KEPT)
    await a.send("1")
    await b.send("2")
    assert said(await a.send("3")) == "1;2;3;"
    assert said(await b.send("4")) == "1;2;3;4;"


# ---------------------------------------------------------------- checkpoints


def works(until_set):
    """Writes a file, works until told, then completes with what is there."""

    async def script(context, queue):
        write(context)
        await until_set.wait()
        await journals()(context, queue)

    return script


async def dying(start, bucket):
    """A host that comes to its first checkpoint, and no further."""
    store = FaultyStore(bucket.store)
    store.hold("compose", "*/workspace.tar.gz")
    return await start(works(asyncio.Event()), store=store, checkpoint_every=0.01)


async def saved_while_running(host, text="long"):
    task = await host.send(text, at_once=True)
    await until(lambda: host.table.get(task.id).workspace_generation)
    return task.id


async def test_a_running_task_is_saved_every_so_often(start, bucket):
    """Its archive is there while it runs, is replaced by the final one, and is not pinned before."""
    go_on = asyncio.Event()
    host = await start(works(go_on), checkpoint_every=0.01)
    task_id = await saved_while_running(host)
    assert (await archive_of(bucket, task_id)).version >= 1
    assert (await host.record(task_id)).meta.pin is None
    go_on.set()
    await until(lambda: not len(host.table))
    record = await host.record(task_id)
    assert record.task.status.state == COMPLETED
    assert record.meta.pin.generation == (await archive_of(bucket, task_id)).version
    assert said(await host.send("next")).startswith("long;long;")


async def test_nothing_starts_from_a_checkpoint_unless_a_message_asks(start, bucket):
    """The host dies: the task fails without a pin, the next starts from the last completed one, or as it asks."""
    host, other = await dying(start, bucket), await start(journals(), "b")
    await other.send("1")
    task_id = await saved_while_running(host, "2")
    await host.die()
    assert said(await other.send("3")) == "1;3;"
    record = await other.record(task_id)
    assert (record.task.status.state, record.meta.pin) == (FAILED, None)
    assert said(await starting_from(other, task_id, "4")) == "1;2;4;"
    assert said(await other.send("5")) == "1;2;4;5;"


async def test_a_crashed_task_is_settled_by_the_message_that_takes_it_up(start, bucket):
    """One message is enough: the dead host's task ends, and the new one starts from what it left."""
    host, other = await dying(start, bucket), await start(journals(), "b")
    task_id = await saved_while_running(host, "1")
    await host.die()
    assert said(await starting_from(other, task_id, "2")) == "1;2;"


async def test_a_checkpoint_whose_answer_is_lost_does_not_fence_its_own_host(start, bucket):
    """The final save finds an archive of a generation it does not know, which its own claim has written."""
    go_on = asyncio.Event()
    async with FaultyStore(bucket.store) as store:
        host = await start(works(go_on), store=store, checkpoint_every=0.01)
        store.fail("put_stream", when="after")
        store.fail("head", "*/workspace.tar.gz", error=PermissionDenied)
        task = await host.send("1", at_once=True)
        await until(lambda: store.count("head", "*/workspace.tar.gz"))
        go_on.set()
        await until(lambda: not len(host.table))
        assert (await host.record(task.id)).task.status.state == COMPLETED
        assert said(await host.send("2")).startswith("1;1;2;")


async def test_a_checkpoint_that_fails_is_no_failure_of_the_task(start, bucket):
    """The next one is tried, and the task ends as it would."""
    go_on = asyncio.Event()
    async with FaultyStore(bucket.store) as store:
        host = await start(works(go_on), store=store, checkpoint_every=0.01)
        store.fail("put_stream", times=2, error=PermissionDenied)
        task_id = await saved_while_running(host)
        go_on.set()
        await until(lambda: not len(host.table))
        assert (await host.record(task_id)).task.status.state == COMPLETED


async def test_a_final_save_that_fails_after_a_checkpoint_pins_what_is_there(start, bucket):
    """The answered task's archive was replaced by the checkpoint, so it is that one which the failure pins."""
    go_on = asyncio.Event()
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store, checkpoint_every=0.01)
        asked = await host.send("ask 1")
        before = (await host.record(asked.id)).meta.pin
        host.agent.script = works(go_on)
        answering = asyncio.create_task(host.send("2", task_id=asked.id))
        await until(lambda: (claim := host.table.get(asked.id)) and claim.workspace_generation > before.generation)
        store.fail("put_stream", times=1_000, error=PermissionDenied)
        store.fail("compose", times=1_000, error=PermissionDenied)
        go_on.set()
        assert (await answering).status.state == FAILED
        record = await host.record(asked.id)
        assert record.meta.pin.generation == (await archive_of(bucket, asked.id)).version > before.generation
        store._faults.clear()


# ---------------------------------------------------------------- a start that a message names


async def test_a_message_can_go_back(start):
    """It names a completed task of its context: the new one finds what that task left, and history goes on from it."""
    host = await start(journals())
    first = await host.send("1")
    await host.send("2")
    assert said(await starting_from(host, first.id, "3")) == "1;3;"
    assert said(await host.send("4")) == "1;3;4;"


async def test_a_message_can_take_up_what_a_failed_task_left(start):
    """By itself nothing starts from it; asked for, its files are there."""
    host = await start(journals())
    await host.send("1")
    failed = await host.send("fail 2")
    assert said(await host.send("3")) == "1;3;"
    assert said(await starting_from(host, failed.id, "4")) == "1;fail 2;4;"


async def test_a_failed_tasks_directory_is_not_used_for_that(start, bucket):
    """What it left comes from the bucket, also on the host that ran it."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store, warm_bytes=KEPT)
        failed = await host.send("fail 1")
        assert said(await starting_from(host, failed.id, "2")) == "fail 1;2;"
        assert store.count("stream") == 1


@pytest.mark.parametrize("named", ["unknown", "another context's", "never saved", "with a control\ncharacter", ""])
async def test_what_cannot_be_started_from_is_refused(start, bucket, named):
    """InvalidParams, and nothing is claimed: no new object, and the context is as free as before."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        await host.send("1")
        other = await host.send("1", context_id="other")
        store.fail("put_stream", error=PermissionDenied)
        unsaved = await host.send("fail 2")
        task_id = {"another context's": other.id, "never saved": unsaved.id}.get(named, named)
        place = Place("memory", opened=bucket.store)
        async with untouched(place):
            with pytest.raises(InvalidParamsError):
                await starting_from(host, task_id)
        assert said(await host.send("3")) == "1;3;"


async def test_an_answer_names_no_start(start):
    """A task that goes on has its own files: a message to it that names others is refused, and it stays parked."""
    host = await start(journals())
    first = await host.send("1")
    asked = await host.send("ask 2")
    with pytest.raises(InvalidParamsError):
        await starting_from(host, first.id, "3", task_id=asked.id)
    assert (await host.record(asked.id)).task.status.state == INPUT_REQUIRED
    assert said(await host.send("4", task_id=asked.id)) == "1;ask 2;4;"


# ---------------------------------------------------------------- where turns work


@pytest.mark.parametrize("warm_bytes", [0, KEPT])
async def test_all_turns_of_a_context_work_at_one_path(start, bucket, warm_bytes):
    """Whatever became of the turn before: agents that file their sessions by directory find them again."""
    paths = []

    async def script(context, queue):
        paths.append(workspace(context))
        await journals()(context, queue)

    host = await start(script, warm_bytes=warm_bytes)
    for text in ("1", "fail 2", "ask 3"):
        last = await host.send(text)
    assert said(await host.send("4", task_id=last.id)) == "1;ask 3;4;"
    await host.send("5", context_id="other")
    assert len(set(paths[:4])) == 1
    assert paths[4] not in paths[:4]


@pytest.mark.parametrize("text", ["1", "fail 1", "ask 1"])
async def test_the_path_is_free_before_anybody_hears_of_the_end(start, bucket, text):
    """When the final state is stored the directory is elsewhere: a message that follows at once has the path."""
    found = []

    async with FaultyStore(bucket.store) as store:

        async def look(_):
            found.append(host.workdirs.occupy("", "ctx", "next").path)

        async def script(context, queue):
            await until(lambda: store.count("put", "*/task.json"), what="the task's beginning")
            store.act("put", "*/task.json", look)
            found.append(workspace(context))
            await journals()(context, queue)

        host = await start(script, store=store)
        await host.send(text)
    assert len(found) == 2
    assert found[0] == found[1]


async def test_no_turn_works_where_an_agent_did_not_stop(start, bucket):
    """It may go on writing to the path that it was given; later turns are elsewhere and see nothing of it."""
    paths, stuck = [], asyncio.Event()

    async def script(context, queue):
        paths.append(workspace(context))
        if context.get_user_input() == "stuck":
            while not stuck.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await stuck.wait()
            return
        await journals()(context, queue)

    host = await start(script, longest_run=0.1)
    try:
        await host.send("stuck")
        paths[0].mkdir(parents=True, exist_ok=True)
        (paths[0] / "late").touch()
        host.executor._longest_run = None
        assert said(await host.send("2")) == "2;"
        assert paths[1] != paths[0]
        assert not (paths[1] / "late").exists()
    finally:
        stuck.set()


# ---------------------------------------------------------------- lost archives


async def lose(bucket, task_id, how):
    key = workspace_key(TaskRef("ctx", task_id))
    if how == "gone":
        await bucket.store.delete(key)
    else:
        await bucket.store.put(key, b"something else", OVERWRITE)


@pytest.mark.parametrize("how", ["gone", "replaced"])
@pytest.mark.parametrize("warm_bytes", [0, KEPT])
async def test_a_setting_goes_on_with_the_last_one_that_verifies(start, bucket, how, warm_bytes):
    """Newest first; the task says whose workspace was lost, and whose it starts from."""
    host = await start(journals(), on_lost="previous", warm_bytes=warm_bytes)
    tasks = [await host.send(text) for text in "123"]
    await lose(bucket, tasks[2].id, how)
    await lose(bucket, tasks[1].id, how)
    task = await host.send("4")
    assert said(task) == "1;4;"
    [announced] = [get_message_text(m) for m in task.history if "could not be restored" in get_message_text(m)]
    assert f"task {tasks[2].id} " in announced
    assert f"task {tasks[0].id}," in announced
    _, meta = await TaskRecords(bucket.store).peek(TaskRef("ctx", task.id))
    assert meta.base.task_id == tasks[0].id


async def test_by_default_nothing_older_takes_its_place(start, bucket):
    """An earlier snapshot would verify; the task fails, and its agent does not run."""
    host = await start(journals())
    tasks = [await host.send(text) for text in "12"]
    await lose(bucket, tasks[1].id, "gone")
    after = await host.send("3")
    assert after.status.state == FAILED
    assert f"The workspace of task {tasks[1].id} could not be restored" in said(after)
    assert host.agent.runs == 2


async def test_where_none_verifies_the_task_fails(start, bucket):
    """It is never an empty one in its place."""
    host = await start(journals(), on_lost="previous")
    task = await host.send("1")
    await lose(bucket, task.id, "gone")
    after = await host.send("2")
    assert after.status.state == FAILED
    assert f"The workspace of task {task.id} could not be restored" in said(after)
    assert host.agent.runs == 1


async def test_a_store_that_fails_is_no_lost_archive(start, bucket):
    """The archive may be whole: the task fails, and nothing older takes its place."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store, on_lost="previous")
        for text in "12":
            await host.send(text)
        store.fail("head", "*/workspace.tar.gz", error=Unavailable)
        assert (await host.send("3")).status.state == FAILED
        assert said(await host.send("4")) == "1;2;4;"


# ---------------------------------------------------------------- limits


async def test_a_snapshot_that_takes_too_long_fails_the_task(start, bucket):
    """It says so, and by which setting; the context is free, and goes on from the last completed task."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store, longest_snapshot=1.5)
        await host.send("1")
        store.hold("put_stream", "*/workspace.tar.gz")
        task = await host.send("2")
        assert task.status.state == FAILED
        assert said(task) == "The workspace could not be saved within 1.5 s (max_snapshot_seconds)."
        assert said(await host.send("3")) == "1;3;"
