"""Two releases over one bucket: what an earlier one wrote is read, what a later one wrote is refused and left alone."""

import json

import httpx
import pytest
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import ListTasksRequest

from a2a_gcs.claims import End
from a2a_gcs.errors import CorruptRecord
from a2a_gcs.host.app import create_app
from a2a_gcs.host.settings import Settings
from a2a_gcs.layout import context_key, journal_key, key_pattern, parse_task, pointer_key, task_key, workspace_key
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.pointers import PointerMeta
from a2a_gcs.records import SCHEMA
from a2a_gcs.relocation import Relocation
from a2a_gcs.tasks.files import TaskFiles
from a2a_gcs.tasks.notices import Notices
from a2a_gcs.tasks.push_configs import PushConfigs
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.hosts import COMPLETED, FAILED, INPUT_REQUIRED, WORKING, Bucket, message
from tests.support.record_fixtures import DONE, FILES, HEARTBEAT, LARGE, RECEIVER, RUNS, V1, WAITS, fill, load

TASKS = (DONE, WAITS, RUNS)


def later(wanted, schema=SCHEMA + 1):
    """Makes the record of this key one of a later schema."""

    task = parse_task(wanted)
    pointer = pointer_key(task.task_id) if task else None

    def change(key, body, metadata):
        if key not in {wanted, pointer}:
            return body, metadata
        if task:
            return body, {**metadata, "schema": str(schema)}
        return json.dumps({**json.loads(body), "schema": schema}).encode(), metadata

    return change


def unknown(key, body, metadata):
    """Adds to every record what a later release may say in addition."""
    if not body.startswith(b"{"):
        return body, metadata
    more = {**metadata, "later-note": "kept"} if key.endswith("task.json") else metadata
    return json.dumps({**json.loads(body), "laterNote": {"deep": [1]}}).encode(), more


async def versions(bucket):
    return {info.key: info.version for info in (await bucket.store.list("")).objects}


# ---------------------------------------------------------------------- what schema 1 has written


@pytest.mark.parametrize("change", [lambda _key, body, metadata: (body, metadata), unknown])
async def test_every_record_is_read(change, tmp_path):
    """Tasks, journal, heartbeat, ledger and archive of schema 1, also with additions of a later release."""
    bucket = await load(change=change)
    host = await bucket.host("new")
    states = [(await host.tasks.read(ref.task_id)).task.status.state for ref in TASKS]
    assert states == [COMPLETED, INPUT_REQUIRED, WORKING]
    running = await host.tasks.read(RUNS.task_id)
    assert [a.artifact_id for a in running.task.artifacts] == ["late"]  # from the journal
    claim = await host.ledger.claim(DONE._replace(task_id="next"), message())
    assert claim.base_ref == DONE
    snapshots = Snapshots(bucket.store)
    await snapshots.restore(workspace_key(DONE), claim.base, tmp_path)
    assert {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()} == FILES
    answered = await host.answer(WAITS.task_id)
    await host.end(answered)
    assert (await host.record(WAITS.task_id)).terminal


async def test_content_beside_a_task_is_read():
    """By the relative URL that task.json has in its place."""
    bucket = await load()
    host = await bucket.host("new")
    _, large = (await host.record(DONE.task_id)).task.artifacts
    assert await TaskFiles(bucket.store).read(DONE, large.parts[0]) == LARGE.encode()


async def test_a_listing_goes_by_what_pointers_say():
    """Those of ended tasks say all that a listing needs."""
    bucket = await load()
    host = await bucket.host("new")
    listed = await host.tasks.list(ListTasksRequest(), ServerCallContext())
    assert {task.id for task in listed.tasks} == {ref.task_id for ref in TASKS}
    assert PointerMeta.from_metadata((await bucket.store.head(pointer_key(DONE.task_id))).metadata).final


async def test_what_push_needs_is_read():
    """Where the news of a task go, what is owed, and the mark by which hosts find it."""
    bucket = await load()
    host = await bucket.host("new")
    configs = PushConfigs(bucket.store, host.records, bucket.store, root="", table=host.table)
    (config,) = await configs.all(WAITS)
    assert (config.url, config.token, config.deliverer) == (RECEIVER, "secret", "")
    assert await configs.find_mark(WAITS) is not None
    notices = Notices(bucket.store, host.records)
    first = await notices.after(WAITS, config.delivered)
    second = await notices.after(WAITS, first.number)
    assert [n.status.state for n in (first, second)] == [INPUT_REQUIRED, INPUT_REQUIRED]
    assert await notices.kept(WAITS) == [first.number]


async def test_what_a_dead_host_of_an_earlier_release_left_is_settled():
    """Its claim is judged by its own heartbeat."""
    bucket = await load()
    host = await bucket.host("new")
    bucket.clock.now += 60
    settled = await host.tasks.read(RUNS.task_id)
    assert settled.task.status.state == FAILED
    assert [a.artifact_id for a in settled.task.artifacts] == ["late"]


async def test_additions_survive_what_this_release_writes():
    """In the ledger record, in task.json and in its metadata: the later release finds again what it said."""
    bucket = await load(change=unknown)
    host = await bucket.host("new")
    await host.end(await host.answer(WAITS.task_id))
    await host.run(WAITS.context_id)
    task = await bucket.store.get(task_key(WAITS), with_metadata=True)
    assert json.loads(task.body)["laterNote"] == {"deep": [1]}
    assert task.info.metadata["later-note"] == "kept"
    record = await bucket.store.get(context_key(WAITS.context_id))
    assert json.loads(record.body)["laterNote"] == {"deep": [1]}
    assert json.loads(record.body)["active"]["taskId"] != WAITS.task_id


async def test_there_is_a_fixture_of_every_kind_that_is_written():
    """A new kind of record, or of metadata, needs one: of this schema, or with a note that earlier hosts do without."""
    bucket = Bucket()
    await fill(bucket)
    now = {key_pattern(info.key): info.metadata for info in (await bucket.store.list("")).objects}
    about = json.loads((V1 / "objects.json").read_text())
    assert set(now) <= {key_pattern(key) for key in about}


# ---------------------------------------------------------------------- what a later schema says


@pytest.mark.parametrize("key", [task_key(ref) for ref in TASKS] + [journal_key(RUNS, 1, 1)])
async def test_a_task_of_a_later_schema_is_refused_in_every_way_and_left_alone(key):
    """Reading, answering, canceling, and starting another task beside it; a listing goes on without it."""
    bucket = await load(change=later(key))
    host = await bucket.host("old")
    ref = next(ref for ref in TASKS if ref.task_id in key)
    before = await versions(bucket)
    calls = [lambda: host.tasks.read(ref.task_id)]
    if key.endswith("task.json"):
        calls += [lambda: host.answer(ref.task_id), lambda: host.tasks.cancel(ref.task_id)]
        calls += [lambda: host.claim(ref.context_id)]
    for call in calls:
        with pytest.raises(CorruptRecord, match="later release") as refused:
            await call()
        assert refused.value.newer
    del before["hosts/old.json"]
    after = await versions(bucket)
    assert {k: v for k, v in after.items() if k in before} == before
    assert [k for k in after if k not in before] == ["hosts/old.json"]


@pytest.mark.parametrize("key", [task_key(RUNS), journal_key(RUNS, 1, 1)])
async def test_the_dead_host_of_a_task_of_a_later_schema_is_not_settled(key):
    """Whoever can read it will; neither by the sweep nor by a claim, which does not say "repair or delete" either."""
    bucket = await load(change=later(key))
    host = await bucket.host("old")
    bucket.clock.now += 60
    before = await versions(bucket)
    with pytest.raises(CorruptRecord):
        await host.settler.bury(RUNS, "host-1/3")
    with pytest.raises(CorruptRecord) as refused:
        await host.claim(RUNS.context_id)
    assert refused.value.newer
    assert await versions(bucket) == before


async def test_a_context_of_a_later_schema_takes_no_claim():
    """The ledger record is not written over; its tasks are read all the same."""
    bucket = await load(change=later(context_key(DONE.context_id)))
    host = await bucket.host("old")
    before = await versions(bucket)
    with pytest.raises(CorruptRecord) as refused:
        await host.claim(DONE.context_id)
    assert refused.value.newer
    assert await versions(bucket) == before
    assert (await host.tasks.read(DONE.task_id)).task.status.state == COMPLETED


async def test_a_root_with_a_context_of_a_later_schema_is_not_moved():
    """Its pin could not be mapped to the copy; nothing is deleted."""
    bucket = await load(change=later(context_key(DONE.context_id)))
    before = await versions(bucket)
    relocation = Relocation(bucket.store, "", "users/alice")
    with pytest.raises(CorruptRecord, match="later release"):
        await relocation.copy(await relocation.plan())
    assert before.items() <= (await versions(bucket)).items()


async def test_a_heartbeat_of_a_later_schema_counts_as_alive_while_it_is_fresh():
    """A host of the next release is not taken for dead by one that cannot read its list."""
    bucket = await load(change=later(HEARTBEAT))
    host = await bucket.host("old")
    assert (await host.tasks.read(RUNS.task_id)).task.status.state == WORKING
    bucket.clock.now += 60
    assert (await host.tasks.read(RUNS.task_id)).task.status.state == FAILED


async def test_a_record_of_another_shape_is_newer_and_not_damaged():
    """What cannot be parsed because its schema is a later one says so."""
    body = json.dumps({"schema": SCHEMA + 1, "who": "else"}).encode()

    def change(key, old, metadata):
        return (body if key == context_key(DONE.context_id) else old), metadata

    bucket = await load(change=change)
    host = await bucket.host("old")
    with pytest.raises(CorruptRecord, match=f"schema {SCHEMA + 1}"):
        await host.claim(DONE.context_id)


async def test_a_turn_that_a_later_release_has_taken_over_ends_here():
    """The watch sees metadata that it cannot read: this process did not write that."""
    bucket = Bucket()
    host = await bucket.host("old")
    claim = await host.start("c")
    stored = await bucket.store.get(task_key(claim.ref), with_metadata=True)
    metadata = {**stored.info.metadata, "schema": str(SCHEMA + 1)}
    await bucket.store.put(task_key(claim.ref), stored.body, OVERWRITE, metadata=metadata)
    assert not await host.tasks.still_ours(claim)
    assert claim.end is End.FENCED
    await host.tasks.aclose()


async def test_a_client_is_told_that_the_host_is_too_old(tmp_path):
    """Neither "not found" nor "repair the object": the reason is NEWER_SCHEMA, for reading and for sending."""
    bucket = await load(change=later(task_key(DONE)))
    app = create_app(Settings(work_dir=tmp_path), store=bucket.store)
    said = {"messageId": "m-9", "contextId": DONE.context_id, "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client,
    ):
        for method, params in (("GetTask", {"id": DONE.task_id}), ("SendMessage", {"message": said})):
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            error = (await client.post("/", json=body, headers={"A2A-Version": "1.0"})).json()["error"]
            assert error["code"] == -32603
            assert "NEWER_SCHEMA" in json.dumps(error)
        body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        listed = (await client.post("/", json=body, headers={"A2A-Version": "1.0"})).json()["result"]["tasks"]
        assert {task["id"] for task in listed} == {WAITS.task_id, RUNS.task_id}
