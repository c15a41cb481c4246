"""Deleting a context, or an owner, with everything of theirs."""

import pytest

from a2a_gcs.claims import ClaimTable
from a2a_gcs.layout import TaskRef, context_key, pointer_key, task_key, workspace_key
from a2a_gcs.ledger.errors import TaskEnded
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.retention.collector import Place
from a2a_gcs.retention.deletion import Deletion, NotDeleted
from a2a_gcs.retention.tally import Tally
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import COMPLETED, INPUT_REQUIRED, Bucket, message
from tests.unit.retention.test_collector import run

YOUNG = 121


@pytest.fixture
def bucket():
    return Bucket()


@pytest.fixture
async def host(bucket):
    return await bucket.host("h")


def deletion(bucket, store=None, root="", *, dry_run=False):
    store, table = store or bucket.store, ClaimTable("gc")
    below = PrefixStore(store, root) if root else store
    place = Place(store, below, root, Liveness(store, table))
    return Deletion(place, table, Tally(), dry_run=dry_run, step=lambda _: None)


async def test_a_context_goes_whatever_its_age(bucket, host):
    """With the task that waits in it; other contexts stay."""
    await run(bucket, host)
    await host.park(await host.start(), INPUT_REQUIRED)
    other = await run(bucket, host, COMPLETED, "other")
    await deletion(bucket).context("ctx")
    assert sorted(await bucket.keys()) == sorted(
        [f"tasks/{other.task_id}/contextId.txt", task_key(other), workspace_key(other), context_key("other")]
    )
    assert (await host.start()).base is None


@pytest.mark.parametrize("begun", [False, True])
async def test_a_context_in_which_something_runs_stays(bucket, host, begun):
    """Its host would write once more; the message says what to do. Nothing was touched."""
    claim = await (host.start() if begun else host.claim())
    await host.beat()
    before = await bucket.keys()
    with pytest.raises(NotDeleted, match=f"a2a-gcs cancel {claim.ref.task_id}"):
        await deletion(bucket).context("ctx")
    assert await bucket.keys() == before


@pytest.mark.parametrize("begun", [False, True])
async def test_what_a_dead_host_left_keeps_nothing(bucket, host, begun):
    """Its task is settled, and goes with the rest. Of one that was never begun only the pointer is left for gc."""
    await (host.start() if begun else host.claim())
    await host.die()
    await deletion(bucket).context("ctx")
    assert [key for key in await bucket.keys() if key.startswith("contexts/")] == []
    bucket.clock.now += YOUNG
    assert await deletion(bucket).root() == []
    assert await bucket.keys() == []


async def test_a_task_that_is_answered_meanwhile_keeps_its_context(bucket, host):
    """The answer came before the cancel: it runs."""
    claim = await host.start()
    await host.park(claim, INPUT_REQUIRED)
    async with FaultyStore(bucket.store) as store:

        async def answer(_):
            await host.ledger.take_turn(claim.ref.task_id, "ctx", message())
            await host.beat()

        store.act("get", task_key(claim.ref), answer, nth=2)
        with pytest.raises(NotDeleted, match="runs"):
            await deletion(bucket, store).context("ctx")
    assert task_key(claim.ref) in await bucket.keys()


async def test_a_claim_meanwhile_wins_or_begins_anew(bucket, host):
    """Before the mark it keeps the context, as it runs by then."""
    last = await run(bucket, host)
    async with FaultyStore(bucket.store) as store:

        async def claim(_):
            await host.start()
            await host.beat()

        store.act("put", context_key("ctx"), claim)
        with pytest.raises(NotDeleted, match="runs"):
            await deletion(bucket, store).context("ctx")
    assert workspace_key(last) in await bucket.keys()


async def test_a_claim_at_the_last_look_is_noticed(bucket, host):
    """The mark is for the record as it was before anything was looked at."""
    last = await run(bucket, host)
    async with FaultyStore(bucket.store) as store:

        async def claim(_):
            await host.start()
            await host.beat()

        store.act("head", pointer_key(last.task_id), claim, nth=2)
        with pytest.raises(NotDeleted, match="runs"):
            await deletion(bucket, store).context("ctx")
    assert workspace_key(last) in await bucket.keys()


async def test_nobody_can_answer_a_task_that_is_about_to_go(bucket, host):
    """It is canceled first, so a run that would begin now is refused and not cut off."""
    claim = await host.start()
    await host.park(claim, INPUT_REQUIRED)
    async with FaultyStore(bucket.store) as store:

        async def answer(_):
            with pytest.raises(TaskEnded):
                await host.ledger.take_turn(claim.ref.task_id, "ctx", message())

        store.act("put", context_key("ctx"), answer)
        await deletion(bucket, store).context("ctx")
    assert await bucket.keys() == []


async def test_a_record_that_this_version_cannot_read_keeps_its_context(bucket, host):
    """The rest of the root goes."""
    await run(bucket, host)
    await run(bucket, host, COMPLETED, "other")
    await bucket.store.put(context_key("ctx"), b"{", OVERWRITE)
    [refused] = await deletion(bucket).root()
    assert context_key("ctx") in str(refused)
    assert {key.split("/")[1] for key in await bucket.keys() if key.startswith("contexts/")} == {"ctx"}


async def test_a_claim_after_the_mark_keeps_its_own(bucket, host):
    """What was there is gone, and that is told."""
    last, made = await run(bucket, host), []
    async with FaultyStore(bucket.store) as store:

        async def claim(_):
            made.append(await host.start())
            await host.beat()

        store.act("delete", task_key(last), claim)
        with pytest.raises(NotDeleted, match="runs"):
            await deletion(bucket, store).context("ctx")
    keys = await bucket.keys()
    assert task_key(last) not in keys
    assert task_key(made[0].ref) in keys


async def test_a_task_that_nobody_can_read_goes_too(bucket, host):
    """Whoever wants all of it gone need not mend it first."""
    ref = await run(bucket, host)
    await bucket.store.put(task_key(ref), b"{", OVERWRITE)
    await deletion(bucket).context("ctx")
    assert [key for key in await bucket.keys() if key.startswith("contexts/")] == []


async def test_a_context_that_is_not_there_is_told(bucket):
    with pytest.raises(NotDeleted, match="there is no context 'ctx'"):
        await deletion(bucket).context("ctx")


async def test_a_dry_run_cancels_nothing(bucket, host):
    """And counts what would go."""
    await host.park(await host.start(), INPUT_REQUIRED)
    before = {key: (await bucket.store.head(key)).version for key in await bucket.keys()}
    dry = deletion(bucket, dry_run=True)
    await dry.context("ctx")
    assert {key: (await bucket.store.head(key)).version for key in await bucket.keys()} == before
    assert (dry._tally.contexts, dry._tally.tasks, dry._tally.objects) == (1, 1, 3)


async def test_an_owner_goes_with_everything_and_nobody_else(bucket):
    """Contexts, what belongs to no task, and what is young but no claim's; other roots are not touched."""
    for name in ("alice", "bob"):
        below = Bucket(PrefixStore(bucket.store, f"users/{name}"))
        owner = await below.host("h")
        await run(below, owner)
        await below.store.put(workspace_key(TaskRef("ctx", "lost")), b"x", IF_ABSENT)
        await owner.die()
    others = [key for key in await bucket.keys() if key.startswith("users/bob/")]
    bucket.clock.now += YOUNG
    assert await deletion(bucket, root="users/alice").root() == []
    assert await bucket.keys() == others


async def test_what_runs_is_told_for_each_context_of_an_owner(bucket, host):
    """The rest goes."""
    await run(bucket, host, COMPLETED, "done")
    claim = await host.start("busy")
    await host.beat()
    refused = await deletion(bucket).root()
    assert [str(one).split("'")[1] for one in refused] == ["busy"]
    keys = await bucket.keys()
    assert task_key(claim.ref) in keys
    assert not [key for key in keys if key.startswith("contexts/done/")]
