"""What every store does with one object: read, write on a condition, delete, compose."""

from __future__ import annotations

import time

import pytest

from a2a_gcs.errors import Conflict, NotFound, StoreError
from a2a_gcs.objectstore import IF_ABSENT, OVERWRITE, WRITE_ID, IfVersion, MemoryStore, Source


def without_write_id(metadata):
    return {name: value for name, value in metadata.items() if name != WRITE_ID}


async def test_a_written_object_reads_back_whole(store):
    """Body, version, size, checksum, metadata and content type come back as they were written."""
    written = await store.put("a/b.json", b"123456789", OVERWRITE, metadata={"k": "v"}, content_type="application/json")
    blob = await store.get("a/b.json", with_metadata=True)
    assert blob.body == b"123456789"
    assert blob.info.version == written.version >= 1
    assert (blob.info.key, blob.info.size) == ("a/b.json", 9)
    assert blob.info.crc32c == "4waSgw=="  # CRC32C of the check string is e3069283
    assert without_write_id(blob.info.metadata) == {"k": "v"}
    assert blob.info.content_type == "application/json"


async def test_head_says_what_get_says(store):
    """head, put and get with metadata agree about an object."""
    written = await store.put("k", b"body", OVERWRITE, metadata={"a": "1"}, content_type="text/plain")
    read = (await store.get("k", with_metadata=True)).info
    head = await store.head("k")
    for info in (read, head):
        assert (info.key, info.version, info.size, info.crc32c) == ("k", written.version, 4, written.crc32c)
        assert (info.metadata, info.content_type) == (written.metadata, "text/plain")
        assert info.updated == pytest.approx(written.updated, abs=0.001)


async def test_a_plain_get_withholds_what_is_not_promised(store):
    """Without with_metadata there is no metadata and no time of writing, on any store."""
    await store.put("k", b"body", OVERWRITE, metadata={"a": "1"})
    info = (await store.get("k")).info
    assert (dict(info.metadata), info.updated) == ({}, 0.0)


async def test_age_comes_from_the_stores_clock(store):
    """Every answer carries the store's time, so that a new object is a moment old."""
    before = time.time()
    await store.put("k", b"", OVERWRITE)
    for info in (await store.head("k"), (await store.get("k", with_metadata=True)).info):
        assert info.as_of >= before - 1  # HTTP Date counts whole seconds
        assert -1.1 < info.age < 10


async def test_empty_body(store):
    """An object may be empty."""
    await store.put("k", b"", OVERWRITE)
    assert (await store.get("k")).body == b""
    assert [chunk async for chunk in store.stream("k")] in ([], [b""])


async def test_absent_objects_are_not_found(store):
    """get, head, stream and delete of nothing raise NotFound with the key that was given."""
    for call in (store.get("no"), store.get("no", with_metadata=True), store.head("no"), store.delete("no")):
        with pytest.raises(NotFound) as caught:
            await call
        assert caught.value.key == "no"
    with pytest.raises(NotFound):
        await anext(store.stream("no"))


async def test_if_absent_writes_once(store):
    """if_absent over an object is a Conflict and changes nothing."""
    first = await store.put("k", b"first", IF_ABSENT)
    with pytest.raises(Conflict) as caught:
        await store.put("k", b"second", IF_ABSENT)
    assert caught.value.key == "k"
    assert not caught.value.ambiguous
    blob = await store.get("k")
    assert (blob.body, blob.info.version) == (b"first", first.version)


async def test_if_version_writes_over_that_version_only(store):
    """if_version succeeds over the current version, and is a Conflict over an old one and over nothing."""
    first = await store.put("k", b"1", IF_ABSENT)
    second = await store.put("k", b"2", IfVersion(first.version))
    with pytest.raises(Conflict):
        await store.put("k", b"3", IfVersion(first.version))
    with pytest.raises(Conflict):
        await store.put("new", b"3", IfVersion(first.version))
    blob = await store.get("k")
    assert (blob.body, blob.info.version) == (b"2", second.version)


async def test_a_write_replaces_metadata_and_type(store):
    """What an earlier version had in metadata is gone after the next write."""
    await store.put("k", b"1", OVERWRITE, metadata={"old": "1"}, content_type="text/plain")
    await store.put("k", b"2", OVERWRITE, metadata={"new": "2"})
    info = await store.head("k")
    assert without_write_id(info.metadata) == {"new": "2"}
    assert info.content_type == "application/octet-stream"


async def test_reading_a_version_that_is_not_current_finds_nothing(store):
    """get and stream pinned to a version give that one or NotFound."""
    first = await store.put("k", b"1", OVERWRITE)
    assert (await store.get("k", version=first.version)).body == b"1"
    assert (await store.get("k", version=first.version, with_metadata=True)).body == b"1"
    await store.put("k", b"2", OVERWRITE)
    with pytest.raises(NotFound):
        await store.get("k", version=first.version)
    with pytest.raises(NotFound):
        await store.get("k", version=first.version, with_metadata=True)
    with pytest.raises(NotFound):
        await anext(store.stream("k", version=first.version))


async def test_delete(store):
    """A deleted object is gone; deleting it again is NotFound; with its version it goes too."""
    written = await store.put("k", b"1", OVERWRITE)
    await store.delete("k", version=written.version)
    with pytest.raises(NotFound):
        await store.get("k")
    with pytest.raises(NotFound):
        await store.delete("k")


async def test_deleting_another_version_is_a_conflict(store):
    """A delete pinned to an old version leaves the new one."""
    first = await store.put("k", b"1", OVERWRITE)
    await store.put("k", b"2", OVERWRITE)
    with pytest.raises(Conflict):
        await store.delete("k", version=first.version)
    assert (await store.get("k")).body == b"2"


async def test_versions_never_repeat(store):
    """Also after deletion: a reader that holds an old version can never take a new object for it."""
    seen = []
    for _ in range(5):
        seen.append((await store.put("k", b"1", IF_ABSENT)).version)
        seen.append((await store.put("k", b"1", OVERWRITE)).version)
        await store.delete("k")
    assert len(set(seen)) == len(seen)
    with pytest.raises(Conflict):
        await store.put("k", b"2", IfVersion(seen[-1]))


async def test_compose_joins_objects(store):
    """The result is the concatenation with the checksum of the whole; of one source it is a copy."""
    await store.put("p/1", b"12345", OVERWRITE)
    await store.put("p/2", b"6789", OVERWRITE)
    joined = await store.compose(
        "all", [Source("p/1"), Source("p/2")], OVERWRITE, metadata={"m": "1"}, content_type="application/gzip"
    )
    blob = await store.get("all", with_metadata=True)
    assert (blob.body, blob.info.crc32c) == (b"123456789", "4waSgw==")
    assert blob.info.version == joined.version
    assert (without_write_id(blob.info.metadata), blob.info.content_type) == ({"m": "1"}, "application/gzip")
    await store.compose("copy", [Source("all", joined.version)], IF_ABSENT)
    assert (await store.get("copy")).body == b"123456789"


async def test_compose_without_a_source_writes_nothing(store):
    """A missing source is NotFound and leaves no object."""
    with pytest.raises(NotFound):
        await store.compose("all", [Source("missing")], OVERWRITE)
    with pytest.raises(NotFound):
        await store.head("all")


async def test_compose_holds_its_condition(store):
    """if_absent over an object is a Conflict, as for put."""
    await store.put("part", b"new", OVERWRITE)
    await store.put("all", b"old", OVERWRITE)
    with pytest.raises(Conflict):
        await store.compose("all", [Source("part")], IF_ABSENT)
    assert (await store.get("all")).body == b"old"


async def test_compose_holds_the_versions_of_its_sources(store):
    """A source that has moved on is a Conflict, and nothing is written."""
    first = await store.put("part", b"1", OVERWRITE)
    await store.put("part", b"2", OVERWRITE)
    with pytest.raises(Conflict):
        await store.compose("all", [Source("part", first.version)], IF_ABSENT)
    with pytest.raises(NotFound):
        await store.head("all")


async def test_a_composed_object_gets_a_new_version(store):
    """Composing onto an object is a write like any other: the version moves."""
    before = await store.put("all", b"old", OVERWRITE)
    await store.put("part", b"new", OVERWRITE)
    after = await store.compose("all", [Source("part")], IfVersion(before.version))
    assert after.version != before.version


async def test_closing_twice(rig):
    """close may be called twice; a store that held something open is unusable then, in the closed set."""
    store = rig.store
    await store.put("k", b"1", OVERWRITE)
    await store.close()
    await store.close()
    if not isinstance(rig.adapter, MemoryStore):
        with pytest.raises(StoreError) as caught:
            await store.get("k")
        assert caught.value.key == "k"
