"""Scripted faults, over the control API and as Python objects."""

import asyncio
import contextlib
import time

import httpx
import pytest

from fake_gcs.errors import FakeGcsError
from fake_gcs.faults import Fault, Faults
from fake_gcs.remote import FaultNotServed


class Client:
    """Uploads to and reads from one bucket."""

    def __init__(self, server):
        self.server = server
        self.bucket = server.create_bucket()
        self.http = httpx.Client(base_url=server.url, timeout=10, trust_env=False)

    def put(self, key="a", body=b"body", **params):
        params = {"uploadType": "media", "name": key, **params}
        return self.http.post(f"/upload/storage/v1/b/{self.bucket}/o", params=params, content=body)

    def read(self, key="a"):
        return self.http.get(f"/storage/v1/b/{self.bucket}/o/{key}", params={"alt": "media"})

    def get(self, key="a"):
        return self.http.get(f"/storage/v1/b/{self.bucket}/o/{key}")

    def writes(self):
        return self.server.history(self.bucket)


@pytest.fixture
def client(fake_gcs_server):
    client = Client(fake_gcs_server)
    yield client
    client.http.close()


def fault(client, action, **fields):
    return Fault(action, bucket=client.bucket, **fields)


@pytest.mark.parametrize(
    ("status", "reason"), [(429, "rateLimitExceeded"), (503, "backendError"), (500, "backendError")]
)
def test_status(client, gcs_fault, status, reason):
    """A status is answered with its real body, once, and nothing is done."""
    gcs_fault(fault(client, "status", operation="objects.insert", status=status))
    refused = client.put()
    assert refused.status_code == status
    assert refused.json()["error"]["errors"][0]["reason"] == reason
    assert client.writes() == []
    assert client.put().status_code == 200


def test_drop(client, gcs_fault):
    """A dropped request is not done, and its client sees the connection break."""
    gcs_fault(fault(client, "drop"))
    with pytest.raises(httpx.TransportError):
        client.put()
    assert client.writes() == []


def test_commit_and_drop(client, gcs_fault):
    """The answer of a committed write is lost: the object is there, and a blind retry meets itself as 412."""
    gcs_fault(fault(client, "commit_and_drop", operation="objects.insert"))
    with pytest.raises(httpx.TransportError):
        client.put(ifGenerationMatch=0)
    assert [write["key"] for write in client.writes()] == ["a"]
    assert client.put(ifGenerationMatch=0).status_code == 412


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_cut(client, gcs_fault, size):
    """A cut body ends after the bytes that were let through, short of its Content-Length."""
    client.put(body=b"x" * size)
    gcs_fault(fault(client, "cut", operation="objects.media", after_bytes=50))
    received = b""
    with client.http.stream("GET", f"/storage/v1/b/{client.bucket}/o/a", params={"alt": "media"}) as response:
        assert response.headers["Content-Length"] == str(size)
        with contextlib.suppress(httpx.RemoteProtocolError):
            for piece in response.iter_raw():
                received += piece
    assert len(received) == 50
    assert client.read().content == b"x" * size


def test_cut_of_a_body_that_is_too_short_is_not_served(client):
    """A body that is not longer than what is let through passes, and the fault counts as not served."""
    client.put(body=b"short")
    scripted = client.server.add_fault(fault(client, "cut", after_bytes=5000))
    assert client.read().content == b"short"
    assert client.server.call("GET", f"faults/{scripted.number}")["hit"] == 1
    assert scripted.served == 0
    scripted.remove()


def test_cut_request(client, gcs_fault):
    """A connection that breaks within the request's body stores nothing."""
    gcs_fault(fault(client, "cut_request", operation="objects.insert", after_bytes=1000))
    with pytest.raises(httpx.TransportError):
        client.put(body=b"x" * 1_000_000)
    assert client.writes() == []


def test_delay(client, gcs_fault):
    """A delayed request takes as long as was said, and is then done as usual."""
    gcs_fault(fault(client, "delay", operation="objects.insert", seconds=0.3))
    started = time.monotonic()
    assert client.put().status_code == 200
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("after_bytes", [None, 10])
def test_stall(client, gcs_fault, after_bytes):
    """A stalled answer leaves its client waiting; with after_bytes the head and some of the body came."""
    client.put(body=b"x" * 1000)
    gcs_fault(fault(client, "stall", operation="objects.media", after_bytes=after_bytes))
    with pytest.raises(httpx.ReadTimeout):
        client.http.get(f"/storage/v1/b/{client.bucket}/o/a", params={"alt": "media"}, timeout=1.0)
    assert client.read().status_code == 200


def test_nth_and_times(client, gcs_fault):
    """nth counts matches from 1, times says how many are hit from there on."""
    gcs_fault(fault(client, "status", operation="objects.get", nth=2, times=2))
    client.put()
    assert [client.get().status_code for _ in range(5)] == [200, 503, 503, 200, 200]


def test_key_pattern(client, gcs_fault):
    """A key pattern crosses slashes; other keys pass."""
    scripted = gcs_fault(fault(client, "status", key="*/task.json", times=None))
    assert client.put("a/b/task.json").status_code == 503
    assert client.put("a/b/other.json").status_code == 200
    assert scripted.served == 1


def test_probability_repeats_with_its_seed():
    """The draws of a probability are those of its seed, every time."""

    def drawn(seed):
        faults = Faults()
        faults.add(Fault("status", probability=0.5, seed=seed, times=None))
        return [faults.decide("objects.get", "b", "k") is not None for _ in range(50)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert 10 < sum(drawn(1)) < 40


def test_faults_take_turns(client, gcs_fault):
    """Two faults on the same requests strike one after the other."""
    gcs_fault(fault(client, "status", operation="objects.insert", status=503))
    gcs_fault(fault(client, "status", operation="objects.insert", status=429))
    assert [client.put(str(number)).status_code for number in range(3)] == [503, 429, 200]


def test_unserved_fault_fails_the_block(client):
    """A fault that never struck fails the block that scripted it, and is gone afterwards."""
    with pytest.raises(FaultNotServed, match="never served"), client.server.faults(fault(client, "drop")):
        pass
    assert client.server.call("GET", "faults") == {"faults": []}


def test_error_of_the_block_comes_first(client):
    """An exception within the block is not hidden by a fault that was not served."""
    with pytest.raises(ZeroDivisionError), client.server.faults(fault(client, "drop")):
        raise ZeroDivisionError


def test_faults_over_http(client):
    """The control API adds, shows and removes faults as plain JSON."""
    added = client.http.post(
        "/_fake_gcs/faults", json={"action": "status", "bucket": client.bucket, "status": 500}
    ).json()
    assert client.get().status_code == 500
    path = f"/_fake_gcs/faults/{added['id']}"
    assert client.http.get(path).json()["served"] == 1
    assert client.http.delete(path).status_code == 200
    assert client.http.get(path).status_code == 404


@pytest.mark.parametrize(
    "document", [{}, {"action": "explode"}, {"action": "drop", "when": "now"}, {"action": "drop", "nth": 0}]
)
def test_what_is_no_fault_is_refused(client, document):
    """A fault that cannot be is refused with 400 when it is scripted, not later."""
    with pytest.raises(FakeGcsError):
        client.server.call("POST", "faults", document)


async def test_fault_inside_a_batch(client, gcs_fault):
    """A status fault strikes a request within a batch, and the other parts pass."""
    client.put("a")
    client.put("b")
    gcs_fault(fault(client, "status", operation="objects.delete", key="a", status=503))
    part = "--x\r\nContent-Type: application/http\r\n\r\nDELETE /storage/v1/b/{}/o/{} HTTP/1.1\r\n\r\n\r\n"
    body = "".join(part.format(client.bucket, key) for key in "ab") + "--x--\r\n"
    answer = await asyncio.to_thread(
        client.http.post, "/batch/storage/v1", content=body, headers={"Content-Type": "multipart/mixed; boundary=x"}
    )
    assert [line for line in answer.text.splitlines() if line.startswith("HTTP/1.1")] == [
        "HTTP/1.1 503 Service Unavailable",
        "HTTP/1.1 204 No Content",
    ]
    assert client.get("a").status_code == 200
    assert client.get("b").status_code == 404


def multipart(client, key):
    body = (
        f'--x\r\nContent-Type: application/json\r\n\r\n{{"name": "{key}"}}\r\n'
        "--x\r\nContent-Type: text/plain\r\n\r\nbody\r\n--x--"
    )
    headers = {"Content-Type": "multipart/related; boundary=x"}
    path = f"/upload/storage/v1/b/{client.bucket}/o?uploadType=multipart"
    return client.http.post(path, content=body, headers=headers)


def test_key_of_an_upload_that_names_it_in_its_body(client, gcs_fault):
    """A key pattern, and the meter, see the name of a multipart upload, which is in the body."""
    gcs_fault(fault(client, "status", operation="objects.insert", key="*/task.json"))
    assert multipart(client, "a/other.json").status_code == 200
    assert multipart(client, "a/task.json").status_code == 503
    assert multipart(client, "a/task.json").status_code == 200
    assert [request["key"] for request in client.server.requests(client.bucket)] == [
        "a/other.json", "a/task.json", "a/task.json",
    ]  # fmt: skip


def test_key_of_a_resumable_upload(client, gcs_fault):
    """A key pattern sees the name in every request of a resumable upload."""
    gcs_fault(fault(client, "status", operation="objects.startUpload", key="big"))
    gcs_fault(fault(client, "status", operation="objects.resume", key="big"))
    path = f"/upload/storage/v1/b/{client.bucket}/o?uploadType=resumable"
    assert client.http.post(path, json={"name": "big"}).status_code == 503
    location = client.http.post(path, json={"name": "big"}).headers["Location"]
    assert [client.http.put(location, content=b"body").status_code for _ in range(2)] == [503, 200]
    assert {request["key"] for request in client.server.requests(client.bucket)} == {"big"}


def test_key_of_a_copy_is_its_target(client, gcs_fault):
    """A key pattern sees the object that a copy writes."""
    client.put("source")
    gcs_fault(fault(client, "status", operation="objects.rewrite", key="target"))
    path = f"/storage/v1/b/{client.bucket}/o/source/rewriteTo/b/{client.bucket}/o/target"
    assert [client.http.post(path, json={}).status_code for _ in range(2)] == [503, 200]


def test_commit_and_drop_of_a_resumable_upload(client, gcs_fault):
    """The last answer of a resumable upload is lost: the session still says that the object is stored."""
    path = f"/upload/storage/v1/b/{client.bucket}/o?uploadType=resumable"
    location = client.http.post(path, json={"name": "a"}).headers["Location"]
    gcs_fault(fault(client, "commit_and_drop", operation="objects.resume"))
    with pytest.raises(httpx.TransportError):
        client.http.put(location, content=b"body")
    status = client.http.put(location, headers={"Content-Range": "bytes */*"})
    assert status.status_code == 200
    assert status.json()["generation"] == client.get().json()["generation"]
