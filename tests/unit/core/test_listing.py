"""ListTasks: newest first, a cursor that stays put, filters, and no part of a list for a whole one."""

import base64
import hashlib
import json

import pytest
from a2a.types.a2a_pb2 import ListTasksRequest
from a2a.utils.errors import InvalidParamsError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.errors import Unavailable
from a2a_gcs.layout import TaskRef, pointer_key, task_key
from a2a_gcs.ledger.errors import ContextBusy
from a2a_gcs.objectstore import LocalStore, MemoryStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.tasks import index, listing
from a2a_gcs.tasks.listing import Entry, Selection, _decode_cursor
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
    makes,
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
    """A listed task is the stored one, with its artifacts if they are asked for."""
    a = await bucket.host("a")
    await put(a, "x", "t1", 10, COMPLETED, artifact("x"))
    await put(a, "y", "t2", 5, WORKING, artifact("x"))
    page = await a.tasks.list(ListTasksRequest(include_artifacts=True), None)
    assert list(page.tasks) == [(await a.record(task_id)).task for task_id in ("t1", "t2")]
    bare = await a.tasks.list(ListTasksRequest(), None)
    assert [(task.id, len(task.artifacts)) for task in bare.tasks] == [("t1", 0), ("t2", 0)]


async def test_a_running_task_is_listed_with_its_journal(bucket):
    """What is in the journal only is in the listed task, too, on another host."""
    store = FaultyStore(bucket.store)
    a, b = await bucket.host("a", store), await bucket.host("b")
    claim = await put(a, "x", "t1", 10, WORKING)
    written = store.hold("put", "*.events.json", when="after")
    await a.sdk(claim).process(makes(claim, "x"))
    await written.reached.wait()
    written.release()
    page = await b.tasks.list(ListTasksRequest(include_artifacts=True), None)
    assert [x.artifact_id for x in page.tasks[0].artifacts] == ["x"]


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


@pytest.mark.parametrize("context_id", ["", "ctx"])
async def test_only_the_page_is_read(context_id):
    """Ended tasks are told by the listing's metadata: no read but one of each task of the page."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    for i in range(10):
        await put(a, "ctx", f"t{i}", 10 + i)
    await a.index.drained()
    store.calls.clear()
    await listed(a, page_size=2, context_id=context_id)
    assert (store.count("list"), store.count("get"), store.count("head")) == (1, 2, 0)


async def test_a_context_is_listed_by_itself():
    """The objects of other contexts, and the pointers, are not gone through for a context."""
    bucket = Bucket()
    store = FaultyStore(bucket.store)
    a = await bucket.host("a", store)
    await put(a, "x", "t1", 10)
    await put(a, "y", "t2", 10)
    store.calls.clear()
    assert await listed(a, context_id="x") == ["t1"]
    assert [key for op, key in store.calls if op == "list"] == ["contexts/x/"]


async def test_a_task_whose_pointer_was_not_updated(bucket):
    """A host that died between the end of a task and its pointer leaves it to the listing, which mends it."""
    a, b = await bucket.host("a"), await bucket.host("b")
    a.records._index = None
    await put(a, "x", "t1", 10, FAILED)
    assert await listed(b, status=FAILED) == ["t1"]
    await b.index.drained()
    assert await pointed(bucket, "t1") == ("TASK_STATE_FAILED", "10000")


async def test_one_listing_mends_so_many_pointers(bucket, monkeypatch):
    """A bucket of an earlier version is brought up to date bit by bit, and listed in full all the while."""
    monkeypatch.setattr(listing, "_MENDED_POINTERS", 2)
    a = await bucket.host("a")
    for i in range(5):
        await put(a, "ctx", f"t{i}", 10)
    await a.index.drained()
    for i in range(5):  # as version 0.1 wrote them, and as something else would
        metadata = {"context": "ctx"} if i else {}
        await bucket.store.put(pointer_key(f"t{i}"), b"ctx", OVERWRITE, metadata=metadata)
    mended = []
    for _ in range(3):
        assert await listed(a) == [f"t{i}" for i in range(5)]
        await a.index.drained()
        states = [await pointed(bucket, f"t{i}") for i in range(5)]
        mended.append(sum(state == ("TASK_STATE_COMPLETED", "10000") for state in states))
    assert mended == [2, 4, 5]


async def pointed(bucket, task_id):
    metadata = (await bucket.store.head(pointer_key(task_id))).metadata
    return metadata.get("state"), metadata.get("status-time")


async def test_what_cannot_be_parsed_is_not_counted(bucket):
    """A task.json that is no task is left out of page and total by the call that reads it."""
    a = await bucket.host("a")
    for i in range(4):
        await put(a, "ctx", f"t{i}", 10 + i)
    meta = (await bucket.store.head(task_key(TaskRef("ctx", "t2")))).metadata
    await bucket.overwrite_task(TaskRef("ctx", "t2"), b"{", dict(meta))
    page = await a.tasks.list(ListTasksRequest(page_size=2), None)
    assert ([task.id for task in page.tasks], page.total_size) == (["t3"], 3)
    rest = await a.tasks.list(ListTasksRequest(page_size=2, page_token=page.next_page_token), None)
    assert [task.id for task in rest.tasks] == ["t1", "t0"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["TASK_STATE_COMPLETED", "TASK_STATE_FAILED"])), max_size=60),
    st.integers(1, 5),
    st.integers(0, 6),
)
def test_a_selection_is_a_sorted_list(tasks, size, skipped):
    """Whatever comes in whatever order, the page is what sorting everything would give, and the count is of all."""
    entries = [Entry(f"t{i}", None, state, time) for i, (time, state) in enumerate(tasks)]
    ordered = sorted((e for e in entries if e.state == "TASK_STATE_FAILED"), key=lambda e: e.order)
    after = ordered[skipped].order if skipped < len(ordered) else None
    selection = Selection(ListTasksRequest(status=FAILED), size, after)
    for entry in entries:
        selection.add(entry)
    assert len(selection._best) < 4 * (size + 1)
    rest = [e for e in ordered if after is None or e.order > after]
    assert selection.page() == (rest[:size], len(rest) > size)
    assert selection.total == len(ordered)


@pytest.mark.parametrize(("ids", "lists"), [("hex", (4, 15)), ("words", (4, 4)), ("both", (8, 20))])
@pytest.mark.parametrize("large", [False, True])
async def test_every_pointer_once(monkeypatch, ids, large, lists):
    """Page after page or by digits side by side, each key comes once, also those between and beyond the digits."""
    monkeypatch.setattr(index, "_LARGE_PAGES", 2 if large else 1000)
    store = FaultyStore(MemoryStore())
    wanted = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(3500)]
    if ids == "words":
        wanted = [f"task-{name}" for name in wanted] + ["0", "9Z", "~"]
    elif ids == "both":
        wanted += ["0", "0-", "9Z", "A", "Z", "f", "fz", *"xy", *(f"{c}-{n}" for c in "Bgt" for n in range(1200))]
    keys = {pointer_key(task_id) for task_id in wanted}
    for key in keys:
        await store.put(key, b"ctx", OVERWRITE)
    store.calls.clear()
    found = []

    async def take(objects):
        found.extend(info.key for info in objects)

    await index.each_page(store, take)
    assert sorted(found) == sorted(keys)
    assert store.count("list") == lists[large]  # by digits: the first page reaches into those of 4; and two gaps


class Listed(FaultyStore):
    """Keeps with which arguments each page was asked for, and each page's token was given."""

    def __init__(self, store):
        super().__init__(store)
        self.given, self.asked = set(), set()

    async def list(self, prefix, *, start="", page=None, limit=1000):
        if page is not None:
            self.asked.add((page, prefix, start, limit))
        listed = await super().list(prefix, start=start, page=page, limit=limit)
        self.given.add((listed.next, prefix, start, limit))
        return listed


async def test_a_page_is_asked_for_as_the_one_before_it(monkeypatch):
    """A store may refuse a token with other arguments than those it was given for: digits go on as they began."""
    monkeypatch.setattr(index, "_LARGE_PAGES", 1)
    store = Listed(MemoryStore())
    for task_id in [f"0{i:04x}" for i in range(3200)] + [f"{first}{i:04x}" for first in "ag" for i in range(1200)]:
        await store.put(pointer_key(task_id), b"ctx", OVERWRITE)

    async def take(objects):
        pass

    await index.each_page(store, take)
    assert len(store.asked) == 4  # the rest of 0, a and g: two more pages, one, and one
    assert store.asked <= store.given


async def test_ranges_do_not_hide_an_outage(monkeypatch):
    """One range that cannot be listed fails the whole."""
    monkeypatch.setattr(index, "_LARGE_PAGES", 1)
    async with FaultyStore(MemoryStore()) as store:
        for i in range(1200):
            await store.put(pointer_key(f"{i * 54:04x}"), b"ctx", OVERWRITE)
        store.fail("list", nth=3)

        async def take(objects):
            pass

        with pytest.raises(Unavailable):
            await index.each_page(store, take)


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


@pytest.mark.parametrize(
    "params",
    [
        {"status": 99},
        {"context_id": "a\nb"},
        {"status_timestamp_after": Timestamp(seconds=10**15)},
        {"status_timestamp_after": Timestamp(nanos=-1)},
    ],
    ids=str,
)
async def test_impossible_filters(bucket, params):
    """A state, a context or a time that cannot be is the caller's mistake."""
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
