"""Reads, compose, copies, errors: rules `compose_sources`, `media_headers`, `transcoding`, `holds`, `error_bodies`."""

import gzip

import pytest

from tests.fake_gcs.fidelity.api import reason


def test_media_headers(api):
    """Media carries generation, metageneration and hashes in headers."""
    written = api.put(b"body")
    headers = api.read().headers
    assert headers["X-Goog-Generation"] == written["generation"]
    assert headers["X-Goog-Metageneration"] == "1"
    assert f"crc32c={written['crc32c']}" in headers["X-Goog-Hash"]
    assert f"md5={written['md5Hash']}" in headers["X-Goog-Hash"]
    assert "Date" in headers


def test_no_custom_metadata_on_media(api):
    """Media carries no X-Goog-Meta-*: nothing in the JSON API promises it."""
    api.multipart(metadata={"metadata": {"k": "v"}})
    assert not [name for name in api.read().headers if name.lower().startswith("x-goog-meta-")]


@pytest.mark.parametrize("range_", ["bytes=0-3", "bytes=2-", "bytes=-3", "bytes=4-100"])
def test_ranges(api, range_):
    """A Range is 206 with its bytes; it may reach beyond the end."""
    body = b"0123456789"
    api.put(body)
    response = api.read(headers={"Range": range_})
    expected = {"bytes=0-3": (0, 3), "bytes=2-": (2, 9), "bytes=-3": (7, 9), "bytes=4-100": (4, 9)}[range_]
    assert response.status_code == 206
    assert response.content == body[expected[0] : expected[1] + 1]
    assert response.headers["Content-Range"] == f"bytes {expected[0]}-{expected[1]}/10"


def test_range_beyond_the_end_is_416(api):
    """A Range that holds no byte of the object is 416."""
    api.put(b"0123456789")
    assert api.read(headers={"Range": "bytes=10-"}).status_code == 416


def test_generation_is_pinned(api):
    """A read that names a generation is 404 once that generation is gone, never another body."""
    first = api.put(b"first")
    assert api.read(generation=first["generation"]).content == b"first"
    api.put(b"second")
    assert api.read(generation=first["generation"]).status_code == 404
    assert api.get(generation=first["generation"]).status_code == 404


# Compose and copy


def compose(api, names, **destination):
    body = {"sourceObjects": [{"name": api.name(name)} for name in names], "destination": destination}
    return api.write("POST", api.object(suffix="/compose"), content=body)


def test_compose_joins(api):
    """Compose joins bodies in order; the result has a crc32c, a component count, and no md5."""
    for name in ("1", "2"):
        api.put(name.encode() * 3, api.name(name))
    response = compose(api, ["1", "2", "1"], contentType="text/x-test", metadata={"k": "v"})
    assert response.status_code == 200
    stored = api.get().json()
    assert api.read().content == b"111222111"
    assert "md5Hash" not in stored
    assert stored["crc32c"]
    assert stored["componentCount"] == 3
    assert (stored["contentType"], stored["metadata"]) == ("text/x-test", {"k": "v"})


def test_compose_onto_itself_makes_a_new_generation(api):
    """Compose onto one of its sources appends, with a larger generation."""
    before = api.put(b"body")
    api.put(b" and more", api.name("more"))
    after = compose(api, ["object", "more"]).json()
    assert int(after["generation"]) > int(before["generation"])
    assert api.read().content == b"body and more"


@pytest.mark.parametrize(("count", "status"), [(0, 400), (1, 200), (32, 200), (33, 400)])
def test_compose_takes_1_to_32_sources(api, count, status):
    """Compose takes 1 to 32 sources."""
    api.put(b"x", api.name("x"))
    assert compose(api, ["x"] * count).status_code == status


def test_compose_of_what_is_not_there_is_404(api):
    """Compose with a source that does not exist is 404 and writes nothing."""
    api.put(b"x", api.name("x"))
    assert compose(api, ["x", "none"]).status_code == 404
    assert api.generation() == 0


@pytest.mark.parametrize("verb", ["copyTo", "rewriteTo"])
def test_copy_keeps_metadata(api, verb):
    """A copy without a body keeps content type and metadata; its generation is its own."""
    source = api.multipart(name=api.name("source"), metadata={"metadata": {"k": "v"}}).json()
    target = api.object().removeprefix("/storage/v1")
    response = api.write("POST", api.object(api.name("source"), f"/{verb}{target}"))
    assert response.status_code == 200
    stored = api.get().json()
    assert (stored["contentType"], stored["metadata"], stored["md5Hash"]) == (
        "text/plain",
        {"k": "v"},
        source["md5Hash"],
    )
    assert int(stored["generation"]) > int(source["generation"])
    assert api.read().content == b"body"


def test_move_renames(api):
    """moveTo renames in one step: the source is gone, the target has its body and metadata."""
    api.multipart(name=api.name("source"), metadata={"metadata": {"k": "v"}})
    source = api.object(api.name("source"))
    target = api.object().rpartition("/o/")[2]
    assert api.write("POST", f"{source}/moveTo/o/{target}").status_code == 200
    assert api.names() == ["object"]
    assert api.get().json()["metadata"] == {"k": "v"}
    assert api.read().content == b"body"


# Content-Encoding


def test_gzip_is_decompressed_for_who_does_not_accept_it(api):
    """An object with Content-Encoding gzip is decompressed on the way out, unless gzip is accepted."""
    packed = gzip.compress(b"body" * 100)
    api.multipart(packed, metadata={"contentEncoding": "gzip"})
    plain = api.read(headers={"Accept-Encoding": "identity"})
    assert plain.content == b"body" * 100
    assert "Content-Encoding" not in plain.headers
    with api.http.stream("GET", api.object(), params={"alt": "media"}, headers={"Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert b"".join(response.iter_raw()) == packed


def test_no_transform_is_honoured(api):
    """Cache-Control: no-transform keeps the compressed bytes as they are."""
    packed = gzip.compress(b"body")
    api.multipart(packed, metadata={"contentEncoding": "gzip", "cacheControl": "no-transform"})
    headers = {"Accept-Encoding": "identity"}
    with api.http.stream("GET", api.object(), params={"alt": "media"}, headers=headers) as response:
        assert b"".join(response.iter_raw()) == packed


def test_gzip_content_without_encoding_is_untouched(api):
    """Compressed content of type application/gzip without Content-Encoding comes back as it was."""
    packed = gzip.compress(b"body")
    api.media(packed, headers={"Content-Type": "application/gzip"})
    assert api.read(headers={"Accept-Encoding": "identity"}).content == packed


# Holds and errors


def test_held_object_stays(api):
    """An object under a temporary hold can be neither overwritten nor deleted: 403, until it is released."""
    api.put(b"held")
    api.write("PATCH", api.object(), content={"temporaryHold": True})
    assert api.media(b"new").status_code == 403
    assert api.write("DELETE", api.object()).status_code == 403
    assert api.read().content == b"held"
    api.write("PATCH", api.object(), content={"temporaryHold": False})
    assert api.write("DELETE", api.object()).status_code == 204


def test_body_of_412(api):
    """A failed precondition says conditionNotMet, in the shape that clients read."""
    api.put()
    error = api.media(ifGenerationMatch=0).json()["error"]
    assert error["code"] == 412
    assert error["message"]
    assert error["errors"][0]["reason"] == "conditionNotMet"
    assert error["errors"][0]["domain"] == "global"
    assert error["errors"][0]["location"] == "If-Match"


def test_body_of_404(api):
    """An object that is not there says notFound, and which one it is."""
    response = api.get()
    assert response.status_code == 404
    assert reason(response) == "notFound"
    assert f"{api.bucket}/{api.name()}" in response.json()["error"]["message"]


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_changing_what_is_not_there_is_404(api, method):
    """Patching or deleting an object that is not there is 404 notFound."""
    response = api.call(method, api.object(), content={})
    assert response.status_code == 404
    assert reason(response) == "notFound"


def test_missing_media_is_404(api):
    """Media of an object that is not there is 404."""
    assert api.read().status_code == 404


@pytest.mark.parametrize("verb", ["media", "multipart"])
def test_upload_to_an_unknown_bucket_is_404(api, verb):
    """An upload to a bucket that does not exist is 404 and does not create it."""
    bucket, api.bucket = api.bucket, f"{api.bucket}-which-does-not-exist"
    response = getattr(api, verb)()
    missing = api.call("GET", f"/storage/v1/b/{api.bucket}")
    api.bucket = bucket
    assert response.status_code == 404
    assert missing.status_code == 404


def test_deleted_is_gone(api):
    """A delete is 204 without a body, and the object is gone at once, for every verb."""
    api.put()
    response = api.write("DELETE", api.object())
    assert (response.status_code, response.content) == (204, b"")
    assert api.get().status_code == 404
    assert api.read().status_code == 404
    assert api.write("DELETE", api.object()).status_code == 404
