"""Rules `list_pages`, `list_glob` and `fields`."""

import pytest

from tests.fake_gcs.fidelity.api import reason

KEYS = ["a", "a/b", "a/b/c", "b", "b/x.json", "b/y.txt", "c/", "z", "é"]


@pytest.fixture
def filled(api):
    """A bucket with KEYS."""
    for key in reversed(KEYS):
        api.put(b"body", api.name(key))
    return api


def keys(api, page, member="items"):
    found = page.get(member, [])
    return [(item["name"] if member == "items" else item).removeprefix(api.prefix) for item in found]


def test_order(filled):
    """Names come in the order of their UTF-8 bytes."""
    assert filled.names() == KEYS


def test_pages(filled):
    """maxResults cuts pages; nextPageToken goes on, and the last page has none."""
    sizes, token, found = [], {}, []
    while True:
        page = filled.list(maxResults=4, **token).json()
        sizes.append(len(page["items"]))
        found += keys(filled, page)
        if "nextPageToken" not in page:
            break
        token = {"pageToken": page["nextPageToken"]}
    assert sizes == [4, 4, 1]
    assert found == KEYS


def test_a_page_holds_at_most_1000(api):
    """Without maxResults, or with more, a page has 1,000 items."""
    if api.kind == "real":
        pytest.skip("a thousand writes are too many for a look")
    for number in range(1001):
        api.put(b"", api.name(f"{number:04}"))
    for params in ({}, {"maxResults": 5000}):
        page = api.list(**params).json()
        assert len(page["items"]) == 1000
        assert "nextPageToken" in page


@pytest.mark.parametrize("value", ["-1", "many"])
def test_bad_max_results_is_400(filled, value):
    """maxResults that is not a number is 400 invalid."""
    response = filled.list(maxResults=value)
    assert response.status_code == 400
    assert reason(response) in {"invalid", "invalidParameter"}


def test_bad_token_is_400(filled):
    """A page token that nobody issued is 400."""
    assert filled.list(pageToken="!").status_code == 400


def test_delimiter(filled):
    """With a delimiter, names are folded to prefixes, each once, apart from the items."""
    page = filled.list(delimiter="/").json()
    assert keys(filled, page) == ["a", "b", "z", "é"]
    assert keys(filled, page, "prefixes") == ["a/", "b/", "c/"]


def test_delimiter_in_pages(filled):
    """Prefixes count for maxResults, and no page repeats one."""
    items, prefixes, token = [], [], {}
    while True:
        page = filled.list(delimiter="/", maxResults=2, **token).json()
        assert len(page.get("items", [])) + len(page.get("prefixes", [])) <= 2
        items += keys(filled, page)
        prefixes += keys(filled, page, "prefixes")
        if "nextPageToken" not in page:
            break
        token = {"pageToken": page["nextPageToken"]}
    assert (items, prefixes) == (["a", "b", "z", "é"], ["a/", "b/", "c/"])


def test_trailing_delimiter(filled):
    """includeTrailingDelimiter lists an object that ends in the delimiter besides its prefix."""
    page = filled.list(delimiter="/", includeTrailingDelimiter="true").json()
    assert "c/" in keys(filled, page)
    assert "c/" in keys(filled, page, "prefixes")


def test_prefix(filled):
    """A prefix selects by text, not by segment."""
    assert keys(filled, filled.list("a/b").json()) == ["a/b", "a/b/c"]


def test_offsets(filled):
    """startOffset is inclusive, endOffset exclusive."""
    page = filled.list(startOffset=filled.name("a/b"), endOffset=filled.name("b/y.txt")).json()
    assert keys(filled, page) == ["a/b", "a/b/c", "b", "b/x.json"]


@pytest.mark.parametrize(
    ("glob", "matches"),
    [
        ("**.json", ["b/x.json"]),
        ("*", ["a", "b", "z", "é"]),
        ("*/?.*", ["b/x.json", "b/y.txt"]),
        ("b/[xz].json", ["b/x.json"]),
        ("b/*.{json,txt}", ["b/x.json", "b/y.txt"]),
        ("a/**", ["a/b", "a/b/c"]),
    ],
)
def test_match_glob(filled, glob, matches):
    """matchGlob: `*` and `?` within a segment, `**` across, sets and alternatives."""
    assert filled.names(matchGlob=filled.prefix + glob) == matches


def test_empty_listing(api):
    """A listing of nothing has neither items nor prefixes."""
    page = api.list().json()
    assert page["kind"] == "storage#objects"
    assert "items" not in page
    assert "prefixes" not in page


def test_metadata_in_a_listing(api):
    """A listing carries each object's custom metadata and generation."""
    written = api.multipart(metadata={"metadata": {"k": "v"}}).json()
    (item,) = api.list().json()["items"]
    assert (item["metadata"], item["generation"]) == ({"k": "v"}, written["generation"])


def test_listing_follows_writes_at_once(api):
    """A listing shows a write, and not a deleted object, at once."""
    api.put(name=api.name("a"))
    api.put(name=api.name("b"))
    api.write("DELETE", api.object(api.name("a")))
    assert api.names() == ["b"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("items/name", {"items"}),
        ("items(name,metadata/k),nextPageToken", {"items", "nextPageToken"}),
        ("kind", {"kind"}),
        ("*", {"kind", "items", "nextPageToken"}),
    ],
)
def test_fields_of_a_listing(filled, fields, expected):
    """`fields` selects members of the page and of its items."""
    page = filled.list(maxResults=2, fields=fields).json()
    assert set(page) == expected
    if "items" in expected and fields != "*":
        assert all(set(item) <= {"name", "metadata"} for item in page["items"])


def test_fields_of_an_object(api):
    """`fields` selects from an object and from the answer to an upload as well."""
    assert set(api.media(fields="generation,size").json()) == {"generation", "size"}
    assert set(api.get(fields="name").json()) == {"name"}


def test_unreadable_fields(api):
    """A `fields` expression that cannot be read is 400."""
    api.put()
    assert api.get(fields="a(b").status_code == 400


def test_listing_an_unknown_bucket_is_404(api):
    """Listing a bucket that does not exist is 404 notFound."""
    response = api.call("GET", f"/storage/v1/b/{api.bucket}-which-does-not-exist/o")
    assert response.status_code == 404
    assert reason(response) == "notFound"
