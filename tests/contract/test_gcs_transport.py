"""The GCS adapter on a wire that loses, damages and refuses."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
import pytest_asyncio

from a2a_gcs.errors import Conflict, NotFound, PermissionDenied, StoreError, Throttled, Unavailable
from a2a_gcs.objectstore import IF_ABSENT, OVERWRITE, GCSStore, IfVersion, RetryingStore, Source
from tests.contract.proxy import Proxy
from tests.contract.test_streams import collect, numbered
from tests.support.ports import free_port

MIB = 1024 * 1024
CHUNK = 8 * MIB


async def no_sleep(seconds):
    await asyncio.sleep(0)


@pytest_asyncio.fixture
async def proxy(emulator):
    async with Proxy(emulator.url) as running:
        yield running


@pytest_asyncio.fixture
async def store(proxy, bucket):
    async with GCSStore(bucket, emulator=proxy.url, sleep=no_sleep) as opened:
        yield opened


def error_body(status, reason):
    return json.dumps({"error": {"code": status, "message": "m", "errors": [{"reason": reason}]}}).encode()


CALLS = {
    "get": ("GET", "alt=media", lambda s: s.get("k")),
    "get_both": ("GET", "fields", lambda s: s.get("k", with_metadata=True)),
    "head": ("GET", "/o/k", lambda s: s.head("k")),
    "stream": ("GET", "alt=media", lambda s: collect(s.stream("k"))),
    "list": ("GET", "maxResults", lambda s: s.list("")),
    "put": ("POST", "multipart", lambda s: s.put("k", b"new", OVERWRITE)),
    "put_stream": ("POST", "resumable", lambda s: s.put_stream("k", numbered(CHUNK + 1), OVERWRITE)),
    "compose": ("POST", "compose", lambda s: s.compose("k", [Source("k")], OVERWRITE)),
    "delete": ("DELETE", "/o/k", lambda s: s.delete("k")),
}
WRITES = {"put", "compose", "delete"}  # those whose first request can commit
STATUSES = [
    (401, "", PermissionDenied),
    (403, "forbidden", PermissionDenied),
    (403, "rateLimitExceeded", Throttled),
    (404, "", NotFound),
    (409, "conflict", Conflict),
    (412, "conditionNotMet", Conflict),
    (429, "rateLimitExceeded", Throttled),
    (400, "invalid", Unavailable),
    (408, "", Unavailable),
    (500, "", Unavailable),
    (502, "", Unavailable),
    (503, "invalid", Unavailable),
    (504, "", Unavailable),
]


@pytest.mark.parametrize("answer", STATUSES, ids=lambda answer: f"{answer[0]}{answer[1]}")
@pytest.mark.parametrize("call", CALLS)
async def test_every_failure_is_of_the_closed_set(proxy, store, call, answer):
    """Each status becomes one error of the port, once, with the key; a write that may have happened says so."""
    await store.put("k", b"old", OVERWRITE)
    status, reason, expected = answer
    method, part, run = CALLS[call]
    proxy.script(method, part, status=status, body=error_body(status, reason))
    sent = len(proxy.requests(method, part))
    if expected is Conflict and method == "GET" and call != "list":
        expected = NotFound  # a read pinned to a version that is not current
    with pytest.raises(StoreError) as caught:
        await run(store)
    assert type(caught.value) is expected
    assert caught.value.key == ("" if call == "list" else "k")
    assert caught.value.cause is not None
    assert caught.value.ambiguous == (call in WRITES and (status == 408 or status >= 500))
    assert len(proxy.requests(method, part)) == sent + 1


@pytest.mark.parametrize("call", CALLS)
async def test_a_lost_answer_is_unavailable_and_sent_once(proxy, store, call):
    """A connection that breaks after the request is Unavailable, ambiguous for writes; nothing repeats it unasked."""
    await store.put("k", b"old", OVERWRITE)
    method, part, run = CALLS[call]
    proxy.script(method, part, forward=True)
    sent = len(proxy.requests(method, part))
    with pytest.raises(Unavailable) as caught:
        await run(store)
    assert caught.value.ambiguous == (call in WRITES)
    assert len(proxy.requests(method, part)) == sent + 1


async def test_no_connection_is_unavailable_and_not_ambiguous(bucket):
    """What was never sent cannot have been written."""
    async with GCSStore(bucket, emulator=f"127.0.0.1:{free_port()}") as store:
        with pytest.raises(Unavailable) as caught:
            await store.put("k", b"", OVERWRITE)
        assert not caught.value.ambiguous


async def test_a_slow_answer_is_unavailable(bucket):
    """A server that does not answer within the time-out is Unavailable, and the write ambiguous."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, as the kernel does that, and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with GCSStore(bucket, emulator=address, timeout=1.0) as store:
            with pytest.raises(Unavailable) as caught:
                await store.put("k", b"", OVERWRITE)
    assert caught.value.ambiguous


async def test_conditions_go_out_with_every_conditional_verb(proxy, store):
    """ifGenerationMatch stands in the query of put, both streams, delete, compose and pinned reads."""
    info = await store.put("k", b"1", IF_ABSENT)
    pinned = f"ifGenerationMatch={info.version}"
    await store.get("k", version=info.version, with_metadata=True)
    assert len(proxy.requests("GET", pinned)) == 2
    await collect(store.stream("k", version=info.version))
    assert len(proxy.requests("GET", pinned)) == 3
    await store.put("k", b"2", IfVersion(info.version))
    assert len(proxy.requests("POST", "uploadType=multipart&ifGenerationMatch=0")) == 1
    assert len(proxy.requests("POST", f"uploadType=multipart&{pinned}")) == 1
    await store.put_stream("s", numbered(10), IF_ABSENT)
    assert len(proxy.requests("POST", "uploadType=multipart&ifGenerationMatch=0")) == 2
    await store.put_stream("s2", numbered(CHUNK + 1), IF_ABSENT)
    assert len(proxy.requests("POST", "uploadType=resumable&ifGenerationMatch=0")) == 1
    part = await store.head("k")
    await store.compose("c", [Source("k", part.version)], IF_ABSENT)
    (composed,) = proxy.requests("POST", "compose?ifGenerationMatch=0")
    assert json.loads(composed.body)["sourceObjects"] == [
        {"name": "k", "objectPreconditions": {"ifGenerationMatch": str(part.version)}}
    ]
    await store.delete("k", version=part.version)
    assert len(proxy.requests("DELETE", f"ifGenerationMatch={part.version}")) == 1


async def test_multipart_bodies_are_safe(proxy, store):
    """The boundary is new for every request, lines end in CRLF, and the checksum is declared for GCS to check."""
    for _ in range(2):
        await store.put("k", b"123456789", OVERWRITE)
    first, second = proxy.requests("POST", "multipart")
    assert first.headers["Content-Type"] != second.headers["Content-Type"]
    head, _, _ = first.body.partition(b"123456789")
    assert b"\n" not in head.replace(b"\r\n", b"")
    assert json.loads(head.split(b"\r\n\r\n")[1].split(b"\r\n")[0])["crc32c"] == "4waSgw=="


async def test_names_are_encoded_once(proxy, store):
    """The path on the wire holds every reserved character percent-encoded, and a percent sign as %25."""
    with pytest.raises(NotFound):
        await store.head("a/%2F?#ü \U0001f600")
    (seen,) = proxy.requests("GET")
    assert seen.target.split("?")[0].endswith("/o/a%2F%252F%3F%23%C3%BC%20%F0%9F%98%80")


@pytest.mark.parametrize("read", ["get", "stream"])
async def test_damage_on_the_way_down_is_found(proxy, store, read):
    """One flipped bit of a download is Unavailable, by the checksum that GCS states."""
    await store.put("k", b"x" * 1000, OVERWRITE)
    proxy.script("GET", "alt=media", damage=lambda body: body[:500] + b"X" + body[501:])
    with pytest.raises(Unavailable):
        await (store.get("k") if read == "get" else collect(store.stream("k")))


@pytest.mark.parametrize("dropped", ["X-Goog-Hash", "X-Goog-Generation"])
async def test_damage_is_found_without_the_headers(proxy, store, dropped):
    """Where a media response does not state checksum or generation, the resource does."""
    info = await store.put("k", b"x" * 1000, OVERWRITE)
    proxy.script("GET", "alt=media", drop_headers=(dropped,))
    assert (await store.get("k")).info.version == info.version
    proxy.script("GET", "alt=media", drop_headers=(dropped,), damage=lambda body: b"y" + body[1:])
    with pytest.raises(Unavailable):
        await collect(store.stream("k"))


async def test_body_and_metadata_are_taken_from_one_version(proxy, store, emulator, bucket):
    """A write between the two requests of a read shows in their generations, and both are sent again."""
    await store.put("k", b"same", OVERWRITE, metadata={"n": "1"})
    resource_answered = asyncio.Event()

    async def answered():
        resource_answered.set()

    async def overwrite():
        await resource_answered.wait()
        async with GCSStore(bucket, emulator=emulator.url) as other:
            await other.put("k", b"same", OVERWRITE, metadata={"n": "2"})

    proxy.script("GET", "fields=", after=answered)
    proxy.script("GET", "alt=media", before=overwrite)
    blob = await store.get("k", with_metadata=True)
    assert blob.info.metadata == {"n": "2"}
    assert blob.info.version == (await store.head("k")).version


async def test_nothing_is_decompressed(proxy, store):
    """Bytes are identical whatever they look like: no transparent gzip, and none is asked for."""
    import gzip

    body = gzip.compress(b"text" * 100)
    await store.put("w.tar.gz", body, OVERWRITE, content_type="application/gzip")
    assert (await store.get("w.tar.gz")).body == body
    assert await collect(store.stream("w.tar.gz")) == body
    for seen in proxy.seen:
        assert seen.headers["Accept-Encoding"] == "identity"
        assert "Content-Encoding" not in seen.headers
        assert b"contentEncoding" not in seen.body[:1000]


async def test_a_failed_list_changes_nothing(proxy, store):
    """A 503 is an error and never an empty listing."""
    await store.put("k", b"1", OVERWRITE)
    proxy.script("GET", "maxResults", status=503)
    with pytest.raises(Unavailable):
        await store.list("")
    assert [info.key for info in (await store.list("")).objects] == ["k"]


async def test_a_committed_put_with_a_lost_answer_is_a_success(proxy, store):
    """Through RetryingStore the repetition meets its own success as 412 and recognises it."""
    retrying = RetryingStore(store, sleep=no_sleep)
    proxy.script("POST", "multipart", forward=True)
    info = await retrying.put("k", b"1", IF_ABSENT)
    assert info.version == (await store.head("k")).version
    assert len(proxy.requests("POST", "multipart")) == 2


async def test_the_final_answer_of_a_resumable_upload_is_lost(proxy, store):
    """The session is asked with `bytes */total`, and the last chunk is not sent a second time."""
    size = CHUNK + 1000
    proxy.script("PUT", f"bytes {CHUNK}-{size - 1}/{size}", forward=True)
    # fake-gcs-server forgets a finished session; GCS answers with the object.
    resource = {"name": "k", "generation": "7", "size": str(size), "updated": "2026-01-01T00:00:00Z"}
    checksum = (await store.put("same", await collect(numbered(size)), OVERWRITE)).crc32c
    proxy.script("PUT", f"bytes */{size}", status=200, body=json.dumps({**resource, "crc32c": checksum}).encode())
    info = await store.put_stream("k", numbered(size), OVERWRITE)
    assert info.version == 7
    assert len(proxy.requests("PUT", f"bytes {CHUNK}-")) == 1
    assert await collect(store.stream("k")) == await collect(numbered(size))


async def test_a_chunk_that_was_not_persisted_is_sent_again(proxy, store):
    """A 503 on a chunk: the session says how much it holds, and exactly the rest is sent."""
    size = 2 * CHUNK + 1000
    proxy.script("PUT", f"bytes {CHUNK}-", status=503)
    # What GCS answers; fake-gcs-server would finish the upload.
    proxy.script("PUT", "bytes */*", status=308, headers={"Range": f"bytes=0-{CHUNK - 1}"})
    await store.put_stream("k", numbered(size), OVERWRITE)
    assert len(proxy.requests("PUT", f"bytes {CHUNK}-")) == 2
    assert await collect(store.stream("k")) == await collect(numbered(size))


async def test_a_session_that_lost_confirmed_bytes_is_given_up(proxy, store):
    """They are gone from this process's memory, so the upload fails and publishes nothing."""
    proxy.script("PUT", f"bytes {CHUNK}-", status=503)
    proxy.script("PUT", "bytes */*", status=308)  # no Range: the session holds nothing
    with pytest.raises(Unavailable) as caught:
        await store.put_stream("k", numbered(2 * CHUNK + 1000), OVERWRITE)
    assert not caught.value.ambiguous
    assert proxy.requests("DELETE", "upload_id")
    with pytest.raises(NotFound):
        await store.head("k")


async def test_a_refused_final_chunk_is_asked_about_and_resent(proxy, store):
    """A 503 on the last chunk: GCS holds what came before, so the rest goes out once more and only then."""
    size = CHUNK + 1000
    proxy.script("PUT", f"bytes {CHUNK}-", status=503)
    proxy.script("PUT", f"bytes */{size}", status=308, headers={"Range": f"bytes=0-{CHUNK - 1}"})
    info = await store.put_stream("k", numbered(size), OVERWRITE)
    assert info.size == size
    assert len(proxy.requests("PUT", f"bytes {CHUNK}-")) == 2
    assert await collect(store.stream("k")) == await collect(numbered(size))


async def test_a_session_that_cannot_be_asked_is_ambiguous(proxy, store):
    """If the last answer is lost and the session is gone, the write may have happened."""
    size = CHUNK + 1000
    proxy.script("PUT", f"bytes {CHUNK}-", forward=True)
    proxy.script("PUT", f"bytes */{size}", status=404)
    with pytest.raises(Unavailable) as caught:
        await store.put_stream("k", numbered(size), OVERWRITE)
    assert caught.value.ambiguous
    retrying = RetryingStore(store, sleep=no_sleep)
    proxy.script("PUT", f"bytes {CHUNK}-", forward=True)
    proxy.script("PUT", f"bytes */{size}", status=404)
    info = await retrying.put_stream("r", numbered(size), IF_ABSENT)
    assert info.version == (await store.head("r")).version


async def test_an_exception_cancels_the_session(proxy, store):
    """The iterator's exception ends the session on the server with DELETE; cancellation does too."""

    async def breaking(error):
        async for chunk in numbered(2 * CHUNK):
            yield chunk
        raise error

    for error in (KeyError("x"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await store.put_stream("k", breaking(error), OVERWRITE)
    assert len(proxy.requests("DELETE", "upload_id")) == 2
    with pytest.raises(NotFound):
        await store.head("k")


@pytest.mark.parametrize("scheme", ["", "http://"])
async def test_storage_emulator_host_is_honoured(emulator, bucket, monkeypatch, scheme):
    """With or without http://, without credentials."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"{scheme}{emulator.host}:{emulator.port}")
    async with GCSStore(bucket) as store:
        await store.put("k", b"1", IF_ABSENT)
        assert (await store.get("k")).body == b"1"
