"""Collecting beside hosts: what is left afterwards, and races with whoever uses a context at that moment."""

import asyncio

import pytest

from a2a_gcs.claims import ClaimTable
from a2a_gcs.errors import NotFound, PermissionDenied
from a2a_gcs.layout import (
    TaskRef,
    context_key,
    heartbeat_key,
    journal_key,
    part_key,
    parts_prefix,
    pointer_key,
    task_key,
    workspace_key,
)
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.records import Pin
from a2a_gcs.retention.collector import Collector, Place
from a2a_gcs.retention.judgement import Rules
from a2a_gcs.retention.remover import Remover
from a2a_gcs.retention.roots import collect_heartbeats, roots
from a2a_gcs.retention.tally import Tally
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import CANCELED, COMPLETED, FAILED, INPUT_REQUIRED, WORKING, Bucket

DAY = 24 * 3600.0
RULES = Rules(runs=DAY, tasks=30 * DAY, failed=7 * DAY, contexts=90 * DAY)


@pytest.fixture
def bucket():
    return Bucket()


@pytest.fixture
async def host(bucket):
    return await bucket.host("h")


async def collect(bucket, store=None, rules=RULES, *, dry_run=False):
    store = store or bucket.store
    tally = Tally()
    place = Place(store, store, "", Liveness(store, ClaimTable("gc")))
    await Collector(place, rules, tally, dry_run=dry_run, step=lambda _: None).run()
    return tally


async def run(bucket, host, state=COMPLETED, context_id="ctx"):
    """A task with an archive, whose end is its own."""
    claim = await host.start(context_id)
    info = await bucket.store.put(workspace_key(claim.ref), claim.ref.task_id.encode(), IF_ABSENT)
    await host.end(claim, state, None if state == CANCELED else Pin(info.version, info.crc32c))
    await host.index.drained()
    return claim.ref


async def there(bucket, ref):
    """Which of a task's objects there are: pointer, record, archive."""
    found = await bucket.keys()
    return [key in found for key in (pointer_key(ref.task_id), task_key(ref), workspace_key(ref))]


ALL, NONE = [True] * 3, [False] * 3


async def test_old_tasks_go_and_the_last_workspace_stays(bucket, host):
    """By age and state; the context goes on as if nothing had happened."""
    done, failed, last = [await run(bucket, host, state) for state in (COMPLETED, FAILED, COMPLETED)]
    bucket.clock.now += 7 * DAY
    assert (await collect(bucket)).tasks == 1
    assert [await there(bucket, ref) for ref in (done, failed, last)] == [ALL, NONE, ALL]
    bucket.clock.now += 23 * DAY
    tally = await collect(bucket)
    assert (tally.tasks, tally.objects, tally.bytes > 0) == (1, 3, True)
    assert [await there(bucket, ref) for ref in (done, failed, last)] == [NONE, NONE, ALL]
    await host.beat()
    claim = await host.claim()
    assert claim.base_ref == last


async def test_the_last_completed_task_stays_behind_one_that_failed(bucket, host):
    """The record names both; the workspace that counts is the older one's."""
    done = await run(bucket, host)
    await run(bucket, host, FAILED)
    await run(bucket, host, FAILED)
    bucket.clock.now += 60 * DAY
    await collect(bucket)
    assert await there(bucket, done) == ALL
    await host.beat()
    assert (await host.claim()).base_ref == done


@pytest.mark.parametrize("what", ["waits", "runs"])
async def test_what_waits_or_runs_stays_for_ever(bucket, host, what):
    """And with it all of its context."""
    claim = await host.start()
    if what == "waits":
        await host.park(claim, INPUT_REQUIRED)
    await host.index.drained()
    before = await bucket.keys()
    bucket.clock.now += 1000 * DAY
    await host.beat()
    assert (await collect(bucket)).objects == 0
    assert await bucket.keys() == before


async def test_a_dry_run_counts_what_a_run_removes_and_changes_nothing(bucket, host):
    """The same numbers, before."""
    await run(bucket, host)
    await run(bucket, host, FAILED, "other")
    await bucket.store.put(pointer_key("lost"), b"ctx", IF_ABSENT, metadata={"context": "ctx"})
    bucket.clock.now += 100 * DAY
    before = {key: (await bucket.store.head(key)).version for key in await bucket.keys()}
    dry = await collect(bucket, dry_run=True)
    assert {key: (await bucket.store.head(key)).version for key in await bucket.keys()} == before
    assert await collect(bucket) == dry
    assert (dry.contexts, dry.tasks, dry.orphans) == (2, 2, 1)
    assert await bucket.keys() == []


async def test_contexts_that_are_collected_at_once_are_all_counted(bucket, host):
    """What one counts while another waits for the bucket is not lost."""
    for n in range(5):
        await run(bucket, host, FAILED, f"ctx-{n}")
        await run(bucket, host, COMPLETED, f"ctx-{n}")
        await bucket.store.put(pointer_key(f"lost-{n}"), b"", IF_ABSENT, metadata={"context": f"ctx-{n}"})
    bucket.clock.now += 8 * DAY
    tally = await collect(bucket)
    assert (tally.contexts, tally.tasks, tally.orphans) == (0, 5, 5)


async def test_what_crashes_left_goes(bucket, host, tmp_path):
    """A pointer whose claim was lost, an archive and batches without a task, batches of a task that ended."""
    ref, lost = await run(bucket, host), TaskRef("ctx", "lost")
    left = [pointer_key("lost"), workspace_key(lost), journal_key(lost, 1, 1), journal_key(ref, 1, 7)]
    for key in left:
        await bucket.store.put(key, b"ctx", IF_ABSENT)
    bucket.clock.now += DAY - 1
    assert (await collect(bucket)).objects == 0
    bucket.clock.now += 1
    tally = await collect(bucket)
    assert (tally.orphans, tally.batches, tally.objects) == (2, 2, 4)
    assert not set(left) & set(await bucket.keys())
    assert await there(bucket, ref) == ALL


async def test_parts_that_no_archive_was_composed_of_go(bucket, host, tmp_path):
    """Of a crashed upload, and of an archive that goes in the same run; the others are where they were."""
    snapshots = Snapshots(bucket.store, whole=0, smallest_part=2048, pause=0.0)
    (tmp_path / "tree").mkdir()
    named = []
    for text in (b"a", b"b"):
        for n in range(20):
            (tmp_path / "tree" / f"f{n}").write_bytes(text * 1000 * (n + 1))
        claim = await host.start()
        saved = await snapshots.save(tmp_path / "tree", workspace_key(claim.ref), replaces=0)
        await host.end(claim, COMPLETED, saved.pin)
        await host.index.drained()
        named.append((workspace_key(claim.ref), saved))
    key, saved = named[1]
    crashed = part_key(key, "0" * 64)
    await bucket.store.put(crashed, b"left", IF_ABSENT)
    bucket.clock.now += DAY
    before = {info.key for info in (await bucket.store.list(parts_prefix(key))).objects}
    assert (await collect(bucket)).parts == 1
    assert {info.key for info in (await bucket.store.list(parts_prefix(key))).objects} == before - {crashed}
    bucket.clock.now += 30 * DAY
    assert (await collect(bucket)).parts == len(named[0][1].baseline.known - saved.baseline.known) > 0
    kept = {info.key for info in (await bucket.store.list(parts_prefix(key))).objects}
    assert kept == {part_key(key, name) for name in saved.baseline.known}
    (tmp_path / "out").mkdir()
    async with FaultyStore(bucket.store) as watched:
        await Snapshots(watched).restore(key, saved.pin, tmp_path / "out")
        assert watched.count("stream") == 0
    await snapshots.close()


async def test_an_idle_context_goes_with_everything(bucket, host):
    """And can be used again, as one that never was."""
    await run(bucket, host)
    bucket.clock.now += 90 * DAY
    assert (await collect(bucket)).contexts == 1
    assert await bucket.keys() == []
    await host.beat()
    claim = await host.start()
    assert (claim.base, claim.ledger.value.epoch) == (None, 1)


async def test_an_agent_that_answers_with_messages_leaves_contexts_that_go(bucket, host):
    """No task, but a record."""
    claim = await host.claim()
    await host.ledger.release(claim)
    bucket.clock.now += 90 * DAY
    assert (await collect(bucket)).contexts == 1
    assert await bucket.keys() == []


async def test_a_claim_of_a_dead_host_keeps_no_context_for_ever(bucket, host):
    """Its task was never begun: only while its host lives it may be."""
    await host.claim()
    bucket.clock.now += 90 * DAY
    await host.beat()
    assert (await collect(bucket)).contexts == 0
    await host.die()
    assert (await collect(bucket)).contexts == 1


# ---------------------------------------------------------------- races


async def claimed(host):
    """What a host does that is asked to work in the context."""
    await host.beat()
    return await host.start()


async def test_a_claim_before_the_mark_wins(bucket, host):
    """The context was judged as idle: nothing of it is touched, and the task starts from its workspace."""
    last = await run(bucket, host)
    bucket.clock.now += 90 * DAY
    made = []
    async with FaultyStore(bucket.store) as store:

        async def claim(_):
            made.append(await claimed(host))

        store.act("put", context_key("ctx"), claim)
        tally = await collect(bucket, store)
    assert (tally.objects, tally.changed) == (0, 1)
    assert made[0].base_ref == last
    assert await there(bucket, last) == ALL
    await host.end(made[0])


@pytest.mark.parametrize("moment", ["tasks/*", "*/task.json", "*/workspace.tar.gz", "*/context.json"])
async def test_a_claim_after_the_mark_begins_anew(bucket, host, moment):
    """The old tasks go, the new one and its record stay, whatever was gone already; the context goes on from it."""
    old = await run(bucket, host)
    bucket.clock.now += 90 * DAY
    made = []
    async with FaultyStore(bucket.store) as store:

        async def claim(_):
            made.append(await claimed(host))

        store.act("delete", moment, claim)
        tally = await collect(bucket, store)
    assert (tally.contexts, tally.tasks, tally.changed) == (0, 1, 1)
    assert made[0].base is None
    assert await there(bucket, old) == NONE
    await host.end(made[0], pin=Pin(1, "x"))
    assert (await host.claim()).base_ref == made[0].ref


async def test_a_claim_between_listing_and_record_keeps_everything(bucket, host):
    """Also one that has ended by then: what it left is newer than what was judged."""
    last = await run(bucket, host)
    bucket.clock.now += 90 * DAY
    made = []
    async with FaultyStore(bucket.store) as store:

        async def work(_):
            await host.beat()
            made.append(await run(bucket, host))
            await host.beat()  # which says that this claim is over

        store.act("get", context_key("ctx"), work)
        tally = await collect(bucket, store)
    assert tally.contexts == 0
    assert await there(bucket, made[0]) == ALL
    await host.beat()
    assert (await host.claim()).base_ref == made[0]
    assert await there(bucket, last) == ALL  # the record names it until the next claim


async def test_a_task_that_is_begun_and_ended_meanwhile_keeps_the_context(bucket, host):
    """Its claim is over, so it counts as dead; its record tells why (rule recheck)."""
    claim = await host.claim()
    bucket.clock.now += 90 * DAY
    async with FaultyStore(bucket.store) as store:

        async def work(_):
            await host.beat()
            await host.save(claim, WORKING)
            await host.end(claim)
            await host.beat()

        store.act("get", context_key("ctx"), work)
        assert (await collect(bucket, store)).objects == 0
    assert await TaskRecords(bucket.store).find(claim.ref.task_id) is not None


async def test_an_answer_between_listing_and_record_keeps_the_context(bucket, host):
    """A plain Message leaves no task; but the context is in use, and remembers the message."""
    await run(bucket, host)
    bucket.clock.now += 90 * DAY
    async with FaultyStore(bucket.store) as store:

        async def answer(_):
            await host.beat()
            await host.ledger.release(await host.claim())

        store.act("get", context_key("ctx"), answer)
        assert (await collect(bucket, store)).contexts == 0
    assert (await bucket.context()).last_completed is not None


async def test_a_task_whose_record_was_written_since_stays_with_all_of_its_files(bucket, host):
    """Whatever that was: what was judged is not what is there."""
    ref = await run(bucket, host, FAILED)
    await run(bucket, host)
    bucket.clock.now += 30 * DAY
    async with FaultyStore(bucket.store) as store:

        async def write(key):
            blob = await bucket.store.get(key, with_metadata=True)
            await bucket.store.put(key, blob.body, OVERWRITE, metadata=blob.info.metadata)

        store.act("delete", task_key(ref), write)
        tally = await collect(bucket, store)
    assert (tally.tasks, tally.changed) == (0, 1)
    assert await there(bucket, ref) == ALL


async def test_a_pointer_that_is_brought_up_to_date_meanwhile_goes_all_the_same(bucket, host):
    """A host writes it some time after the end of the task, off everybody's path; it points to nothing by then."""
    ref = await run(bucket, host)
    bucket.clock.now += 90 * DAY
    async with FaultyStore(bucket.store) as store:

        async def write(key):
            blob = await bucket.store.get(key, with_metadata=True)
            await bucket.store.put(key, blob.body, OVERWRITE, metadata=blob.info.metadata)

        store.act("delete", pointer_key(ref.task_id), write)
        tally = await collect(bucket, store)
    assert (tally.objects, tally.changed) == (4, 0)
    assert await bucket.keys() == []


async def test_a_pointer_of_a_claim_that_is_late_is_not_an_orphan(bucket, host):
    """Its host wrote it before the mark, meets the mark, and claims the next version of the record with it."""
    await run(bucket, host)
    bucket.clock.now += 90 * DAY
    other = await bucket.host("other", FaultyStore(bucket.store))
    gate = other.bucket.hold("put", context_key("ctx"))
    late = asyncio.create_task(other.start())
    await gate.reached.wait()
    tally = await collect(bucket)
    gate.release()
    claim = await late
    assert tally.tasks == 1
    assert await TaskRecords(bucket.store).find(claim.ref.task_id) is not None


async def test_what_was_written_since_it_was_listed_stays(bucket, host):
    """Each object goes only as it was judged."""
    await run(bucket, host)
    lost = workspace_key(TaskRef("ctx", "lost"))
    await bucket.store.put(lost, b"1", IF_ABSENT)
    bucket.clock.now += DAY
    async with FaultyStore(bucket.store) as store:

        async def replace(key):
            await bucket.store.delete(key)
            await bucket.store.put(key, b"2", IF_ABSENT)

        store.act("delete", lost, replace)
        tally = await collect(bucket, store)
    assert (tally.objects, tally.changed) == (0, 1)
    assert (await bucket.store.get(lost)).body == b"2"


@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_run_that_breaks_off_is_completed_by_the_next(bucket, host, nth, when):
    """At every deletion of a context that goes: what is left is recognised by its mark, and need not grow old again."""
    await run(bucket, host)
    bucket.clock.now += 90 * DAY
    async with FaultyStore(bucket.store) as store:
        store.fail("delete", nth=nth, when=when, error=PermissionDenied)
        with pytest.raises(PermissionDenied):
            await collect(bucket, store)
    bucket.clock.now += DAY
    await collect(bucket)
    assert await bucket.keys() == []


# ---------------------------------------------------------------- beside the roots


async def test_every_root_is_found():
    """Agents, tenants and owners, in any combination that holds something."""
    store = MemoryStore()
    named = ["", "agents/a", "agents/a/tenants/t/users/u", "agents/b/users/v", "tenants/t", "users/u", "users/v%20w"]
    for root in named:
        await PrefixStore(store, root).put("tasks/t/contextId.txt", b"", IF_ABSENT) if root else await store.put(
            "contexts/c/context.json", b"", IF_ABSENT
        )
    await store.put("users/nothing/else", b"", IF_ABSENT)
    assert [root async for root in roots(store)] == named


async def test_heartbeats_of_hosts_that_are_long_gone_go(bucket, host):
    """Not that of a host that was silent for a while; a dry run says which."""
    bucket.clock.now += DAY - 1
    tally = Tally()
    remover = Remover(bucket.store, tally, dry_run=False, step=lambda _: None)
    assert await collect_heartbeats(bucket.store, remover, DAY) == 0
    assert await collect_heartbeats(bucket.store, remover, 0.0) == 1
    with pytest.raises(NotFound):
        await bucket.store.head(heartbeat_key("h"))
