"""ListTasks: newest first, a cursor that stays put, filters, and no part of a list for a whole one."""

import base64
import json

import pytest
from a2a.types.a2a_pb2 import ListTasksRequest
from a2a.utils.errors import InvalidParamsError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.errors import Unavailable
from a2a_gcs.ledger.errors import ContextBusy
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.tasks.listing import _decode_cursor
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    SUBMITTED,
    WORKING,
    Bucket,
    artifact,
    status,
)


@pytest.fixture(params=["memory", "local"])
def bucket(request, tmp_path):
    return Bucket(LocalStore(tmp_path / "bucket") if request.param == "local" else None)


async def put(host, context_id, task_id, seconds, state=COMPLETED, *artifacts):
    claim = await host.claim(context_id, task_id=task_id)
    task = claim.record.copy_task()
    task.status.CopyFrom(status(state, seconds))
    task.artifacts.extend(artifacts)
    await host.save_task(task)
    return claim


async def listed(host, **params):
    page = await host.tasks.list(ListTasksRequest(**params), None)
    return [task.id for task in page.tasks]


async def pages(host, **params):
    token, found = "", []
    while True:
        page = await host.tasks.list(ListTasksRequest(page_token=token, **params), None)
        found.append(page)
        if not (token := page.next_page_token):
            return found


async def test_newest_first(bucket):
    """Tasks come by the time of their status, the newest first, across contexts; ties by id."""
    a = await bucket.host("a")
    for context_id, task_id, seconds in [("x", "t1", 10), ("y", "t2", 30), ("z", "t4", 20), ("w", "t3", 20)]:
        await put(a, context_id, task_id, seconds)
    assert await listed(a) == ["t2", "t3", "t4", "t1"]


async def test_equal_timestamps_lose_nothing(bucket):
    """Five tasks with one timestamp in pages of two: five ids, each once, and totalSize 5 on every page."""
    a = await bucket.host("a")
    for i in range(5):
        await put(a, "ctx", f"t{i}", 10)
    found = await pages(a, page_size=2)
    assert [[task.id for task in page.tasks] for page in found] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert [page.total_size for page in found] == [5, 5, 5]
    assert [page.page_size for page in found] == [2, 2, 2]


async def test_a_full_last_page_is_the_last(bucket):
    """There is no token that leads to an empty page."""
    a = await bucket.host("a")
    for i in range(4):
        await put(a, "ctx", f"t{i}", 10)
    assert [len(page.tasks) for page in await pages(a, page_size=2)] == [2, 2]


async def test_the_cursor_stays_put_while_tasks_change(bucket):
    """What is added or changed during paging is newer than the cursor: nothing is skipped or listed twice."""
    a = await bucket.host("a")
    for i in range(6):
        await put(a, f"c{i}", f"t{i}", 100 - i)
    first = await a.tasks.list(ListTasksRequest(page_size=2), None)
    await put(a, "new", "t-new", 500)
    second = await a.tasks.list(ListTasksRequest(page_size=2, page_token=first.next_page_token), None)
    assert [t.id for t in (*first.tasks, *second.tasks)] == ["t0", "t1", "t2", "t3"]
    assert second.total_size == 7


async def test_a_default_page(bucket):
    """Without a size a page holds fifty."""
    a = await bucket.host("a")
    for i in range(51):
        await put(a, f"c{i}", f"t{i:02}", 10)
    page = await a.tasks.list(ListTasksRequest(), None)
    assert (len(page.tasks), page.page_size, page.total_size) == (50, 50, 51)


async def test_filters(bucket):
    """By context, by state, and by time, which includes the moment itself; they may be combined."""
    a = await bucket.host("a")
    await put(a, "x", "t1", 10)
    await put(a, "x", "t2", 20, FAILED)
    await put(a, "y", "t3", 30)
    assert await listed(a, context_id="x") == ["t2", "t1"]
    assert await listed(a, context_id="unknown") == []
    assert await listed(a, status=COMPLETED) == ["t3", "t1"]
    assert await listed(a, status=SUBMITTED) == []
    assert await listed(a, status_timestamp_after=Timestamp(seconds=20)) == ["t3", "t2"]
    assert await listed(a, status=COMPLETED, status_timestamp_after=Timestamp(seconds=11), context_id="y") == ["t3"]


async def test_contexts_with_a_common_beginning_are_apart(bucket):
    """The tasks of context `x` do not include those of `xy`."""
    a = await bucket.host("a")
    await put(a, "x", "t1", 10)
    await put(a, "xy", "t2", 10)
    assert await listed(a, context_id="x") == ["t1"]


async def test_tasks_are_listed_whole(bucket):
    """A listed task is the stored one; running ones have what is only in the journal yet."""
    a = await bucket.host("a")
    await put(a, "x", "t1", 10, COMPLETED, artifact("x"))
    page = await a.tasks.list(ListTasksRequest(), None)
    assert page.tasks[0] == (await a.record("t1")).task


async def test_a_claim_without_a_task_is_not_listed(bucket):
    """There is nothing to show before the first save."""
    a = await bucket.host("a")
    await a.claim()
    assert await listed(a) == []


async def test_open_tasks_of_dead_hosts_are_settled_first(bucket):
    """A listing by state tells the truth about tasks whose host is gone, and leaves the living and waiting alone."""
    a, b, c = await bucket.host("a"), await bucket.host("b"), await bucket.host("c")
    dead = await put(a, "x", "t1", 10, WORKING)
    await put(b, "y", "t2", 10, WORKING)
    waiting = await a.start("z", task_id="t3")
    await a.park(waiting)
    await a.die()
    assert await listed(c, status=WORKING) == ["t2"]
    assert await listed(c, status=FAILED) == [dead.ref.task_id]
    assert await listed(c, status=INPUT_REQUIRED) == ["t3"]


@pytest.mark.parametrize("op", ["list", "get"])
async def test_an_outage_fails_the_call(op):
    """A bucket that does not answer is no empty list, and a part of a list is no list."""
    bucket = Bucket()
    async with FaultyStore(bucket.store) as store:
        a = await bucket.host("a", store)
        for i in range(3):
            await put(a, "ctx", f"t{i}", 10)
        store.fail(op, nth=1 if op == "list" else 2)
        with pytest.raises(Unavailable):
            await listed(a)
        assert await listed(a) == ["t0", "t1", "t2"]


async def test_only_the_page_is_read():
    """Ended tasks are told by the listing's metadata: no read but those of the page."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    for i in range(10):
        await put(a, "ctx", f"t{i}", 10 + i)
    store.calls.clear()
    await listed(a, page_size=2)
    assert (store.count("list"), store.count("get")) == (1, 2)


async def test_more_than_a_page_of_the_store():
    """A context with more objects than one page of the store's listing is listed in full."""
    bucket = Bucket()
    a = await bucket.host("a")
    for i in range(520):  # two objects each
        claim = await put(a, "ctx", f"t{i:03}", 10)
        await bucket.store.put(f"contexts/ctx/{claim.ref.task_id}/workspace.tar.gz", b"", OVERWRITE)
    page = await a.tasks.list(ListTasksRequest(page_size=1), None)
    assert page.total_size == 520


BAD_TOKENS = [
    "x",
    "!!!!",
    "ü",
    "\ud800",
    *(base64.urlsafe_b64encode(raw).decode() for raw in [b"5", b"{}", b"[]", b"[1]", b'["a", "b"]', b"[Infinity, 1]"]),
    base64.urlsafe_b64encode(b"[" * 100_000).decode(),
]


@pytest.mark.parametrize("token", BAD_TOKENS, ids=lambda t: ascii(t)[:20])
async def test_a_token_that_is_not_ours(token):
    """Any other page token is the caller's mistake, and not an internal error."""
    with pytest.raises(InvalidParamsError):
        _decode_cursor(token)


@given(st.text(max_size=20) | st.binary(max_size=20).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_token_is_one_or_refused(token):
    """No token raises anything but InvalidParams."""
    try:
        found = _decode_cursor(token)
    except InvalidParamsError:
        return
    assert found is None or json.dumps(found)


@pytest.mark.parametrize("params", [{"status": 99}, {"context_id": "a\nb"}], ids=str)
async def test_impossible_filters(bucket, params):
    """A state or a context that cannot be is the caller's mistake."""
    a = await bucket.host("a")
    with pytest.raises(InvalidParamsError):
        await listed(a, **params)


async def test_a_listing_starts_nothing(bucket):
    """Listing a context claims nothing in it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    await put(a, "ctx", "t1", 10, CANCELED)
    claim = await a.claim("ctx")
    await listed(b)
    with pytest.raises(ContextBusy):
        await b.claim("ctx")
    assert claim.held
