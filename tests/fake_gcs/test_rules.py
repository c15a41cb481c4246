"""The rules as functions."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_gcs.blobs import blob_name
from fake_gcs.multipart import RelatedUpload, boundary_of
from fake_gcs.routing import route
from fake_gcs.rules import fields, listing, ranges, resumable
from fake_gcs.rules.bucket_config import merge
from fake_gcs.rules.problems import Invalid
from fake_gcs.rules.write_limit import WriteLimit

# Write limit


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_burst_then_one_a_second():
    """Burst 2 lets two writes pass at once, and one more for every second."""
    clock = Clock()
    limit = WriteLimit(burst=2, refill=1, clock=clock)
    assert [limit.take(("b", "k")) for _ in range(3)] == [True, True, False]
    clock.now += 0.9
    assert not limit.take(("b", "k"))
    clock.now += 0.1
    assert [limit.take(("b", "k")) for _ in range(2)] == [True, False]
    clock.now += 100
    assert [limit.take(("b", "k")) for _ in range(3)] == [True, True, False]


def test_burst_of_one():
    """Burst 1 is the strict reading: one write, then one a second."""
    limit = WriteLimit(burst=1, refill=1, clock=Clock())
    assert [limit.take(("b", "k")) for _ in range(2)] == [True, False]
    assert limit.take(("b", "other"))


# Listing

KEYS = st.lists(st.text(alphabet="ab/é\U0001f600", min_size=1, max_size=5), unique=True, max_size=12)


def all_pages(names, **params):
    """Follows the pages to the end, and answers items and prefixes."""
    names = sorted(names)
    items, prefixes = [], []
    while True:
        query = listing.parse(params)
        page = listing.page(query, lambda start: ((name, name) for name in names if name >= start))
        assert len(page.items) + len(page.prefixes) <= query.limit
        items += page.items
        prefixes += page.prefixes
        if page.next_start is None:
            return items, prefixes
        params["pageToken"] = listing.token_of_start(page.next_start)


@given(KEYS, st.sampled_from(["", "a", "a/", "b/a"]), st.sampled_from(["", "/"]), st.integers(1, 4))
def test_pages_are_the_whole_listing(names, prefix, delimiter, limit):
    """Whatever the page size, the pages add up to what one look at all names gives, in the order of UTF-8 bytes."""
    items, prefixes = [], []
    for name in sorted(names, key=str.encode):
        if not name.startswith(prefix):
            continue
        at = name.find(delimiter, len(prefix)) if delimiter else -1
        if at < 0:
            items.append(name)
        elif name[: at + 1] not in prefixes:
            prefixes.append(name[: at + 1])
    assert all_pages(names, prefix=prefix, delimiter=delimiter, maxResults=str(limit)) == (items, prefixes)


@given(st.text(min_size=1).filter(lambda text: text.isprintable()), st.text(max_size=3))
def test_successor_sorts_after_everything_with_the_prefix(prefix, rest):
    """The successor of a prefix sorts after every text that starts with it."""
    assert listing.successor(prefix) > prefix + rest


def test_successor_steps_over_surrogates():
    """There is no text between U+D7FF and U+E000, and none after the last character."""
    assert listing.successor("a\ud7ff") == "a\ue000"
    assert listing.successor("a\U0010ffff") == "b"
    assert listing.successor("\U0010ffff") is None


@pytest.mark.parametrize("glob", ["[", "a[b", "{a", "a}", "{{a}"])
def test_open_brackets_are_no_glob(glob):
    """A glob whose brackets are not closed is refused."""
    with pytest.raises(Invalid):
        listing.translate_glob(glob)


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("a*c", "abbc", True),
        ("a*c", "a/c", False),
        ("a**c", "a/b/c", True),
        ("?", "/", False),
        ("[!a]", "b", True),
        ("[!a]", "a", False),
        ("{a,b/c}d", "b/cd", True),
        ("a.c", "abc", False),
        ("a,b", "a,b", True),
    ],
)
def test_globs(glob, name, matches):
    """What a glob matches."""
    assert bool(listing.translate_glob(glob).match(name)) is matches


# Fields


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", {"a": 1}),
        ("b/c", {"b": {"c": 2}}),
        ("b(c,d/e)", {"b": {"c": 2, "d": {"e": 3}}}),
        ("l/x", {"l": [{"x": 1}, {"x": 2}]}),
        ("l(y),a", {"l": [{"y": 1}, {}], "a": 1}),
        ("b/*", {"b": {"c": 2, "d": {"e": 3, "f": 4}}}),
        ("b/d/e,a", {"b": {"d": {"e": 3}}, "a": 1}),
        ("none", {}),
    ],
)
def test_fields(expression, expected):
    """What a fields expression selects."""
    document = {"a": 1, "b": {"c": 2, "d": {"e": 3, "f": 4}}, "l": [{"x": 1, "y": 1}, {"x": 2}]}
    assert fields.pick(document, fields.parse(expression)) == expected


@pytest.mark.parametrize("expression", ["", "(", "a(", "a)", "a,", "/a", "a/", "a b(", "a(b))", "a;b", "a//b"])
def test_unreadable_fields(expression):
    """What is no fields expression is refused."""
    with pytest.raises(Invalid):
        fields.parse(expression)


# Ranges and chunks


@given(st.integers(0, 30), st.integers(0, 40), st.integers(0, 40))
def test_ranges_are_slices(size, first, last):
    """A range is the slice that it says, or is refused when that slice holds nothing."""
    body = bytes(range(size))
    for header, expected in ((f"bytes={first}-{last}", body[first : last + 1]), (f"bytes={first}-", body[first:])):
        if first >= size and (header.endswith("-") or last >= first):
            with pytest.raises(Invalid) as refused:
                ranges.parse(header, size)
            assert refused.value.status == 416
        else:
            found = ranges.parse(header, size)
            assert (found is None) == (not header.endswith("-") and last < first)
            assert found is None or body[found[0] : found[1] + 1] == expected


@pytest.mark.parametrize("header", [None, "bytes=-", "bytes=5-2", "items=0-1", "bytes=0-1,3-4", "bytes=a-b"])
def test_unreadable_range_is_the_whole(header):
    """A Range header that cannot be served is as none at all."""
    assert ranges.parse(header, 10) is None


@pytest.mark.parametrize(
    ("header", "chunk"),
    [
        (None, (0, None, None)),
        ("bytes 0-9/10", (0, 9, 10)),
        ("bytes 5-9/*", (5, 9, None)),
        ("bytes 5-*/*", (5, None, None)),
        ("bytes */10", (None, None, 10)),
        ("bytes */*", (None, None, None)),
    ],
)
def test_content_range(header, chunk):
    """What a Content-Range says of a chunk."""
    found = resumable.parse(header)
    assert (found.start, found.end, found.total) == chunk


# Multipart


async def pieces(body, cuts):
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        yield body[start:end]


@given(st.binary(max_size=60), st.sampled_from([b"\r\n", b"\n"]), st.lists(st.integers(0, 500), max_size=8))
async def test_multipart_in_any_pieces(media, newline, cuts):
    """However a multipart body arrives, its media comes out byte for byte, also when it looks like a boundary."""
    media = media + b"\r\n--bound" + newline + b"--boun\r"
    head = b"--boundary" + newline
    body = (
        head + b"Content-Type: application/json" + newline * 2 + b'{"name": "n"}' + newline
        + head + b"Content-Type: text/plain" + newline * 2 + media + newline + b"--boundary--"
    )  # fmt: skip
    upload = RelatedUpload(pieces(body, cuts), boundary_of('multipart/related; boundary="boundary"'))
    assert await upload.read_metadata() == {"name": "n"}
    assert upload.content_type == "text/plain"
    assert b"".join([piece async for piece in upload.media()]) == media


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no boundary",
        b"--boundary\r\n\r\n{}",
        b"--boundary\r\n\r\n[]\r\n--boundary\r\n\r\nx\r\n--boundary--",
        b"--boundary\r\n\r\n{\r\n--boundary\r\n\r\nx\r\n--boundary--",
        b"--boundary\r\n\r\n{}\r\n--boundary\r\n\r\nunfinished",
    ],
)
async def test_malformed_multipart(body):
    """A multipart body that is cut off, or whose metadata is no JSON object, is refused."""

    async def take():
        upload = RelatedUpload(pieces(body, []), b"boundary")
        await upload.read_metadata()
        async for _ in upload.media():
            pass

    with pytest.raises(Invalid):
        await take()


# Where bodies lie


@given(st.text(min_size=1, max_size=400), st.integers(1, 10**18))
def test_blob_names_are_safe(name, number):
    """Whatever the object's name, its blob stays in its folder, in components that every file system holds."""
    blob = blob_name("bucket", name, number)
    _, *components = blob.split("/")
    assert components
    assert all(0 < len(component) <= 200 and component.isascii() for component in components)
    assert not any(component.startswith(".") for component in components)
    assert not any("@" in component for component in components[:-1])
    assert components[-1].endswith(f"@{number}")
    assert len(blob) < 1000


def test_blob_names_are_readable():
    """An ordinary name can be recognized on disk."""
    assert blob_name("b", "contexts/c-1/t_2/task.json", 7) == "b/contexts/c-1/t_2/task.json@7"


# Routing


@pytest.mark.parametrize(
    ("method", "target", "operation", "name"),
    [
        ("POST", "/upload/storage/v1/b/b/o?uploadType=media&name=a%2Fb", "objects.insert", "a/b"),
        ("POST", "/upload/storage/v1/b/b/o?uploadType=resumable&name=n", "objects.startUpload", "n"),
        ("PUT", "/upload/storage/v1/b/b/o?uploadType=resumable&upload_id=1", "objects.resume", ""),
        ("POST", "/upload/storage/v1/b/b/o?uploadType=resumable&upload_id=1", "objects.resume", ""),
        ("DELETE", "/upload/storage/v1/b/b/o?uploadType=resumable&upload_id=1", "objects.cancelUpload", ""),
        ("GET", "/storage/v1/b/b/o/a%2F..%2F%252F", "objects.get", "a/../%2F"),
        ("GET", "/storage/v1/b/b/o/a?alt=media", "objects.media", "a"),
        ("GET", "/download/storage/v1/b/b/o/a%20b?alt=media", "objects.media", "a b"),
        ("GET", "/storage/v1/b/b/o/a+b", "objects.get", "a+b"),
        ("GET", "/storage/v1/b/b/o", "objects.list", ""),
        ("GET", "/storage/v1/b/b/o/", "objects.list", ""),
        ("GET", "/storage/v1/b/b/o/a/b", "", ""),
        ("DELETE", "/storage/v1/b/b/o/compose", "objects.delete", "compose"),
        ("POST", "/storage/v1/b/b/o/a%2Fcompose/compose", "objects.compose", "a/compose"),
        ("POST", "/storage/v1/b/b/o/a/rewriteTo/b/c/o/d%2Fe", "objects.rewrite", "a"),
        ("POST", "/storage/v1/b/b/o/a/moveTo/o/d", "objects.move", "a"),
        ("GET", "/storage/v1/b", "buckets.list", ""),
        ("GET", "/storage/v1/b/b/storageLayout", "buckets.getStorageLayout", ""),
        ("GET", "/storage/v1/b/b/acl", "buckets.acl", ""),
        ("PUT", "/b/a/b", "objects.insert", "a/b"),
        ("HEAD", "/b/a%2Fb", "objects.media", "a/b"),
        ("GET", "/", "", ""),
    ],
)
def test_routes(method, target, operation, name):
    """Which operation a request asks for, and on which object."""
    found = route(method, target)
    assert (found.operation, found.name) == (operation, name)


def test_target_of_a_copy():
    """A copy's second bucket and name are decoded as the first."""
    assert route("POST", "/storage/v1/b/b/o/a/copyTo/b/c/o/d%2Fe").target == ("c", "d/e")


def test_method_override():
    """X-HTTP-Method-Override turns a POST into a PATCH."""
    assert route("POST", "/storage/v1/b/b/o/a", "PATCH").operation == "objects.patch"


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.none() | st.integers() | st.dictionaries(st.sampled_from("ab"), st.none() | st.integers()),
    )
)
def test_merge_leaves_no_null(patch):
    """A merge patch never stores a null."""
    merged = merge({"a": {"a": 1}, "b": 2}, patch)
    assert "null" not in json.dumps(merged)
