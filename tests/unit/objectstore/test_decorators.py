"""Counting, prefixes, locations, rules and the scripted store itself."""

from __future__ import annotations

import subprocess
import sys
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

import a2a_gcs.objectstore
from a2a_gcs.errors import ConfigError, Conflict, NotFound
from a2a_gcs.objectstore import (
    IF_ABSENT,
    OVERWRITE,
    GCSStore,
    InstrumentedStore,
    LocalStore,
    MemoryStore,
    PrefixStore,
    RetryingStore,
    Source,
    StoreStats,
    open_store,
)
from a2a_gcs.objectstore.rules import Crc32c, crc32c
from tests.support.faulty_store import FaultyStore


async def chunks(*pieces):
    for piece in pieces:
        yield piece


async def test_operations_are_counted_as_they_are_billed():
    """Writes, lists and composes are class A, reads class B, a get with metadata two, deletes free."""
    store = InstrumentedStore(MemoryStore())
    await store.put("k", b"12345", OVERWRITE)
    await store.put_stream("s", chunks(b"123", b"4"), OVERWRITE)
    await store.compose("c", [Source("k"), Source("s")], OVERWRITE)
    await store.list("")
    await store.get("k")
    await store.get("k", with_metadata=True)
    await store.head("k")
    assert [chunk async for chunk in store.stream("s")] == [b"1234"]
    await store.delete("k")
    stats = store.stats
    assert (stats.class_a, stats.class_b, stats.free) == (4, 5, 1)
    assert (stats.bytes_in, stats.bytes_out) == (9, 14)
    assert stats.operations == dict.fromkeys(
        ("put", "put_stream", "compose", "list", "head", "stream", "delete"), 1
    ) | {"get": 2}
    assert not stats.errors


async def test_failed_calls_are_counted_too():
    """A 404 and a 412 cost what a success costs."""
    store = InstrumentedStore(MemoryStore())
    await store.put("k", b"", OVERWRITE)
    with pytest.raises(NotFound):
        await store.get("no")
    with pytest.raises(Conflict):
        await store.put("k", b"", IF_ABSENT)
    assert (store.stats.class_a, store.stats.class_b) == (2, 1)
    assert store.stats.errors == {"NotFound": 1, "Conflict": 1}


@pytest.mark.parametrize(
    "decorate", [RetryingStore, InstrumentedStore, FaultyStore, lambda store: PrefixStore(store, "p")]
)
async def test_leaving_a_stream_ends_the_one_below(decorate):
    """A reader that leaves early frees the connection at once, through every decorator."""
    ended = []

    class Endless(MemoryStore):
        async def stream(self, key, *, version=None):
            try:
                while True:
                    yield b"1"
            finally:
                ended.append(key)

    async with aclosing(decorate(Endless()).stream("k")) as chunks:
        assert await anext(chunks) == b"1"
        assert ended == []
    assert len(ended) == 1


async def test_a_prefix_hides_everything_else():
    """Keys outside cannot be read, listed, composed or deleted, and errors name the key that was given."""
    below = MemoryStore()
    await below.put("k", b"outside", OVERWRITE)
    await below.put("root2/k", b"outside", OVERWRITE)
    store = PrefixStore(below, "root")
    for call in (
        store.get("k"),
        store.head("k"),
        store.delete("k"),
        store.compose("x", [Source("k")], OVERWRITE),
        anext(store.stream("k")),
    ):
        with pytest.raises(NotFound) as caught:
            await call
        assert caught.value.key == "k"
    assert (await store.list("")).objects == []
    await store.put("k", b"inside", IF_ABSENT)
    assert (await below.get("root/k")).body == b"inside"


@pytest.mark.parametrize("prefix", ["", "/", "a//b", "/a", "..", "a/../b", "."])
def test_a_prefix_is_path_segments(prefix):
    """Anything that could be read as another place is refused."""
    with pytest.raises(ValueError):
        PrefixStore(MemoryStore(), prefix)


def test_locations(tmp_path):
    """None and "memory", a directory, a bucket, a bucket with a prefix; an object is used as it is."""
    own = MemoryStore()
    assert open_store(own) is own
    assert isinstance(open_store(None), MemoryStore)
    assert isinstance(open_store("memory"), MemoryStore)
    local = open_store(f"file:{tmp_path}/d")
    assert isinstance(local, RetryingStore)
    assert isinstance(local._store._store, LocalStore)
    assert local._store._store._root == tmp_path / "d"
    bucket = open_store("gs://bucket")
    assert isinstance(bucket, RetryingStore)
    assert isinstance(bucket._store._store, GCSStore)
    assert isinstance(open_store("gs://bucket/")._store._store, GCSStore)
    prefixed = open_store("gs://bucket/some/prefix/")
    assert isinstance(prefixed, PrefixStore)
    assert prefixed._prefix == "some/prefix/"
    assert isinstance(prefixed._store, RetryingStore)


async def test_stats_count_tries(tmp_path):
    """Counting happens below the retries, where the bill is made."""
    stats = StoreStats()
    async with open_store(f"file:{tmp_path}", stats=stats) as store:
        await store.put("k", b"1", IF_ABSENT)
        with pytest.raises(Conflict):
            await store.put("k", b"1", IF_ABSENT)
    assert stats.operations == {"put": 2, "head": 1}


@pytest.mark.parametrize(
    "where",
    ["", "Memory", "file:", "gs://", "gs:///x", "gs://UPPER", "gs://b/..", "gs://bucket//x", "s3://b", "/tmp/x", 3],
)
def test_anything_else_names_the_accepted_forms(where):
    """A typo in a store URI says what to write instead."""
    with pytest.raises(ConfigError) as caught:
        open_store(where)
    for form in ('"memory"', "file:<dir>", "gs://bucket[/prefix]"):
        assert form in str(caught.value)


def test_every_public_name_is_there():
    """Names that are imported late exist, and unknown ones are AttributeErrors."""
    for name in a2a_gcs.objectstore.__all__:
        assert getattr(a2a_gcs.objectstore, name) is not None
    with pytest.raises(AttributeError):
        _ = a2a_gcs.objectstore.nothing


def test_the_port_alone_imports_no_gcs_client():
    """A local store does not pay half a second for a client that it never uses."""
    code = (
        "import sys; from a2a_gcs.objectstore import ObjectStore, open_store; open_store('memory'); "
        "sys.exit('gcsfs' in sys.modules)"
    )
    path = [entry for entry in sys.path if entry]
    assert (
        subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"], check=False).returncode
        == 0
    )


@given(st.lists(st.binary()))
def test_checksums_add_up(pieces):
    """The running checksum of pieces is the checksum of the whole."""
    running = Crc32c()
    for piece in pieces:
        running.update(piece)
    assert running.encoded() == crc32c(b"".join(pieces))


async def test_a_fault_that_was_not_served_fails():
    """A script that never happened is a test that proves nothing."""
    store = FaultyStore(MemoryStore())
    store.fail("put", "never")
    with pytest.raises(AssertionError, match="never"):
        store.verify()


async def test_a_held_call_waits_at_the_gate():
    """A write held before its commit is invisible until it is released."""
    import asyncio

    async with FaultyStore(MemoryStore()) as store:
        gate = store.hold("put", "k")
        writing = asyncio.create_task(store.put("k", b"late", IF_ABSENT))
        await gate.reached.wait()
        with pytest.raises(NotFound):
            await store.head("k")
        gate.release()
        await writing
        assert (await store.head("k")).size == 4
