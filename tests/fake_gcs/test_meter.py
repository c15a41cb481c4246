"""The meter, the history of writes, rules and settings under /_fake_gcs/, and the latency profile."""

import gzip
import time
import uuid

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_gcs.errors import FakeGcsError
from fake_gcs.meter import billing_class, key_pattern, round_trips, summary
from fake_gcs.process import FakeGcs


@pytest.fixture
def bucket(fake_gcs_server):
    return fake_gcs_server.create_bucket()


@pytest.fixture
def http(fake_gcs_server):
    with httpx.Client(base_url=fake_gcs_server.url, trust_env=False, timeout=60) as http:
        yield http


def put(http, bucket, name, body=b"body", **params):
    params = {"uploadType": "media", "name": name, **params}
    return http.post(f"/upload/storage/v1/b/{bucket}/o", params=params, content=body)


def get(http, bucket, name, **params):
    return http.get(f"/storage/v1/b/{bucket}/o/{name}", params=params)


def test_classes_and_bytes(fake_gcs_server, http, bucket):
    """Writes and lists are class A, reads class B, deletes free; bytes of bodies are counted."""
    before = fake_gcs_server.stats(bucket)
    put(http, bucket, "a", b"x" * 1000)
    get(http, bucket, "a", alt="media")
    get(http, bucket, "a")
    get(http, bucket, "none")
    http.get(f"/storage/v1/b/{bucket}/o")
    http.delete(f"/storage/v1/b/{bucket}/o/a")
    stats = fake_gcs_server.stats(bucket)
    assert before["requests"] == 0
    assert stats["classes"] == {"A": 2, "B": 3, "free": 1}
    assert stats["operations"] == {
        "objects.insert": 1, "objects.media": 1, "objects.get": 2, "objects.list": 1, "objects.delete": 1,
    }  # fmt: skip
    assert stats["statuses"] == {"200": 4, "404": 1, "204": 1}
    assert stats["bytes_in"] == 1000
    assert stats["bytes_out"] > 1000
    assert stats["dollars"] == pytest.approx(2 * 5e-6 + 3 * 0.4e-6)


def test_resumable_upload_is_one_class_a_operation(fake_gcs_server, http, bucket):
    """Starting a resumable upload is class A, its later requests are free."""
    start = http.post(f"/upload/storage/v1/b/{bucket}/o", params={"uploadType": "resumable", "name": "a"})
    http.put(start.headers["Location"], content=b"body")
    assert fake_gcs_server.stats(bucket)["classes"] == {"A": 1, "B": 0, "free": 1}


def test_refused_requests_cost_nothing(fake_gcs_server, http, bucket):
    """A failed precondition is counted, but not billed."""
    put(http, bucket, "a")
    billed = fake_gcs_server.stats(bucket)["dollars"]
    assert put(http, bucket, "a", ifGenerationMatch=0).status_code == 412
    stats = fake_gcs_server.stats(bucket)
    assert (stats["classes"]["A"], stats["dollars"]) == (2, billed)


def test_keys_are_grouped(fake_gcs_server, http, bucket):
    """Keys are grouped by their last segment, or by the patterns asked for."""
    for task in ("t1", "t2"):
        put(http, bucket, f"contexts/c/{task}/task.json")
        put(http, bucket, f"contexts/c/{task}/1000001.events.json")
    assert fake_gcs_server.stats(bucket)["keys"] == {
        "*/task.json": {"objects.insert": 2},
        "*/*.events.json": {"objects.insert": 2},
    }
    assert fake_gcs_server.stats(bucket, patterns=["*/t1/*"])["keys"] == {
        "*/t1/*": {"objects.insert": 2},
        "other": {"objects.insert": 2},
    }


def test_key_pattern():
    """What varies in a key becomes a star."""
    assert key_pattern("hosts/4f0c2a1be9d3.json") == "*/*.json"
    assert key_pattern("contexts/c/context.json") == "*/context.json"
    assert key_pattern("plain") == "plain"


def interval(started, ended):
    return {"started": started, "ended": ended}


def test_round_trips():
    """Requests in flight together are one round trip; what follows another is a second."""
    assert round_trips([]) == 0
    assert round_trips([interval(0, 10), interval(1, 9), interval(2, 8)]) == 1
    assert round_trips([interval(0, 1), interval(1, 2), interval(0, 2)]) == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=8))
def test_round_trips_is_the_longest_chain(spans):
    """The count is that of the longest chain of requests of which each follows the one before."""
    requests = [interval(start, start + length) for start, length in spans]

    def longest(after):
        return max((1 + longest(r["ended"]) for r in requests if r["started"] >= after), default=0)

    assert round_trips(requests) == longest(0)


def test_requests_in_order(fake_gcs_server, http, bucket):
    """The requests themselves can be read, and from a seq on."""
    put(http, bucket, "a")
    get(http, bucket, "a")
    first, second = fake_gcs_server.requests(bucket)
    assert (first["operation"], second["operation"]) == ("objects.insert", "objects.get")
    assert first["ended"] <= second["started"]
    assert fake_gcs_server.requests(bucket, after=first["seq"]) == [second]
    assert summary([first, second])["round_trips"] == 2


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("objects.insert", "A"), ("objects.compose", "A"), ("objects.patch", "A"), ("buckets.getStorageLayout", "B"),
     ("objects.resume", "free"), ("objects.delete", "free")],
)  # fmt: skip
def test_billing_class(operation, expected):
    """Each operation has its class of the price list."""
    assert billing_class(operation) == expected


def test_history(fake_gcs_server, http, bucket):
    """Committed writes are logged in order with key, generation and metadata; refused ones are not."""
    with fake_gcs_server.rules(write_limit=False):
        first = put(http, bucket, "a").json()
        put(http, bucket, "a", ifGenerationMatch=0)
        http.patch(f"/storage/v1/b/{bucket}/o/a", json={"metadata": {"k": "v"}})
        http.delete(f"/storage/v1/b/{bucket}/o/a")
        put(http, bucket, "b/c", b"12345")
    writes = fake_gcs_server.history(bucket)
    assert [(w["operation"], w["key"], w["deleted"]) for w in writes] == [
        ("objects.insert", "a", False),
        ("objects.patch", "a", False),
        ("objects.delete", "a", True),
        ("objects.insert", "b/c", False),
    ]
    assert {write["generation"] for write in writes[:3]} == {int(first["generation"])}
    assert (writes[1]["metageneration"], writes[1]["metadata"]) == (2, {"k": "v"})
    assert fake_gcs_server.history(bucket, prefix="b/")[0]["size"] == 5
    assert [w["seq"] for w in writes] == sorted(w["seq"] for w in writes)
    assert fake_gcs_server.history(bucket, after=writes[-1]["seq"]) == []


def test_rules_are_switched_by_name(fake_gcs_server, http, bucket):
    """A rule that is switched off does not hold, and holds again after the block."""
    put(http, bucket, "a")
    with fake_gcs_server.rules(preconditions=False, write_limit=False):
        assert put(http, bucket, "a", ifGenerationMatch=0).status_code == 200
    assert put(http, bucket, "a", ifGenerationMatch=0).status_code == 412


def upload_with_hash(http, bucket):
    params = {"uploadType": "media", "name": "hashed"}
    headers = {"X-Goog-Hash": "md5=XUFAKrxLKna5cZ2REBfFkg=="}
    return http.post(f"/upload/storage/v1/b/{bucket}/o", params=params, content=b"other", headers=headers)


def listing(http, bucket, **params):
    return http.get(f"/storage/v1/b/{bucket}/o", params={"prefix": "item", **params}).json()


def label(http, bucket):
    http.patch(f"/storage/v1/b/{bucket}", json={"labels": {"a": "1"}})
    return http.get(f"/storage/v1/b/{bucket}").json().get("labels")


def compose(http, bucket):
    return http.post(f"/storage/v1/b/{bucket}/o/composed/compose", json={"sourceObjects": []})


def patch(http, bucket, metadata):
    return http.patch(f"/storage/v1/b/{bucket}/o/item", json={"metadata": metadata})


def status_query(http, bucket):
    start = http.post(f"/upload/storage/v1/b/{bucket}/o", params={"uploadType": "resumable", "name": "r"})
    return http.put(start.headers["Location"], headers={"Content-Range": "bytes */*"}).status_code


def new_bucket(http):
    return http.post("/storage/v1/b", json={"name": f"UPPER-{uuid.uuid4().hex}"}).status_code


def encoding(http, bucket):
    headers = {"Accept-Encoding": "identity"}
    return http.get(f"/storage/v1/b/{bucket}/o/gz?alt=media", headers=headers).headers.get("Content-Encoding")


SWITCHED_OFF = {
    "object_names": (lambda http, b: put(http, b, "a\nb").status_code, 400, 200),
    "checksums": (lambda http, b: upload_with_hash(http, b).status_code, 400, 200),
    "list_pages": (lambda http, b: http.get(f"/storage/v1/b/{b}/o", params={"maxResults": "-1"}).status_code, 400, 200),
    "list_glob": (lambda http, b: len(listing(http, b, matchGlob="nothing").get("items", [])), 0, 1),
    "fields": (lambda http, b: set(listing(http, b, fields="kind")), {"kind"}, {"kind", "items"}),
    "error_bodies": (lambda http, b: get(http, b, "none").json()["error"]["errors"][0]["reason"], "notFound", "404"),
    "bucket_config": (label, {"a": "1"}, None),
    "compose_sources": (lambda http, b: compose(http, b).status_code, 400, 200),
    "custom_metadata": (lambda http, b: patch(http, b, {"k": "v" * 9000}).status_code, 400, 200),
    "bucket_names": (lambda http, _: new_bucket(http), 400, 200),
    "media_headers": (lambda http, b: "x-goog-meta-kind" in get(http, b, "meta", alt="media").headers, False, True),
    "transcoding": (encoding, None, "gzip"),
    "resumable": (status_query, 308, 200),
    "holds": (lambda http, b: http.delete(f"/storage/v1/b/{b}/o/held").status_code, 403, 204),
    "write_limit": (lambda http, b: {put(http, b, "hot").status_code for _ in range(5)}, {200, 429}, {200}),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SWITCHED_OFF))
def test_each_rule_can_be_switched_off(fake_gcs_server, http, bucket, name):
    """Every rule holds while it is on, and has no effect while it is off."""
    probe, on, off = SWITCHED_OFF[name]
    put(http, bucket, "item")
    put(http, bucket, "gz", gzip.compress(b"x"), contentEncoding="gzip")
    for key, change in (("meta", {"metadata": {"kind": "x"}}), ("held", {"temporaryHold": True})):
        put(http, bucket, key)
        http.patch(f"/storage/v1/b/{bucket}/o/{key}", json=change)
    with fake_gcs_server.settings(write_limit_refill=0 if name == "write_limit" else 1000):
        if name == "bucket_config":
            with fake_gcs_server.rules(**{name: False}):
                assert probe(http, bucket) == off
            assert probe(http, bucket) == on
            return
        assert probe(http, bucket) == on
        with fake_gcs_server.rules(**{name: False}):
            assert probe(http, bucket) == off


def test_every_rule_is_tried():
    """The list above leaves out no rule."""
    from fake_gcs.rules import RULES

    assert set(SWITCHED_OFF) | {"preconditions", "races_are_throttled"} == set(RULES)


def test_losers_of_a_race_may_be_throttled(fake_gcs_server, http, bucket):
    """With races_are_throttled a loser over the limit meets 429 where it would meet 412."""
    with fake_gcs_server.rules(races_are_throttled=True), fake_gcs_server.settings(write_limit_burst=1):
        assert put(http, bucket, "a", ifGenerationMatch=0).status_code == 200
        assert put(http, bucket, "a", ifGenerationMatch=0).status_code == 429


def test_reset():
    """A reset forgets statistics, history and faults, and puts rules and settings back."""
    with FakeGcs.start(options=["--write-burst=7", "--latency=regional"]) as server:
        bucket = server.create_bucket()
        server.call("PATCH", "rules", {"fields": False})
        server.call("PATCH", "settings", {"write_limit_burst": 3, "latency": "none"})
        server.call("POST", "faults", {"action": "drop"})
        server.reset()
        assert server.stats()["requests"] == 0
        assert server.history(bucket) == []
        assert server.call("GET", "faults") == {"faults": []}
        assert server.call("GET", "rules")["fields"]["on"]
        assert server.call("GET", "settings") == {
            "write_limit_burst": 7, "write_limit_refill": 1, "latency": "regional",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body"), [("rules", {"gravity": False}), ("rules", {"fields": 1}), ("settings", {"latency": "lunar"})]
)
def test_unknown_names_are_refused(fake_gcs_server, path, body):
    """A rule or setting that does not exist is refused."""
    with pytest.raises(FakeGcsError):
        fake_gcs_server.call("PATCH", path, body)


def test_index_shows_what_there_is(fake_gcs_server):
    """GET /_fake_gcs/ names every part of the control API; rules carry their source."""
    assert "GET stats" in fake_gcs_server.call("GET", "")
    assert all(rule["source"] and rule["states"] for rule in fake_gcs_server.call("GET", "rules").values())


def test_regional_latency(fake_gcs_server, http, bucket):
    """With the regional profile a small write takes at least 60 ms, two in parallel no more than two in a row."""
    with fake_gcs_server.settings(latency="regional"):
        started = time.monotonic()
        put(http, bucket, "a")
        took = time.monotonic() - started
    assert took >= 0.06


def test_requests_come_from_one_server_only(fake_gcs_server, bucket):
    """The control API's own requests are not counted."""
    fake_gcs_server.stats()
    assert {request["operation"] for request in fake_gcs_server.requests(bucket)} <= {"objects.list"}
