"""What /metrics says is what happened, for whom it may say it, and that it cannot grow without bound."""

import asyncio
import contextlib
import re
import time

import httpx
import pytest

from a2a_gcs.errors import Throttled, Unavailable
from a2a_gcs.host.loop_lag import measure_loop_lag
from a2a_gcs.host.settings import Settings
from a2a_gcs.host.telemetry import configure_telemetry
from a2a_gcs.objectstore import OVERWRITE, InstrumentedStore, MemoryStore, RetryingStore, Source
from tests.support.a2a_http import A2AClient, Refused
from tests.support.faulty_store import FaultyStore
from tests.support.host_thread import serve_in_thread
from tests.support.hosts import FAILED, INPUT_REQUIRED, Bucket, message
from tests.support.series import Series, growth
from tests.support.turns import running
from tests.support.waiting import until

SETTINGS = {"warm_workspace_bytes": 0}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    configure_telemetry(Settings(), environ={})
    with serve_in_thread(
        InstrumentedStore(MemoryStore()), work_dir=tmp_path_factory.mktemp("work"), max_running_tasks=4, **SETTINGS
    ) as host:
        yield host


async def scraped(host):
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{host.url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return Series(answer.text)


async def test_a_task_is_counted_in_all_that_it_takes(host):
    """State, turn, writes by class, bytes, snapshot; with a second task the restore of the first one's."""
    async with A2AClient(host.url) as client:
        with growth() as grown:
            first = await client.send("hello", context="counted")
            assert grown("task_transitions_total", state="TASK_STATE_COMPLETED") == 1
            assert grown("turns_ended_total", end="terminal") == 1
            assert grown("storage_requests_total", class_="A", verb="put") >= 3
            assert grown("storage_transferred_bytes_total", direction="in") > 500
            assert grown("workspace_snapshot_duration_seconds_count", outcome="ok") == 1
            assert grown("task_save_duration_seconds_count", outcome="ok") == 1
            assert grown("workspace_restore_duration_seconds_count") == 0
            await client.send("again", context="counted")
            assert grown("workspace_restore_duration_seconds_count", outcome="ok") == 1
            assert grown("storage_requests_total", class_="B", verb="stream") == 1
            assert grown("storage_duration_seconds_count", verb="stream") == 1
    assert first.state == "completed"


async def test_a_running_turn_shows_until_it_ends(host):
    """The gauge counts what runs now, not what ever ran."""
    async with A2AClient(host.url) as client:
        before = (await scraped(host)).get("turns_running")
        task = await running(client, "sleep 30")
        assert (await scraped(host)).get("turns_running") == before + 1
        with growth() as grown:
            await client.cancel(task)
            assert grown("turns_ended_total", end="canceled") == 1
            assert grown("task_transitions_total", state="TASK_STATE_CANCELED") == 1
        assert (await scraped(host)).get("turns_running") == before


async def test_an_open_stream_shows_until_it_is_closed(host):
    """By its end, or as its client goes away."""

    async def open_streams():
        return (await scraped(host)).get("streams_open")

    async with A2AClient(host.url) as client:
        await until(lambda: _equal(open_streams, 0), what="the end of streams that earlier tests have left")
        async with contextlib.aclosing(client.stream("sleep 30")) as events:
            task = (await anext(events)).task_id
            assert await open_streams() == 1
        await until(lambda: _equal(open_streams, 0))
        await client.cancel(task)


async def _equal(read, wanted):
    return await read() == wanted


@pytest.mark.parametrize(("first", "reason"), [("ask what?", "CONTEXT_BUSY"), ("hello", "TASK_TERMINAL")])
async def test_a_refused_message_is_counted_by_its_reason(host, first, reason):
    """The same reason that the client is told."""
    async with A2AClient(host.url) as client:
        task = await client.send(first)
        known = {"context": task.context_id} if reason == "CONTEXT_BUSY" else {"task": task.id}
        with growth() as grown:
            with pytest.raises(Refused) as refused:
                await client.send("again", **known)
            assert refused.value.data["reason"] == reason
            assert grown("claims_refused_total", reason=reason) == 1
            assert grown("claims_refused_total") == 1


async def test_a_full_host_counts_its_refusals(host):
    """They never reach the ledger."""
    async with A2AClient(host.url) as client:
        tasks = [await running(client, "sleep 30") for _ in range(4)]
        with growth() as grown:
            with pytest.raises(Refused):
                await client.send("one more")
            assert grown("claims_refused_total", reason="HOST_BUSY") == 1
        for task in tasks:
            await client.cancel(task)


async def test_no_label_ever_holds_an_id(host):
    """Ids of people's choice and of ours are in no series, so there are only as many as there are kinds."""
    async with A2AClient(host.url) as client:
        before = len((await scraped(host)).values)
        for n in range(3):
            await client.send("hello", context=f"chosen-{n}")
        seen = await scraped(host)
    values = {value for _, has in seen.values for _, value in has}
    assert not [v for v in values if "chosen" in v or re.search(r"[0-9a-f]{8}-|vm-|/", v)]
    assert len(seen.values) - before < 60  # a series of each kind that had not been met before, buckets included


async def test_heartbeat_and_loop_are_measured(host):
    """The age of the last renewal, and how late the loop is."""
    seen = await scraped(host)
    assert 0 <= seen.get("heartbeat_age_seconds") < 30
    assert "event_loop_lag_seconds_count" in seen.names()


async def test_a_blocked_loop_shows_as_lag():
    """An agent that computes on the loop is seen by what it delays."""
    with growth() as grown:
        measuring = asyncio.create_task(measure_loop_lag(every=0.01))
        await asyncio.sleep(0)
        _block(0.3)
        await until(lambda: late(grown) >= 1)
        measuring.cancel()


def late(grown):
    return grown("event_loop_lag_seconds_count") - grown("event_loop_lag_seconds_bucket", le="0.25")


def _block(seconds):
    time.sleep(seconds)


async def test_settlements_are_counted_by_their_cause():
    """A dead host's task, and one that waited too long."""
    bucket = Bucket()
    dead, other = await bucket.host("dead"), await bucket.host("other")
    left = await dead.start("left")
    waits = await dead.start("waits")
    waits.patience = 5
    await dead.park(waits, INPUT_REQUIRED)
    await dead.die()
    bucket.clock.now += 60
    with growth() as grown:
        assert (await other.tasks.read(left.ref.task_id)).task.status.state == FAILED
        assert (grown("settlements_total", cause="dead"), grown("settlements_total")) == (1, 1)
        assert (await other.tasks.read(waits.ref.task_id)).task.status.state == FAILED
        assert (grown("settlements_total", cause="overdue"), grown("settlements_total")) == (1, 2)
        assert grown("task_transitions_total", state="TASK_STATE_FAILED") == 2


async def test_a_task_that_goes_on_in_its_state_is_no_transition():
    """Rewrites of a running task are not states."""
    bucket = Bucket()
    host = await bucket.host("a")
    with growth() as grown:
        claim = await host.start("c")
        await host.save(claim)
        assert grown("task_transitions_total", state="TASK_STATE_WORKING") == 1
        await host.park(claim)
        turn = await host.answer(claim.ref.task_id, message())
        assert grown("task_transitions_total", state="TASK_STATE_INPUT_REQUIRED") == 1
        await host.end(turn)
        assert grown("task_transitions_total", state="TASK_STATE_COMPLETED") == 1


@pytest.mark.parametrize("error", [Throttled, Unavailable])
async def test_retries_are_counted_by_their_reason(error):
    """Every further try, and what it is billed as.

    Metrics are this process's, and hosts of other tests may be in it, whose heartbeats put: what counts is a verb and a
    reason that no host which has nothing to do comes to.
    """

    async def at_once(_seconds):
        pass

    memory = MemoryStore()
    await memory.put("part", b"body", OVERWRITE)
    faulty = FaultyStore(memory)
    store = RetryingStore(InstrumentedStore(faulty), sleep=at_once)
    async with faulty:
        faulty.fail("compose", "k", error=error, times=2)
        with growth() as grown:
            await store.compose("k", [Source("part")], OVERWRITE)
            assert grown("storage_retries_total", reason=error.__name__) == 2
            assert grown("storage_requests_total", class_="A", verb="compose", outcome=error.__name__) == 2
            assert grown("storage_requests_total", class_="A", verb="compose", outcome="ok") == 1
            assert grown("storage_requests_total", verb="compose") == 3


async def test_metrics_need_what_every_other_path_needs(tmp_path):
    """Where callers are authenticated, so are those of /metrics, unless it is public, or not there at all."""
    known = {"auth": "tokens", "tokens": "alice:secret-of-alice-0123456789"}
    for settings, with_token, without in (
        (known, 200, 401),
        ({**known, "metrics_public": True}, 200, 200),
        ({**known, "metrics": False}, 404, 401),
        ({"metrics": False}, 404, 404),
    ):
        with serve_in_thread(MemoryStore(), work_dir=tmp_path / "w", **settings) as host:
            headers = {"Authorization": "Bearer secret-of-alice-0123456789"}
            async with httpx.AsyncClient(trust_env=False) as http:
                assert (await http.get(f"{host.url}/metrics", headers=headers)).status_code == with_token, settings
                assert (await http.get(f"{host.url}/metrics")).status_code == without, settings


def test_what_is_about_metrics_needs_them():
    """A port for metrics that are off is a mistake."""
    with pytest.raises(ValueError, match="metrics_port"):
        Settings(metrics=False, metrics_port=9000)
    with pytest.raises(ValueError, match="metrics_public"):
        Settings(metrics=False, metrics_public=True)
