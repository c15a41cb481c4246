"""Keys, metadata, listings and bodies that have broken stores before."""

from __future__ import annotations

import pytest

from a2a_gcs.objectstore import IF_ABSENT, OVERWRITE, WRITE_ID, IfVersion, Source

KEYS = [
    "plain",
    "a",
    "a/b",  # beside the object `a`
    "a/b/c",
    "dir/",
    "dir//double",
    "/leading",
    "//",
    "../outside",
    "x/../../outside",
    "x/./y",
    "...",
    "%2F",
    "a%2Fb",
    "a%252Fb",
    "per%cent",
    "question?mark",
    "hash#tag",
    "amp&equals=plus+",
    "semi;colon,comma",
    "space in name",
    " leading and trailing ",
    "quote\"'`",
    "back\\slash",
    "star*[glob]{brace}",
    "ümläut",
    "u\u0308ml",  # not the same name as its composed form
    "emoji-\U0001f600",
    "tab\there",
    "nul\0byte",
    "l" * 400,
    "deep/" * 100 + "leaf",
    "m" * 1024,
    ".objectstore/index.sqlite",
    ".hidden",
    "con~tilde",
]
SHORT = [key for key in KEYS if len(key.encode()) < 1000]  # leaves room for a prefix
BOUNDARIES = [
    b"==0==",
    b"--==0==",
    b"--==0==--",
    b"\n--==0==\nContent-Type: application/json\n\n{}\n--==0==--",
    b"\r\n--==0==--\r\n",
    b"===============5713463725482743817==",
    b"--===============5713463725482743817==--",
    b"\r\n--===============\r\n",
    b"--boundary\r\n--\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"\r",
    b"\n",
    b"\0",
    bytes(range(256)),
]


@pytest.mark.parametrize("key", SHORT, ids=[ascii(key[:30]) for key in SHORT])
async def test_any_legal_key(store, key):
    """Every name that GCS allows can be written, read, listed and deleted, and is no other name."""
    await store.put(key, key.encode(), IF_ABSENT)
    assert (await store.get(key)).body == key.encode()
    assert (await store.head(key)).key == key
    assert [info.key for info in (await store.list("")).objects] == [key]
    await store.delete(key)
    assert (await store.list("")).objects == []


async def test_all_keys_at_once(store):
    """No two of the names share an object, and the listing is in the order of their UTF-8 bytes."""
    for key in SHORT:
        await store.put(key, key.encode(), IF_ABSENT)
    for key in SHORT:
        assert (await store.get(key)).body == key.encode()
    listed = [info.key for info in (await store.list("")).objects]
    assert listed == sorted(SHORT, key=str.encode)


@pytest.mark.parametrize(
    "key", ["", ".", "..", "a\nb", "a\rb", "k" * 1025, "ü" * 513, ".well-known/acme-challenge/x", "\ud800"], ids=ascii
)
async def test_names_that_gcs_refuses(store, key):
    """They are a mistake of the caller: ValueError from every call, before anything is sent."""
    calls = [
        store.get(key),
        store.head(key),
        store.put(key, b"", OVERWRITE),
        store.put_stream(key, stream_of(), OVERWRITE),
        store.delete(key),
        store.compose(key, [Source("a")], OVERWRITE),
        store.compose("a", [Source(key)], OVERWRITE),
        anext(store.stream(key)),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            await call


async def test_arguments_out_of_range(store):
    """Page sizes, source counts and versions outside GCS's limits are ValueErrors."""
    for call in (
        store.list("", limit=0),
        store.list("", limit=1001),
        store.compose("k", [], OVERWRITE),
        store.compose("k", [Source("a")] * 33, OVERWRITE),
        store.put("k", b"", IfVersion(0)),
    ):
        with pytest.raises(ValueError):
            await call


async def test_metadata_of_any_text(store):
    """Unicode, empty, long and odd values come back exactly, from head, get and list."""
    metadata = {
        "empty": "",
        "unicode": "Grüße, 世界 \U0001f600",
        "odd": "a=b&c;\"d\" %2F\\ 'e'",
        "json": '{"a": [1, null]}',
        "x-y_z.1": "name",
        "long": "v" * 2000,
    }
    await store.put("k", b"1", OVERWRITE, metadata=metadata)
    for info in (
        await store.head("k"),
        (await store.get("k", with_metadata=True)).info,
        (await store.list("")).objects[0],
    ):
        assert {name: info.metadata[name] for name in metadata} == metadata
        assert set(info.metadata) - set(metadata) <= {WRITE_ID}


async def test_metadata_limits(store):
    """Over 8 KiB in all, and names in upper case, are ValueErrors and write nothing."""
    for metadata in ({"a": "v" * 8192}, {"Name": "v"}, {"": "v"}):
        with pytest.raises(ValueError):
            await store.put("k", b"1", OVERWRITE, metadata=metadata)
    assert (await store.list("")).objects == []


@pytest.mark.parametrize("content", BOUNDARIES, ids=lambda content: repr(content[:24]))
async def test_content_that_looks_like_a_multipart_boundary(store, content):
    """Whatever separates the parts of an upload, content that holds it is stored whole."""
    body = content + b"middle" + content + b"\r\n" + content
    await store.put("k", body, OVERWRITE, content_type="text/plain")
    assert (await store.get("k")).body == body


async def test_listing_in_pages(store):
    """Pages follow each other without gap or repetition, in order and with metadata, and the last has no next."""
    names = [f"p/{number:03d}" for number in range(25)]
    for name in reversed(names):
        await store.put(name, b"", OVERWRITE, metadata={"n": name})
    await store.put("q", b"", OVERWRITE)
    pages, token = [], None
    while True:
        page = await store.list("p/", page=token, limit=10)
        pages.append(page.objects)
        token = page.next
        if token is None:
            break
    assert [len(page) for page in pages] == [10, 10, 5]
    infos = [info for page in pages for info in page]
    assert [info.key for info in infos] == names
    assert [info.metadata["n"] for info in infos] == names
    assert all(info.as_of and info.updated and info.crc32c and info.version for info in infos)


async def test_listing_from_a_start(store):
    """start is inclusive, goes together with prefix and pages, and need not be a key."""
    for name in ("a/1", "a/2", "a/3", "b/1"):
        await store.put(name, b"", OVERWRITE)
    assert [info.key for info in (await store.list("a/", start="a/2")).objects] == ["a/2", "a/3"]
    assert [info.key for info in (await store.list("a/", start="a/10")).objects] == ["a/2", "a/3"]
    assert [info.key for info in (await store.list("", start="a/3")).objects] == ["a/3", "b/1"]
    page = await store.list("a/", start="a/2", limit=1)
    rest = await store.list("a/", start="a/2", limit=1, page=page.next)
    assert [info.key for info in (*page.objects, *rest.objects)] == ["a/2", "a/3"]
    assert (await store.list("a/", start="b")).objects == []


async def test_listing_by_a_prefix_that_is_no_folder(store):
    """A prefix is a plain string: it may end inside a segment and hold any character."""
    for name in ("ab", "abc/d", "abd", "b", "ü1", "ü2"):
        await store.put(name, b"", OVERWRITE)
    assert [info.key for info in (await store.list("ab")).objects] == ["ab", "abc/d", "abd"]
    assert [info.key for info in (await store.list("ü")).objects] == ["ü1", "ü2"]
    assert (await store.list("abcd")).objects == []


async def stream_of(*chunks):
    for chunk in chunks:
        yield chunk
