"""A turn and its files, under the SDK's handler: restore, run, snapshot, then tell; and how runs are stopped."""

import asyncio
import contextlib
import shutil

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueueLegacy
from a2a.utils.errors import InternalError, TaskNotCancelableError, UnsupportedOperationError

from a2a_gcs.errors import PermissionDenied, Unavailable
from a2a_gcs.executors.workspace import workspace
from a2a_gcs.layout import workspace_key
from a2a_gcs.ledger.errors import Fenced
from a2a_gcs.objectstore.port import OVERWRITE
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
)
from tests.support.turn_host import emits, journals, makes, parked_or_ended, said, says
from tests.support.waiting import until

# ---------------------------------------------------------------- workspaces


async def test_a_task_starts_where_the_last_completed_one_ended(start):
    """Completed tasks add up, on any host; failed ones leave no trace."""
    a, b = await start(journals()), await start(journals(), "b")
    texts = [said(await host.send(text)) for host, text in [(a, "1"), (b, "2"), (a, "fail 3"), (b, "4")]]
    assert texts == ["1;", "1;2;", "1;2;fail 3;", "1;2;4;"]


async def test_an_answered_task_resumes_its_own_files(start):
    """Turn after turn, wherever it is answered, and by its id alone."""
    a, b = await start(journals()), await start(journals(), "b")
    await a.send("1")
    asked = await a.send("ask 2")
    again = await b.send("ask 3", task_id=asked.id)
    done = await a.send("4", task_id=asked.id)
    assert [said(task) for task in (asked, again, done)] == ["1;ask 2;", "1;ask 2;ask 3;", "1;ask 2;ask 3;4;"]
    assert (done.id, done.context_id, done.status.state) == (asked.id, "ctx", COMPLETED)


def _remove_beside_the_host(directory):
    """All of it, although the host may remove the place of an ended turn at the same time."""
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("warm_bytes", [0, 1 << 20])
async def test_a_cleaner_takes_the_work_directory_away(start, tmp_path, warm_bytes):
    """The turn that works in it fails and says so; those before are in the bucket, and those after are as ever."""
    host = await start(journals(), warm_bytes=warm_bytes)
    await host.send("1")
    _remove_beside_the_host(tmp_path / "a")
    assert said(await host.send("2")) == "1;2;"

    async def loses(context, queue):
        _remove_beside_the_host(tmp_path / "a")
        await queue.enqueue_event(says(COMPLETED))

    host.agent.script = loses
    lost = await host.send("3")
    assert lost.status.state == FAILED
    assert "is gone: removed or renamed" in said(lost)
    host.agent.script = journals()
    assert said(await host.send("4")) == "1;2;4;"


@pytest.mark.parametrize("text", ["1", "ask 1", "fail 1"])
async def test_the_workspace_is_stored_before_anybody_is_told(start, bucket, text):
    """While the archive is on its way nobody sees an end of the task; then the state comes with its pin (I4)."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        gate = store.hold("put_stream", "*/workspace.tar.gz")
        sending = asyncio.create_task(host.send(text))
        await gate.reached.wait()
        [claim] = host.table
        seen = await host.tasks.read(claim.ref.task_id)
        assert seen is None or seen.task.status.state == WORKING
        assert not sending.done()
        gate.release()
        task = await sending
        stored = await host.record(task.id)
        archive = await bucket.store.head(workspace_key(stored.ref))
        assert (stored.meta.pin.generation, stored.meta.pin.crc32c) == (archive.version, archive.crc32c)


@pytest.mark.parametrize("text", ["1", "ask 1"])
@pytest.mark.parametrize("error", [Unavailable, PermissionDenied])
async def test_a_snapshot_that_cannot_be_saved_fails_the_task(start, bucket, text, error):
    """A task whose files are lost has not completed, and cannot be continued: it fails and says so."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        store.fail("put_stream", times=4 if error is Unavailable else 1, error=error)
        task = await host.send(text)
        assert task.status.state == FAILED
        assert said(task).startswith("The workspace could not be saved")
        assert said(await host.send("2")) == "2;"


async def test_a_failed_task_without_a_snapshot_keeps_its_reason(start, bucket):
    """What the agent said of its failure is worth more than that its files are gone."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        store.fail("put_stream", error=PermissionDenied)
        assert said(await host.send("fail 1")) == "fail 1;"


@pytest.mark.parametrize("damage", ["gone", "replaced"])
async def test_a_restore_that_fails_says_so(start, bucket, damage):
    """The agent does not run on files that are not there; the task fails, nothing is overwritten, so does the next."""
    host = await start(journals())
    first = await host.send("1")
    key = workspace_key((await host.record(first.id)).ref)
    if damage == "gone":
        await bucket.store.delete(key)
    else:
        await bucket.store.put(key, b"something else", OVERWRITE)
    for _ in range(2):
        task = await host.send("2")
        assert task.status.state == FAILED
        assert f"The workspace of task {first.id} could not be restored" in said(task)
    assert host.agent.runs == 1


async def test_a_foreign_archive_is_not_overwritten(start, bucket):
    """Somebody else has written the task's archive: this host is fenced, and its end is not stored (rule wscas)."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)

        async def rival(key):
            await bucket.store.put(key, b"theirs", OVERWRITE)

        store.act("put_stream", "*/workspace.tar.gz", rival)
        with contextlib.suppress(InternalError):
            await asyncio.wait_for(host.send("1", at_once=True), 5)
        await host.agent.left.wait()
        await until(lambda: len(host.table) == 0)
        [key] = [key for key in await bucket.keys() if key.endswith(".tar.gz")]
        assert (await bucket.store.get(key)).body == b"theirs"
        [record] = [key for key in await bucket.keys() if key.endswith("task.json")]
        assert b"TASK_STATE_COMPLETED" not in (await bucket.store.get(record)).body


# ---------------------------------------------------------------- slow stores


async def test_a_continued_turn_is_not_parked_by_its_backlog(start, bucket):
    """Artifacts that are saved after the workspace was stored, while the state is still that of the turn before, end
    nothing: the agent's COMPLETED does."""
    turns = iter([[says(INPUT_REQUIRED, "more?")], [*(makes(f"x{i}") for i in range(5)), says(COMPLETED, "done")]])

    async def script(context, queue):
        for event in next(turns):
            await queue.enqueue_event(event)

    async with FaultyStore(bucket.store) as store:
        host = await start(script, store=store)
        asked = await host.send()
        save = store.hold("put", "*.events.json")
        done = asyncio.create_task(host.send(task_id=asked.id))
        await save.reached.wait()
        save.release()
        task = await done
        assert (task.status.state, said(task)) == (COMPLETED, "done")
        assert [x.artifact_id for x in task.artifacts] == [f"x{i}" for i in range(5)]


async def test_what_follows_auth_required_is_kept(start):
    """AUTH_REQUIRED passes at once; artifacts after it, and the parking at the end, come in order."""
    host = await start(emits(says(AUTH_REQUIRED, "log in"), makes("after")))
    answer = await host.send()
    assert answer.status.state == AUTH_REQUIRED
    await parked_or_ended(host, answer.id)
    stored = await host.record(answer.id)
    assert stored.parked
    assert [x.artifact_id for x in stored.task.artifacts] == ["after"]
    assert stored.meta.pin is not None


# ---------------------------------------------------------------- stopping


def waits(*, deaf=False):
    """An agent that says nothing and works on until it is stopped; a deaf one does not hear the first request."""

    async def script(context, queue):
        (workspace(context) / "begun").touch()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not deaf:
                    raise
                await queue.enqueue_event(makes("late"))
                await queue.enqueue_event(says(COMPLETED, "late"))
                return

    return script


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_cancel_stops_a_silent_agent(start, bucket, deaf):
    """Canceled is what is answered and stored; the agent is asked, then cancelled, and not heard any more."""
    host = await start(waits(deaf=deaf))
    task = await host.send(at_once=True)
    await until(lambda: host.agent.runs)
    assert (await host.cancel(task.id)).status.state == CANCELED
    await host.agent.left.wait()
    assert host.agent.stopped.is_set()
    stored = await host.record(task.id)
    assert (stored.task.status.state, list(stored.task.artifacts)) == (CANCELED, [])
    with pytest.raises(TaskNotCancelableError):
        await host.cancel(task.id)
    with pytest.raises(UnsupportedOperationError):
        await host.send(task_id=task.id)


async def test_a_canceled_task_is_never_resumed_from(start):
    """Its files are kept for inspection; the next task does not see them."""
    first = asyncio.Event()

    async def script(context, queue):
        listing = sorted(path.name for path in workspace(context).iterdir())
        if not first.is_set():
            first.set()
            (workspace(context) / "trace").touch()
            await asyncio.Event().wait()
        await queue.enqueue_event(says(COMPLETED, repr(listing)))

    host = await start(script)
    task = await host.send(at_once=True)
    await first.wait()
    await host.cancel(task.id)
    assert said(await host.send()) == "[]"


@pytest.mark.parametrize("how", ["canceled elsewhere", "settled elsewhere", "lapsed"])
async def test_a_run_that_is_fenced_stops(start, bucket, how):
    """Whoever has lost the turn stops its agent, stores nothing more, and tells its client what is stored."""
    host, other = await start(waits()), await bucket.host("b")
    sending = asyncio.create_task(host.send())
    await until(lambda: host.agent.runs)
    [claim] = host.table
    await until(lambda: claim.record.version)
    if how == "lapsed":
        host.table.disown()
        host.table.lapse()
        await host.die()
    elif how == "settled elsewhere":
        await host.die()
        await other.tasks.read(claim.ref.task_id)
        await host.tasks.still_ours(claim)
    else:
        await other.tasks.cancel(claim.ref.task_id)
        await host.tasks.still_ours(claim)
    await host.agent.left.wait()
    assert host.agent.stopped.is_set()
    task = await sending
    assert task.status.state == (CANCELED if how.startswith("canceled") else FAILED)
    assert (await other.tasks.read(claim.ref.task_id)).task.status.state == task.status.state


async def test_a_claim_lost_during_the_restore_starts_no_agent(start, bucket):
    """The agent of a task that was canceled before it began does not run at all."""
    async with FaultyStore(bucket.store) as store:
        host = await start(journals(), store=store)
        await host.send("1")
        gate = store.hold("stream", "*/workspace.tar.gz")
        task = await host.send("2", at_once=True)
        await gate.reached.wait()
        await host.cancel(task.id)
        gate.release()
        assert said(await host.send("3")) == "1;3;"
        assert host.agent.runs == 2


async def test_an_execution_without_a_claim_is_refused(start):
    """A claim that was lost between its making and its start runs nothing, and is no crash."""
    host = await start(journals())
    context = RequestContext(ServerCallContext(), host.request(), "t", "ctx")
    with pytest.raises(Fenced) as caught:
        await host.executor.execute(context, EventQueueLegacy())
    assert caught.value.ref == ("ctx", "t")
    assert host.agent.runs == 0


async def test_a_claim_is_executed_once(start):
    """A second execution of the same turn is refused."""
    host = await start(journals())
    claim = await host.claim(task_id="t")
    claim.start()
    context = RequestContext(ServerCallContext(), host.request(), "t", "ctx")
    with pytest.raises(Fenced):
        await host.executor.execute(context, EventQueueLegacy())
