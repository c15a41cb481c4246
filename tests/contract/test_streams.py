"""Streams: flat memory, nothing published by a failure, checksums verified at the end."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import tracemalloc
from contextlib import aclosing

import pytest

from a2a_gcs.errors import Conflict, NotFound, Unavailable
from a2a_gcs.objectstore import IF_ABSENT, OVERWRITE, Blob, IfVersion, LocalStore, MemoryStore

MIB = 1024 * 1024
CHUNK = 8 * MIB
SIZES = [0, 1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 12345]


class BrokenOff(Exception):
    pass


async def numbered(size, piece=700_001):
    """`size` bytes that differ from piece to piece."""
    for start in range(0, size, piece):
        yield (start.to_bytes(8, "big") * (piece // 8 + 1))[: min(piece, size - start)]


async def collect(chunks):
    return b"".join([chunk async for chunk in chunks])


@pytest.mark.parametrize("size", SIZES)
async def test_streams_up_and_down(store, size):
    """Around every chunk border, what is streamed up comes down again, by stream and by get."""
    body = await collect(numbered(size))
    info = await store.put_stream("k", numbered(size), IF_ABSENT, metadata={"m": "ü"}, content_type="application/gzip")
    assert info.size == size
    assert info.metadata["m"] == "ü"
    assert await collect(store.stream("k", version=info.version)) == body
    blob = await store.get("k", with_metadata=True)
    assert blob.body == body
    assert (blob.info.version, blob.info.crc32c, blob.info.content_type) == (
        info.version,
        info.crc32c,
        "application/gzip",
    )


@pytest.mark.parametrize("size", [100, 2 * CHUNK + 5], ids=["short", "long"])
async def test_an_exception_in_mid_stream_publishes_nothing(store, size):
    """It comes out unchanged at nine tenths; the old object stays as it was and no new one appears."""

    async def breaking():
        async for chunk in numbered(size * 9 // 10, piece=max(1, size // 20)):
            yield chunk
        raise BrokenOff

    old = await store.put("old", b"old", IF_ABSENT)
    with pytest.raises(BrokenOff):
        await store.put_stream("old", breaking(), IfVersion(old.version))
    with pytest.raises(BrokenOff):
        await store.put_stream("new", breaking(), IF_ABSENT)
    blob = await store.get("old")
    assert (blob.body, blob.info.version) == (b"old", old.version)
    with pytest.raises(NotFound):
        await store.head("new")
    assert [info.key for info in (await store.list("")).objects] == ["old"]


async def test_short_stream_holds_its_condition(store):
    """The condition of a streamed write is the condition of a write."""
    await store.put("k", b"old", IF_ABSENT)
    with pytest.raises(Conflict):
        await store.put_stream("k", numbered(10), IF_ABSENT)
    assert (await store.get("k")).body == b"old"


async def test_long_stream_holds_its_condition(store):
    """Also when it is longer than one request."""
    await store.put("k", b"old", IF_ABSENT)
    with pytest.raises(Conflict):
        await store.put_stream("k", numbered(CHUNK + 1), IF_ABSENT)
    assert (await store.get("k")).body == b"old"


async def test_a_download_is_of_one_version(store):
    """A write in mid-download cannot mix two versions: the reader gets the old bytes or an error."""
    body = await collect(numbered(3 * MIB))
    await store.put("k", body, OVERWRITE)
    received = bytearray()
    async with aclosing(store.stream("k")) as chunks:
        async for chunk in chunks:
            if not received:
                await store.put("k", b"x" * len(body), OVERWRITE)
            received += chunk
    assert bytes(received) == body


async def test_a_download_may_be_left_early(store):
    """Leaving a stream after its first chunk is no error and the store stays usable."""
    await store.put("k", b"x" * 3 * MIB, OVERWRITE)
    async with aclosing(store.stream("k")) as chunks:
        assert len(await anext(chunks)) <= 4 * MIB
    assert (await store.head("k")).size == 3 * MIB


@pytest.mark.parametrize(
    "rig", ["memory", "local", "retry-memory", "prefix-memory", "instrument-memory", "stack-local"], indirect=True
)
async def test_corruption_is_found(rig):
    """A body that is not what was written raises Unavailable at the end of get and of stream.

    For a bucket test_gcs_transport.py damages the bytes on the wire.
    """
    await rig.store.put("k", b"x" * 3 * MIB, OVERWRITE)
    CORRUPT[type(rig.adapter)](rig.adapter)
    with pytest.raises(Unavailable):
        await rig.store.get("k")
    with pytest.raises(Unavailable):
        await collect(rig.store.stream("k"))


@pytest.mark.parametrize(
    ("rig", "size"), [("local", 200 * MIB), ("gcs", 96 * MIB), ("stack-gcs", 96 * MIB)], indirect=["rig"]
)
async def test_flat_memory(rig, size):
    """Streaming up and down holds a few chunks at a time, however long the object is."""
    digests = [hashlib.blake2b(), hashlib.blake2b()]

    async def source():
        async for chunk in numbered(size, piece=MIB):
            digests[0].update(chunk)
            yield chunk

    tracemalloc.start()
    try:
        info = await rig.store.put_stream("k", source(), OVERWRITE)
        async for chunk in rig.store.stream("k"):
            digests[1].update(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert info.size == size
    assert digests[0].digest() == digests[1].digest()
    assert peak < 48 * MIB, f"held {peak / MIB:.0f} MiB"


def _corrupt_memory(adapter):
    for key, blob in list(adapter._objects.items()):
        adapter._objects[key] = Blob(blob.info, b"y" + blob.body[1:])


def _corrupt_local(adapter):
    with contextlib.closing(sqlite3.connect(adapter._root / ".objectstore" / "index.sqlite")) as index, index:
        index.execute("UPDATE bodies SET body = CAST('y' || substr(body, 2) AS BLOB)")
    for path in (adapter._root / ".objectstore" / "blobs").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            with path.open("r+b") as file:
                file.write(b"y")


CORRUPT = {MemoryStore: _corrupt_memory, LocalStore: _corrupt_local}
