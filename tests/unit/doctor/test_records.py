"""Faults of what is stored, each planted alone: exactly the check for it fires, and --fix mends what it promises."""

import asyncio
import json

import pytest

from a2a_gcs.doctor.checks import examine
from a2a_gcs.doctor.inventory import TooMuch, take_inventory
from a2a_gcs.doctor.patient import Patient
from a2a_gcs.doctor.records import RECORDS
from a2a_gcs.doctor.surroundings import Surroundings
from a2a_gcs.errors import NotFound
from a2a_gcs.layout import TaskRef, context_key, heartbeat_key, pointer_key, task_key, workspace_key
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import MIGRATING, Pin
from a2a_gcs.root_shapes import Hosting
from tests.support.doctor import ONE_AGENT, examined, found, only
from tests.support.hosts import FAILED, message

DONE, RUNNING = TaskRef("done", "done-1"), TaskRef("running", "running-1")


async def reput(bucket, key, body=None, **metadata):
    """Writes an object again, with another body, or with some of its metadata changed."""
    blob = await bucket.store.get(key, with_metadata=True)
    changed = {**blob.info.metadata, **metadata}
    await bucket.store.put(key, blob.body if body is None else body, OVERWRITE, metadata=changed)


async def test_nothing_is_wrong_with_a_good_store(bucket):
    """No finding, though one task runs, one waits, and one has a workspace; nothing is changed."""
    before = {key: (await bucket.store.head(key)).version for key in await bucket.keys()}
    results = await examined(bucket.store, fix=True)
    assert found(results) == set()
    assert {key: (await bucket.store.head(key)).version for key in await bucket.keys()} == before


async def test_data_under_another_root(bucket):
    """As hosts with authentication would not see it, with the command that moves it."""
    results = await examined(bucket.store, hosting=Hosting(several_agents=False, authenticated=True))
    assert "migrate --to-root users/<owner>" in only(results, "other-root").fix


@pytest.mark.parametrize("key", [task_key(DONE), context_key("done")])
async def test_a_record_that_cannot_be_parsed(bucket, key):
    """Named, with its key; it is left alone, and so is a pointer that only it could explain."""
    await reput(bucket, key, b"{")
    if key == context_key("done"):
        await bucket.store.put(pointer_key("stray"), b"done", OVERWRITE)
        await bucket.store.delete(heartbeat_key("h"))
        await bucket.living.end(bucket.living.table.get("running-1"))
    finding = only(await examined(bucket.store, fix=True), "unreadable-record")
    assert key in finding.found
    assert (await bucket.store.get(key)).body == b"{"
    assert key == task_key(DONE) or await bucket.store.head(pointer_key("stray"))


async def test_a_migration_that_broke_off(bucket):
    """Its guard is no damaged record; nobody should repair or delete it."""
    await bucket.store.put(
        context_key("half"), b'{"schema": 1, "migrating": "x"}', OVERWRITE, metadata={MIGRATING: "1"}
    )
    assert "migrate --from" in only(await examined(bucket.store, fix=True), "unfinished-migration").fix


async def test_a_pointer_whose_claim_died_is_ended_as_failed(bucket):
    """A host that died between its claim and its first save: --fix leaves what a host would."""
    dead = await bucket.host("dead")
    claim = await dead.claim("lost")
    await dead.die()
    assert claim.ref.task_id in only(await examined(bucket.store), "pointer-without-task").found
    results = await examined(bucket.store, fix=True)
    assert "is stored as TASK_STATE_FAILED" in results["pointer-without-task"].repaired[0]
    assert found(await examined(bucket.store)) == set()


async def test_a_pointer_that_nobody_claims_is_removed_once_no_host_could(bucket):
    """Beside a living host its claim may be on its way, so it is none then."""
    await bucket.store.put(pointer_key("stray"), b"nowhere", OVERWRITE)
    assert found(await examined(bucket.store)) == set()
    await bucket.living.die()
    results = await examined(bucket.store, fix=True)
    assert results["pointer-without-task"].repaired == ["removed the pointer of task stray"]
    with pytest.raises(NotFound):
        await bucket.store.head(pointer_key("stray"))


async def test_a_pointer_of_a_claim_that_lives_is_none(bucket):
    """A task that is about to be stored."""
    await bucket.living.claim("starting")
    await bucket.living.beat()
    assert found(await examined(bucket.store)) == set()


async def test_a_task_without_a_pointer(bucket):
    """Found, and found by its id again after --fix."""
    await bucket.store.delete(pointer_key("done-1"))
    assert task_key(DONE) in only(await examined(bucket.store, fix=True), "task-without-pointer").found
    assert found(await examined(bucket.store)) == set()
    assert (await (await bucket.host("other")).record("done-1")).ref == DONE


@pytest.mark.parametrize(("context", "task"), [("done", "done-1"), ("waiting", "waiting-1")])
async def test_a_context_without_its_record(bucket, context, task):
    """After --fix the next task starts from the workspace that completed last, and what is open blocks it again."""
    lost = (await bucket.store.get(context_key(context))).body
    await bucket.store.delete(context_key(context))
    only(await examined(bucket.store, fix=True), "context-without-record")
    assert found(await examined(bucket.store)) == set()
    host = await bucket.host("other")
    if context == "waiting":
        with pytest.raises(Exception, match=f"task {task} of context waiting waits for an answer"):
            await host.claim(context)
    else:
        assert (await host.claim(context)).base.generation == (await bucket.store.head(workspace_key(DONE))).version
    assert json.loads(lost)["contextId"] == (await bucket.context(context)).context_id


@pytest.mark.parametrize("how", ["gone", "replaced"])
async def test_a_workspace_that_does_not_match_its_pin(bucket, how):
    """An archive that somebody has removed, or written again."""
    if how == "gone":
        await bucket.store.delete(workspace_key(DONE))
    else:
        await bucket.store.put(workspace_key(DONE), b"something else", OVERWRITE)
    finding = only(await examined(bucket.store), "workspace-pin")
    assert (workspace_key(DONE) in finding.found, "A2A_GCS_ON_LOST_WORKSPACE" in finding.fix) == (True, True)


@pytest.mark.parametrize("how", ["goes on", "is canceled"])
async def test_an_archive_may_be_ahead_of_a_task_that(bucket, how):
    """A checkpoint of its next turn, or what a canceled task has left for inspection, is no fault."""
    host, where = bucket.living, TaskRef("ahead", "ahead-1")
    saved = await bucket.store.put(workspace_key(where), b"first", OVERWRITE)
    pin = Pin(generation=saved.version, crc32c=saved.crc32c)
    await host.park(await host.start("ahead", task_id="ahead-1"), pin=pin)
    if how == "goes on":
        await host.answer("ahead-1")
    else:
        await host.tasks.cancel("ahead-1")
    await host.beat()
    await bucket.store.put(workspace_key(where), b"second", OVERWRITE)
    assert found(await examined(bucket.store)) == set()
    assert (await host.record("ahead-1")).meta.pin == pin


async def test_a_running_task_of_a_dead_host(bucket):
    """Named, and ended as failed by --fix."""
    await bucket.living.die()
    assert "task running-1 of context running" in only(await examined(bucket.store, fix=True), "dead-host").found
    assert found(await examined(bucket.store)) == set()
    assert (await bucket.living.record("running-1")).task.status.state == FAILED


@pytest.mark.parametrize("key", [task_key(DONE), context_key("done"), heartbeat_key("h")])
async def test_a_newer_schema(bucket, key):
    """Of a task, a context or a heartbeat."""
    if key == task_key(DONE):
        await reput(bucket, key, schema="2")
    else:
        body = json.loads((await bucket.store.get(key)).body)
        await reput(bucket, key, json.dumps(body | {"schema": 2}).encode())
    assert key in only(await examined(bucket.store), "newer-schema").found


async def test_what_is_below_a_root_is_looked_at_too(bucket):
    """A fault below users/alice, with its whole key."""
    keys = await bucket.keys()
    for key in keys:
        blob = await bucket.store.get(key, with_metadata=True)
        await bucket.store.put(f"users/alice/{key}", blob.body, OVERWRITE, metadata=blob.info.metadata)
        await bucket.store.delete(key)
    await bucket.store.delete(f"users/alice/{pointer_key('waiting-1')}")
    results = await examined(bucket.store, hosting=Hosting(several_agents=False, authenticated=True), fix=True)
    assert "users/alice/contexts/waiting/waiting-1/task.json" in results["task-without-pointer"].findings[0].found
    assert (await bucket.store.head(f"users/alice/{pointer_key('waiting-1')}")).version


@pytest.mark.parametrize("first", ["pointers", "contexts"])
async def test_what_goes_while_all_is_listed_is_not_missing(bucket, first):
    """`gc` may remove a context between two pages of the listing; nothing of it is written again."""
    patient = Patient("memory", bucket.store, None, ONE_AGENT, Surroundings({}))
    getattr((await patient.inventory()).roots[""], first).pop("done-1" if first == "pointers" else "done")
    await bucket.living.index.drained()
    gone = (task_key(DONE), workspace_key(DONE), pointer_key("done-1"), context_key("done"))
    for key in gone:
        await bucket.store.delete(key)
    results = {result.check.id: result async for result in examine(patient, RECORDS, fix=True)}
    assert not results["task-without-pointer"].findings
    assert not results["context-without-record"].findings
    assert not set(gone) & set(await bucket.keys())


async def test_a_bucket_that_is_too_large_is_not_judged_by_half_of_it(bucket):
    """Nothing is found where only a part was listed: it would look as if the rest were missing."""
    patient = Patient("memory", bucket.store, None, ONE_AGENT, Surroundings({}))
    with pytest.raises(TooMuch, match="more than 5 objects"):
        await take_inventory(bucket.store, most=5)
    patient._seen["inventory"] = asyncio.ensure_future(take_inventory(bucket.store, most=5))
    results = [result async for result in examine(patient, RECORDS)]
    assert {result.not_checked and "too many" in result.not_checked for result in results[1:]} == {True}
    assert len((await take_inventory(bucket.store, most=100)).roots[""].tasks) == 3


async def test_many_faults_of_a_kind_are_counted(bucket):
    """The first ones in full, the others by their number; all are repaired."""
    host = await bucket.host("many")
    for n in range(15):
        await host.end(await host.start(f"c{n}", message(), task_id=f"t{n}"))
        await bucket.store.delete(pointer_key(f"t{n}"))
    result = (await examined(bucket.store, fix=True))["task-without-pointer"]
    assert (len(result.findings), result.more, len(result.repaired)) == (10, 5, 15)
