"""Rule `resumable`."""

import pytest

QUANTUM = 256 * 1024
BODY = bytes(range(256)) * 1024 * 3  # three quanta


def test_chunks_add_up(api):
    """Chunks of 256 KiB make one object; 308 with Range says what is persisted."""
    location = api.start()
    first = api.chunk(location, BODY[:QUANTUM], f"bytes 0-{QUANTUM - 1}/{len(BODY)}")
    assert (first.status_code, first.headers["Range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    assert api.generation() == 0
    last = api.chunk(location, BODY[QUANTUM:], f"bytes {QUANTUM}-{len(BODY) - 1}/{len(BODY)}")
    assert last.status_code == 200
    assert last.json()["size"] == str(len(BODY))
    assert api.read().content == BODY


def test_unknown_length(api):
    """Chunks of an object whose size is not yet known carry `/*`; the last one says it, and may be short."""
    location = api.start()
    assert api.chunk(location, BODY[:QUANTUM], f"bytes 0-{QUANTUM - 1}/*").status_code == 308
    last = api.chunk(location, b"end", f"bytes {QUANTUM}-{QUANTUM + 2}/{QUANTUM + 3}")
    assert last.status_code == 200
    assert api.read().content == BODY[:QUANTUM] + b"end"


def test_status_query_does_not_finish(api):
    """`bytes */*` tells what is persisted, and the upload goes on."""
    location = api.start()
    fresh = api.chunk(location, b"", "bytes */*")
    assert fresh.status_code == 308
    assert "Range" not in fresh.headers
    api.chunk(location, BODY[:QUANTUM], f"bytes 0-{QUANTUM - 1}/*")
    status = api.chunk(location, b"", "bytes */*")
    assert (status.status_code, status.headers["Range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    assert api.generation() == 0


def test_total_finishes_what_is_complete(api):
    """`bytes */TOTAL` finishes an upload of unknown length once TOTAL bytes are persisted, not before."""
    location = api.start()
    api.chunk(location, BODY[: 2 * QUANTUM], f"bytes 0-{2 * QUANTUM - 1}/*")
    assert api.chunk(location, b"", f"bytes */{3 * QUANTUM}").status_code == 308
    api.chunk(location, BODY[2 * QUANTUM :], f"bytes {2 * QUANTUM}-{3 * QUANTUM - 1}/{3 * QUANTUM}")
    assert api.read().content == BODY


def test_total_as_a_request_of_its_own(api):
    """An upload whose last chunk did not know to be the last is finished by `bytes */TOTAL`."""
    location = api.start()
    api.chunk(location, BODY, f"bytes 0-{len(BODY) - 1}/*")
    assert api.chunk(location, b"", f"bytes */{len(BODY)}").status_code == 200
    assert api.read().content == BODY


def test_repeated_chunk_is_ignored(api):
    """Bytes that are persisted already are ignored when they are sent again."""
    location = api.start()
    for _ in range(2):
        again = api.chunk(location, BODY[:QUANTUM], f"bytes 0-{QUANTUM - 1}/*")
        assert (again.status_code, again.headers["Range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    assert api.chunk(location, BODY, f"bytes 0-{len(BODY) - 1}/{len(BODY)}").status_code == 200
    assert api.read().content == BODY


def test_short_chunk_is_refused(api):
    """A chunk under 256 KiB that is not the last is 400, and nothing of it is persisted."""
    location = api.start()
    assert api.chunk(location, b"short", "bytes 0-4/*").status_code == 400
    status = api.chunk(location, b"", "bytes */*")
    assert status.status_code == 308
    assert "Range" not in status.headers


def test_uneven_chunk_is_persisted_in_part(api):
    """Of a longer chunk only whole multiples of 256 KiB are persisted, and Range says so."""
    location = api.start()
    response = api.chunk(location, BODY[: QUANTUM + 10], f"bytes 0-{QUANTUM + 9}/*")
    assert (response.status_code, response.headers["Range"]) == (308, f"bytes=0-{QUANTUM - 1}")


def test_gap_is_refused(api):
    """A chunk that starts beyond what is persisted is an error, and is not stored."""
    location = api.start()
    api.chunk(location, BODY[:QUANTUM], f"bytes 0-{QUANTUM - 1}/*")
    gap = api.chunk(location, BODY[:QUANTUM], f"bytes {2 * QUANTUM}-{3 * QUANTUM - 1}/*")
    assert gap.status_code in {400, 503}
    assert api.chunk(location, b"", "bytes */*").headers["Range"] == f"bytes=0-{QUANTUM - 1}"


def test_finished_upload_answers_the_object_again(api):
    """After the end a status query answers the object: a client whose last answer was lost learns of it."""
    location = api.start()
    done = api.chunk(location, b"body").json()
    again = api.chunk(location, b"", "bytes */*")
    assert again.status_code == 200
    assert again.json()["generation"] == done["generation"]
    assert api.generation() == int(done["generation"])


def test_cancelled_upload(api):
    """DELETE ends an upload with 499; bytes are refused afterwards."""
    location = api.start()
    assert api.http.delete(location).status_code == 499
    assert 400 <= api.chunk(location, b"body").status_code < 500
    assert api.generation() == 0


def test_unknown_upload_is_404(api):
    """An upload_id that never was is 404."""
    response = api.call("PUT", api.uploads, content=b"x", uploadType="resumable", upload_id="never-was")
    assert response.status_code == 404


@pytest.mark.parametrize("content_range", ["bytes 0-9/5", "bytes 5-1/10", "chunk 1", "bytes 0-1"])
def test_unreadable_range_is_400(api, content_range):
    """A Content-Range that contradicts itself or cannot be read is 400."""
    assert api.chunk(api.start(), b"0123456789", content_range).status_code == 400


def test_metadata_of_the_start_is_kept(api):
    """Metadata and X-Upload-Content-Type of the request that starts an upload are the object's."""
    location = api.start(metadata={"metadata": {"k": "v"}}, headers={"X-Upload-Content-Type": "text/x-test"})
    stored = api.chunk(location, b"body").json()
    assert stored["metadata"] == {"k": "v"}
    assert stored["contentType"] == "text/x-test"
