"""The heartbeat of a process: durable first, renewed in time, and what happens when it is not."""

import asyncio
import contextlib
import threading
import time

import pytest

from a2a_gcs.claims import ClaimTable, End
from a2a_gcs.errors import Conflict, PermissionDenied, Unavailable
from a2a_gcs.layout import heartbeat_key
from a2a_gcs.ledger.heartbeat import Heartbeat, Liveness
from a2a_gcs.objectstore import LocalStore, MemoryStore
from a2a_gcs.records import HeartbeatRecord
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import Clock, Host, ref
from tests.support.waiting import until

KEY = heartbeat_key("a")
LEASE = 0.3  # of a heartbeat on the test's own loop: it is renewed every 0.1 s


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
def host(store):
    return Host(store, "a")


@contextlib.asynccontextmanager
async def beating(host, store, clock=None):
    more = {"clock": clock} if clock else {}
    heartbeat = Heartbeat(lambda: store, host.table, lease=LEASE, own_thread=False, **more)
    await heartbeat.start()
    try:
        yield heartbeat
    finally:
        await heartbeat.stop()


async def stored(store):
    return HeartbeatRecord.parse(KEY, (await store.get(KEY)).body)


async def renewed(store):
    """Waits for a renewal that begins from now on to be committed."""
    gate = store.hold("put", KEY, when="after")
    await gate.reached.wait()
    gate.release()


async def test_it_is_durable_before_start_returns(host, store):
    """No claim can be made under a heartbeat that nobody sees."""
    gate = store.hold("put", KEY)
    heartbeat = Heartbeat(lambda: store, host.table, lease=LEASE, own_thread=False)
    starting = asyncio.create_task(heartbeat.start())
    await gate.reached.wait()
    assert not starting.done()
    gate.release()
    await starting
    record = await stored(store)
    await heartbeat.stop()
    assert record.lease_seconds == LEASE


@pytest.mark.parametrize("own_thread", [True, False])
async def test_a_start_that_fails_says_so(store, own_thread):
    """A bucket that does not take the heartbeat is the caller's error, and stop() is harmless afterwards."""
    store.fail("put", KEY, error=PermissionDenied)
    heartbeat = Heartbeat(lambda: store, ClaimTable("a"), lease=LEASE, own_thread=own_thread)
    with pytest.raises(PermissionDenied):
        await heartbeat.start()
    await heartbeat.stop()


async def test_it_lists_the_open_claims(host, store):
    """A renewal carries the next number and those that are open, of one instant."""
    async with beating(host, store, Clock()):
        first, second = host.table.allot(ref("c", "one")), host.table.allot(ref("c", "two"))
        host.table.close(first)
        await renewed(store)
        record = await stored(store)
        assert (record.next, record.open) == (3, (second.n,))
        assert [(c.n, c.context_id, c.task_id) for c in record.claims] == [(second.n, "c", "two")]


async def test_it_deletes_itself_on_stop(host, store):
    """What is still open then counts as dead at once."""
    async with beating(host, store):
        assert (await store.list("hosts/")).objects
    assert not (await store.list("hosts/")).objects


async def test_it_comes_back_when_somebody_deleted_it(host, store):
    """A heartbeat that was tidied up by mistake is written again."""
    async with beating(host, store):
        await store.delete(KEY)
        await renewed(store)
        assert await stored(store)


async def test_the_lease_runs_from_the_send(host, store):
    """What counts is when an acknowledged renewal was sent, not when its answer came."""
    clock = Clock()
    gate = store.hold("put", KEY, when="after")
    heartbeat = Heartbeat(lambda: store, host.table, lease=LEASE, own_thread=False, clock=clock)
    starting = asyncio.create_task(heartbeat.start())
    await gate.reached.wait()
    clock.now += 0.05
    gate.release()
    await starting
    age = heartbeat.age
    await heartbeat.stop()
    assert age == pytest.approx(0.05)


async def lapsed(claim):
    over = asyncio.Event()
    claim.on_stop(over.set)
    await over.wait()
    return claim.end


async def test_a_suspended_host_stops_its_claims_before_it_renews(host, store):
    """After 2/3 of the lease the claims lapse first; the renewal that follows lists none of them."""
    clock = Clock()
    async with beating(host, store, clock):
        claim = await host.start()
        seen = []

        async def renewing(key):
            seen.append((claim.end, dict(host.table.snapshot()[1])))

        store.act("put", KEY, renewing)
        clock.now += LEASE * 2 / 3
        assert await lapsed(claim) is End.LAPSED
        await renewed(store)
        assert seen == [(End.LAPSED, {})]
        assert (await stored(store)).open == ()


async def test_a_host_that_renews_in_time_keeps_its_claims(host, store):
    """Renewals move the deadline on: claims outlive many leases."""
    clock = Clock()
    async with beating(host, store, clock) as heartbeat:
        claim = await host.start()
        for _ in range(4):
            clock.now += LEASE / 2
            await until(lambda: heartbeat.age == 0, what="a renewal that is acknowledged")
        assert claim.held


@pytest.mark.parametrize("error", [Unavailable, Conflict])
async def test_a_heartbeat_that_is_not_taken_lapses_the_claims(host, store, error):
    """A host that is cut off from the bucket stops its own runs at 2/3 of the lease, and recovers with the bucket."""
    clock = Clock()
    async with beating(host, store, clock):
        claim = await host.start()
        failing = store.fail("put", KEY, times=10**6, error=error)
        clock.now += LEASE / 2
        assert claim.held
        clock.now += LEASE / 2
        assert await lapsed(claim) is End.LAPSED
        failing.times = 0
        await renewed(store)
        assert await host.start("other")


async def test_an_error_of_any_kind_does_not_end_the_watch(host, store):
    """A bug in a client library stops no renewals: the lease goes on being watched, and the claims lapse in time."""
    clock = Clock()

    met = asyncio.Event()

    async def bug(key):
        met.set()
        raise RuntimeError("session is closed")

    async with beating(host, store, clock):
        claim = await host.start()
        store.act("put", KEY, bug)
        clock.now += LEASE
        assert await lapsed(claim) is End.LAPSED
        await met.wait()
        await renewed(store)
        assert (await stored(store)).open == ()


async def test_a_blocked_loop_loses_no_claim(tmp_path):
    """An agent that blocks the host's loop for longer than the lease is not held for dead by another process."""
    mine = Host(LocalStore(tmp_path), "a")
    heartbeat = Heartbeat(lambda: LocalStore(tmp_path), mine.table, lease=3.0)
    await heartbeat.start()
    claim = await mine.start()
    verdicts = []

    async def judge():
        async with LocalStore(tmp_path) as store:
            verdicts.append(await Liveness(store, ClaimTable("b")).is_dead(str(claim.owner)))

    def elsewhere():
        time.sleep(3.5)
        asyncio.run(judge())

    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()  # blocks this loop, on which the claim's agent would run
    assert verdicts == [False]
    assert claim.held
    await mine.end(claim)
    await heartbeat.stop()
    await judge()
    assert verdicts == [False, True]
    await mine.bucket.close()


async def test_a_suspended_host_disowns_its_claims_also_while_its_loop_is_blocked(tmp_path):
    """The heartbeat that is renewed after a suspension lists none of them, though their agents cannot be stopped."""
    clock = Clock()
    mine = Host(LocalStore(tmp_path), "a")
    heartbeat = Heartbeat(lambda: LocalStore(tmp_path), mine.table, lease=3.0, clock=clock)
    await heartbeat.start()
    claim = await mine.start()
    found = []

    async def renewed_with(next_number):
        async with LocalStore(tmp_path) as store:
            await until(lambda: is_renewed(store, next_number))

    async def is_renewed(store, next_number):
        found.append(await stored(store))
        return found[-1].next >= next_number

    listed = threading.Thread(target=lambda: asyncio.run(renewed_with(claim.owner.n + 1)))
    listed.start()
    listed.join()
    assert found[-1].open == (claim.owner.n,)
    clock.now += 2.0
    mine.table.allot(ref("c", "later"))
    again = threading.Thread(target=lambda: asyncio.run(renewed_with(claim.owner.n + 2)))
    again.start()
    again.join()
    assert found[-1].open == ()
    assert claim.held
    assert await lapsed(claim) is End.LAPSED
    await heartbeat.stop()
    await mine.bucket.close()


async def test_a_heartbeat_thread_ends_with_stop(tmp_path):
    """Stopping joins the thread: nothing of it is left."""
    heartbeat = Heartbeat(lambda: LocalStore(tmp_path), ClaimTable("a"), lease=3.0)
    await heartbeat.start()
    assert "heartbeat" in [thread.name for thread in threading.enumerate()]
    await heartbeat.stop()
    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]
