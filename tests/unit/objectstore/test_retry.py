"""RetryingStore: lost answers, lost races, throttling and the budget, without a real sleep."""

from __future__ import annotations

import pytest

from a2a_gcs.errors import Conflict, NotFound, PermissionDenied, Throttled, Unavailable
from a2a_gcs.objectstore import IF_ABSENT, OVERWRITE, WRITE_ID, IfVersion, MemoryStore, RetryingStore, Source
from tests.support.faulty_store import FaultyStore


class Time:
    """A clock that moves only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.sleeps = []

    async def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def memory():
    return MemoryStore()


@pytest.fixture
def faulty(memory):
    store = FaultyStore(memory)
    yield store
    store.verify()


@pytest.fixture
def store(faulty, time):
    return retrying(faulty, time)


def retrying(below, time, jitter=0.999, **settings):
    return RetryingStore(below, sleep=time.sleep, clock=lambda: time.now, jitter=lambda: jitter, **settings)


async def chunks(*pieces):
    for piece in pieces:
        yield piece


async def test_every_write_carries_a_fresh_write_id(store, memory):
    """put, put_stream and compose each get an id of their own; one copied from another write is replaced."""
    first = await store.put("k", b"1", IF_ABSENT)
    infos = [
        first,
        await store.put("k", b"2", IfVersion(first.version), metadata=dict(first.metadata)),
        await store.put_stream("s", chunks(b"3"), OVERWRITE),
        await store.compose("c", [Source("k")], OVERWRITE, metadata={"m": "1"}),
    ]
    assert len({info.metadata[WRITE_ID] for info in infos}) == 4
    assert infos[3].metadata["m"] == "1"


@pytest.mark.parametrize("write", ["if_absent", "if_version", "compose", "put_stream"])
async def test_committed_but_unanswered_is_a_success(store, faulty, memory, write):
    """The repetition meets its own success as a Conflict and recognises it: one version was written."""
    old = await memory.put("old", b"old", OVERWRITE)
    if write == "if_absent":
        faulty.fail("put", "k", when="after")
        key, info = "k", await store.put("k", b"new", IF_ABSENT)
    elif write == "if_version":
        faulty.fail("put", "old", when="after")
        key, info = "old", await store.put("old", b"new", IfVersion(old.version))
    elif write == "compose":
        faulty.fail("compose", "k", when="after")
        key, info = "k", await store.compose("k", [Source("old")], IF_ABSENT)
    else:
        faulty.fail("put_stream", "k", when="after")
        key, info = "k", await store.put_stream("k", chunks(b"new"), IF_ABSENT)
    assert info.version == (await memory.head(key)).version == old.version + 1


async def test_a_foreign_writer_is_a_conflict(store, faulty, memory):
    """A real conflict is reported as one, at once, and the other's object stays."""
    await memory.put("k", b"theirs", OVERWRITE, metadata={WRITE_ID: "theirs"})
    with pytest.raises(Conflict) as caught:
        await store.put("k", b"mine", IF_ABSENT)
    assert not caught.value.ambiguous
    assert (await memory.get("k")).body == b"theirs"
    assert faulty.count("put") == 1


async def test_a_foreign_writer_after_a_lost_answer_is_an_ambiguous_conflict(store, faulty, memory):
    """Our write may have been there before theirs: the error says so."""

    async def foreign(key):
        await memory.put(key, b"theirs", OVERWRITE)

    faulty.act("put", "k", foreign, when="after")
    faulty.fail("put", "k", when="after")
    with pytest.raises(Conflict) as caught:
        await store.put("k", b"mine", IF_ABSENT)
    assert caught.value.ambiguous


async def test_the_read_back_is_retried(store, faulty, memory):
    """An outage between the Conflict and the read-back does not turn a success into a conflict."""
    faulty.fail("put", "k", when="after")
    faulty.fail("head", "k", times=3)
    info = await store.put("k", b"new", IF_ABSENT)
    assert info.version == (await memory.head("k")).version
    assert faulty.count("put") == 2


async def test_a_read_back_that_never_succeeds_is_an_ambiguous_conflict(store, faulty):
    """When the budget ends first, nobody knows whose write it is."""
    faulty.fail("put", "k", when="after")
    faulty.fail("put", "k", nth=2, error=Conflict)
    faulty.fail("head", "k", error=Throttled, times=3)
    with pytest.raises(Conflict) as caught:
        await retrying(faulty, Time(), budget=15.0).put("k", b"new", IF_ABSENT)
    assert caught.value.ambiguous
    assert isinstance(caught.value.cause, Throttled)


async def test_throttled_writes_wait_longer_each_time(faulty, store, time):
    """429 again and again: every gap is at least a second and they grow, and then it is written."""
    faulty.fail("put", "k", error=Throttled, times=3)
    await store.put("k", b"1", IF_ABSENT)
    assert time.sleeps[0] >= 1
    assert time.sleeps == sorted(time.sleeps)
    assert time.sleeps[2] > 2 * time.sleeps[0]


async def test_no_jitter_brings_a_throttled_write_below_one_second(faulty, time):
    """An object takes one write a second, so a shorter gap is wasted."""
    faulty.fail("put", "k", error=Throttled, times=3)
    await retrying(faulty, time, jitter=0.0).put("k", b"1", IF_ABSENT)
    assert min(time.sleeps) >= 1


async def test_a_throttled_write_reads_before_it_writes_again(store, faulty, memory):
    """A loser of a race that was told 429 learns from the read that it lost, and does not write again."""

    async def foreign(key):
        await memory.put(key, b"theirs", IF_ABSENT)

    faulty.act("put", "k", foreign)
    faulty.fail("put", "k", error=Throttled)
    with pytest.raises(Conflict):
        await store.put("k", b"mine", IF_ABSENT)
    assert faulty.calls == [("put", "k"), ("head", "k")]


async def test_a_deleted_object_is_noticed_after_throttling(store, faulty, memory):
    """The condition on a version fails also when the object is gone."""
    old = await memory.put("k", b"1", IF_ABSENT)

    async def foreign(key):
        await memory.delete(key)

    faulty.act("put", "k", foreign)
    faulty.fail("put", "k", error=Throttled)
    with pytest.raises(Conflict):
        await store.put("k", b"mine", IfVersion(old.version))
    assert faulty.count("put") == 1


async def test_a_success_is_recognised_behind_a_throttled_repetition(store, faulty, memory):
    """Committed, answer lost, repetition throttled: the read finds our own id."""
    faulty.fail("put", "k", when="after")
    faulty.fail("put", "k", nth=2, error=Throttled)
    info = await store.put("k", b"1", IF_ABSENT)
    assert info.version == (await memory.head("k")).version
    assert faulty.count("put") == 2


async def test_throttled_to_the_end(faulty, store, time):
    """The budget bounds it: a clear Throttled, the store not hammered, nothing written."""
    faulty.fail("put", "k", error=Throttled, times=5)
    with pytest.raises(Throttled) as caught:
        await store.put("k", b"1", IF_ABSENT)
    assert not caught.value.ambiguous
    assert time.now <= 20


async def test_unavailable_to_the_end_remembers_ambiguity(faulty, time):
    """If any try may have been committed the error says so, also when the last one was not sent."""
    faulty.fail("put", "k", ambiguous=True)
    faulty.fail("put", "k", nth=2, times=5)
    with pytest.raises(Unavailable) as caught:
        await retrying(faulty, time, budget=5.0).put("k", b"1", IF_ABSENT)
    assert caught.value.ambiguous


async def test_backoff_after_unavailable(faulty, store, time):
    """Waits double from a tenth of a second, with full jitter."""
    faulty.fail("get", "k", times=5)
    with pytest.raises(NotFound):
        await store.get("k")
    assert time.sleeps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6], rel=0.01)


@pytest.mark.parametrize("error", [Unavailable, Throttled])
async def test_reads_are_retried(store, faulty, memory, error):
    """get, head, list and the beginning of a stream survive outages and throttling."""
    await memory.put("k", b"1", OVERWRITE)
    for op in ("get", "head", "list", "stream"):
        faulty.fail(op, "*", error=error, times=2)
    assert (await store.get("k")).body == b"1"
    assert (await store.head("k")).size == 1
    assert len((await store.list("")).objects) == 1
    assert [chunk async for chunk in store.stream("k")] == [b"1"]


async def test_a_stream_is_not_retried_once_it_has_begun(store, faulty, memory):
    """The consumer has seen bytes: breaking off is an error and no second beginning."""
    await memory.put("k", b"1", OVERWRITE)
    faulty.fail("stream", "k", when="after")
    with pytest.raises(Unavailable):
        [chunk async for chunk in store.stream("k")]
    assert faulty.count("stream") == 1


async def test_a_failed_list_is_no_empty_list(faulty, store, memory):
    """A store that answers 503 to the end fails the call and changes nothing."""
    await memory.put("k", b"1", OVERWRITE)
    faulty.fail("list", "*", times=9)
    with pytest.raises(Unavailable):
        await retrying(faulty, Time(), budget=30.0).list("")
    assert len((await store.list("")).objects) == 1


@pytest.mark.parametrize("error", [Conflict, NotFound, PermissionDenied])
async def test_what_retrying_does_not_help_is_not_retried(store, faulty, time, error):
    """NotFound, Conflict and PermissionDenied come out at once."""
    faulty.fail("get", "k", error=error)
    with pytest.raises(error):
        await store.get("k")
    assert time.sleeps == []


async def test_a_put_stream_is_tried_once(store, faulty):
    """Its iterator is consumed, so even a harmless failure is the caller's to repeat."""
    faulty.fail("put_stream", "k")
    with pytest.raises(Unavailable):
        await store.put_stream("k", chunks(b"1"), IF_ABSENT)
    assert faulty.count("put_stream") == 1


async def test_a_put_stream_that_lost_a_race_is_a_conflict(store, memory):
    """The read-back finds another's write id."""
    await memory.put("k", b"theirs", OVERWRITE)
    with pytest.raises(Conflict):
        await store.put_stream("k", chunks(b"mine"), IF_ABSENT)


async def test_a_retried_delete_that_finds_nothing_has_deleted(store, faulty, memory):
    """Deleted, answer lost: the repetition's NotFound is success. A first NotFound is reported."""
    info = await memory.put("k", b"1", OVERWRITE)
    faulty.fail("delete", "k", when="after")
    await store.delete("k", version=info.version)
    with pytest.raises(NotFound):
        await store.delete("k")


async def test_a_retried_delete_that_finds_another_version(store, faulty, memory):
    """Somebody created the key again meanwhile: a Conflict, which says that ours may have been deleted."""
    info = await memory.put("k", b"1", OVERWRITE)

    async def again(key):
        await memory.put(key, b"2", OVERWRITE)

    faulty.act("delete", "k", again, when="after")
    faulty.fail("delete", "k", when="after")
    with pytest.raises(Conflict) as caught:
        await store.delete("k", version=info.version)
    assert caught.value.ambiguous
    assert (await memory.get("k")).body == b"2"


async def test_closing_closes_the_store_below(memory):
    """The decorator owns what it wraps."""

    class Closing(MemoryStore):
        closed = False

        async def close(self):
            self.closed = True

    below = Closing()
    await RetryingStore(below).close()
    assert below.closed
