"""Rules `object_names`, `custom_metadata` and `checksums`, and what an upload stores."""

import base64
import hashlib

import google_crc32c
import pytest

from tests.fake_gcs.fidelity.api import reason

UPLOADS = ["media", "multipart", "resumable"]
WITH_METADATA = ["multipart", "resumable"]


def md5(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()


def crc32c(body):
    return base64.b64encode(google_crc32c.Checksum(body).digest()).decode()


@pytest.mark.parametrize("verb", UPLOADS)
def test_upload_is_described(api, verb):
    """Every upload answers generation, metageneration 1, size, md5 and crc32c of the body."""
    resource = getattr(api, verb)(b"some body").json()
    assert resource["name"] == api.name()
    assert resource["bucket"] == api.bucket
    assert int(resource["generation"]) > 0
    assert resource["metageneration"] == "1"
    assert resource["size"] == "9"
    assert resource["md5Hash"] == md5(b"some body")
    assert resource["crc32c"] == crc32c(b"some body")
    assert api.get().json()["generation"] == resource["generation"]


@pytest.mark.parametrize("verb", UPLOADS)
def test_generations_grow(api, verb):
    """An overwrite has a larger generation, and metageneration 1 again."""
    first = api.put()
    api.write("PATCH", api.object(), content={"metadata": {"k": "v"}})
    second = getattr(api, verb)(b"new").json()
    assert int(second["generation"]) > int(first["generation"])
    assert second["metageneration"] == "1"
    assert "metadata" not in second


def test_generation_does_not_come_back(api):
    """An object that was deleted and made again has a larger generation than before."""
    first = api.put()
    assert api.write("DELETE", api.object()).status_code == 204
    assert int(api.put()["generation"]) > int(first["generation"])


@pytest.mark.parametrize("verb", UPLOADS)
def test_empty_body(api, verb):
    """An empty body is an object of size 0."""
    assert getattr(api, verb)(b"").json()["size"] == "0"
    assert api.read().content == b""


@pytest.mark.parametrize("verb", UPLOADS)
def test_large_body(api, verb):
    """A body of several MiB comes back byte for byte."""
    body = bytes(range(256)) * 4 * 1024 * 3
    assert getattr(api, verb)(body).status_code == 200
    assert api.read().content == body


def test_boundary_within_content(api):
    """Multipart content that holds another boundary's text, or ends in CR, is stored whole."""
    body = b"--==0==\n--==0==--\r\n--x\r\n\r"
    api.multipart(body)
    assert api.read().content == body


def test_multipart_with_bare_newlines(api):
    """A multipart body whose lines end in LF alone, as gcsfs sends it, is understood; media may end in CR."""
    body = b"line\r\nline\r"
    content = (
        b'--==0==\nContent-Type: application/json; charset=UTF-8\n\n{"name": "%s"}\n'
        b"--==0==\nContent-Type: text/x-test\nContent-Transfer-Encoding: binary\n\n%s\n--==0==--"
        % (api.name().encode(), body)
    )
    headers = {"Content-Type": 'multipart/related; boundary="==0=="'}
    response = api.write("POST", api.uploads, content=content, headers=headers, uploadType="multipart")
    assert response.status_code == 200
    assert response.json()["contentType"] == "text/x-test"
    assert api.read().content == body


# Names


@pytest.mark.parametrize("name", ["a", "a/b", "a/b/c", "a//b", "/a", "a/", "a/./b", "a/../b", "a/.", "..a"])
def test_strange_names_are_names(api, name):
    """Slashes and dots mean nothing: each of these is a name of its own."""
    api.put(name.encode(), api.name(name))
    assert api.read(api.name(name)).content == name.encode()
    assert api.names() == [name]


def test_object_and_folder_of_one_name(api):
    """`a` and `a/b` exist side by side, whichever came first."""
    for name in ("a", "a/b", "c/d", "c"):
        api.put(name.encode(), api.name(name))
    assert api.names() == ["a", "a/b", "c", "c/d"]
    assert api.read(api.name("a")).content == b"a"


@pytest.mark.parametrize(
    "name",
    ["%2F", "a%b", "sp ace", "plus+", "q?x=1", "#", "é", "☃/😀", "\x01\x7f", "'\"\\", "a@1", "x.metadata"],
    ids=ascii,
)
def test_any_text_is_a_name(api, name):
    """Percent signs, spaces, control characters and any UTF-8 are kept as they are."""
    api.put(b"body", api.name(name))
    assert api.read(api.name(name)).content == b"body"
    assert api.names() == [name]


def test_long_segment(api):
    """A segment of a name may be longer than a file's name."""
    name = "x" * 300 + "/" + "y" * 300
    api.put(b"body", api.name(name))
    assert api.names() == [name]


@pytest.mark.parametrize("verb", UPLOADS)
def test_longest_name(api, verb):
    """A name may have 1,024 bytes and no more; bytes count, not characters."""
    longest = api.name("é" * ((1024 - len(api.prefix)) // 2))
    longest += "x" * (1024 - len(longest.encode()))
    assert getattr(api, verb)(name=longest).status_code == 200
    assert getattr(api, verb)(name=longest + "x").status_code == 400


@pytest.mark.parametrize("name", [".", "..", "a\nb", "a\rb"], ids=ascii)
def test_forbidden_names(api, name):
    """`.`, `..` and names with CR or LF are 400 invalid."""
    name = name if name.startswith(".") else api.name(name)
    response = api.media(name=name)
    assert response.status_code == 400
    assert reason(response) == "invalid"


def test_name_is_required(api):
    """An upload without a name is 400 required."""
    response = api.call("POST", api.uploads, content=b"x", uploadType="media")
    assert response.status_code == 400
    assert reason(response) == "required"


# Metadata


@pytest.mark.parametrize("verb", WITH_METADATA)
def test_metadata_round_trip(api, verb):
    """What an upload asks for on the object is stored: content type, custom metadata with the case of its keys."""
    wanted = {
        "contentType": "text/x-test",
        "cacheControl": "no-store",
        "contentDisposition": "attachment",
        "contentLanguage": "de",
        "customTime": "2026-01-02T03:04:05Z",
        "metadata": {"Owner-Id": "ä 1", "empty": ""},
    }
    getattr(api, verb)(metadata=wanted)
    stored = api.get().json()
    assert {name: stored[name] for name in wanted} == {**wanted, "customTime": stored["customTime"]}
    assert stored["customTime"].startswith("2026-01-02T03:04:05")


def metadata_of(size):
    return {"k" * 100: "v" * (size - 100)}


@pytest.mark.parametrize("verb", WITH_METADATA)
def test_custom_metadata_up_to_8_kib(api, verb):
    """8 KiB of custom metadata, keys and values, are stored."""
    assert getattr(api, verb)(metadata={"metadata": metadata_of(8192)}).status_code == 200
    assert api.get().json()["metadata"] == metadata_of(8192)


def test_custom_metadata_over_8_kib(api):
    """A byte more is 400, and the object that was there stays."""
    before = api.put(b"old")
    assert api.multipart(metadata={"metadata": metadata_of(8193)}).status_code == 400
    assert api.generation() == int(before["generation"])
    assert api.read().content == b"old"


def test_patch_over_8_kib(api):
    """A patch that makes the custom metadata too large is 400 and changes nothing."""
    api.put()
    assert api.write("PATCH", api.object(), content={"metadata": metadata_of(8193)}).status_code == 400
    assert "metadata" not in api.get().json()


def test_patch_merges_metadata(api):
    """A patch merges custom metadata key by key, null removes one; generation stays, metageneration grows."""
    before = api.multipart(metadata={"metadata": {"a": "1", "b": "2"}}).json()
    after = api.write("PATCH", api.object(), content={"metadata": {"b": None, "c": "3"}}).json()
    assert after["metadata"] == {"a": "1", "c": "3"}
    assert after["generation"] == before["generation"]
    assert after["metageneration"] == "2"
    assert api.read().content == b"body"


def test_update_replaces_metadata(api):
    """An update (PUT) replaces what may be written: what it does not name is gone."""
    api.multipart(metadata={"metadata": {"a": "1"}, "cacheControl": "no-store"})
    after = api.write("PUT", api.object(), content={"metadata": {"c": "3"}}).json()
    assert after["metadata"] == {"c": "3"}
    assert "cacheControl" not in after


# Checksums


@pytest.mark.parametrize("verb", WITH_METADATA)
@pytest.mark.parametrize("checksum", ["md5Hash", "crc32c"])
def test_declared_checksum_is_checked(api, verb, checksum):
    """An upload that declares another md5 or crc32c than its body has is 400 and stores nothing."""
    right = {"md5Hash": md5(b"body"), "crc32c": crc32c(b"body")}
    wrong = {"md5Hash": md5(b"other"), "crc32c": crc32c(b"other")}
    response = getattr(api, verb)(metadata={checksum: wrong[checksum]})
    assert response.status_code == 400
    assert reason(response) == "invalid"
    assert api.generation() == 0
    assert getattr(api, verb)(metadata={checksum: right[checksum]}).status_code == 200


@pytest.mark.parametrize("checksum", ["md5", "crc32c"])
def test_checksum_in_a_header_is_checked(api, checksum):
    """X-Goog-Hash with the request that finishes a resumable upload is checked as well."""
    wrong = {"md5": md5(b"other"), "crc32c": crc32c(b"other")}[checksum]
    response = api.chunk(api.start(), b"body", headers={"X-Goog-Hash": f"{checksum}={wrong}"})
    assert response.status_code == 400
    assert api.generation() == 0
