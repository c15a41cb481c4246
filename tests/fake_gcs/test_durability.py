"""What was acknowledged survives, memory stays flat, and old bodies are removed."""

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from fake_gcs.errors import StartFailed
from fake_gcs.process import FakeGcs

MIB = 1024 * 1024


@pytest.fixture
def http():
    with httpx.Client(timeout=60, trust_env=False) as http:
        yield http


def put(http, server, name, body, **params):
    params = {"uploadType": "media", "name": name, **params}
    return http.post(f"{server.url}/upload/storage/v1/b/bucket/o", params=params, content=body)


def read(http, server, name):
    return http.get(f"{server.url}/storage/v1/b/bucket/o/{name}", params={"alt": "media"})


def names(http, server):
    found, token = {}, {}
    while True:
        page = http.get(f"{server.url}/storage/v1/b/bucket/o", params=token).json()
        found |= {item["name"]: int(item["generation"]) for item in page.get("items", [])}
        if "nextPageToken" not in page:
            return found
        token = {"pageToken": page["nextPageToken"]}


def bodies(data):
    return [path for path in (data / "objects" / "bodies").rglob("*") if path.is_file()]


def eventually(condition, seconds=20):
    """Polls what the emulator does in the background; there is nothing to wait on."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Writer(threading.Thread):
    """Creates and overwrites objects until its server dies, and remembers what was acknowledged."""

    def __init__(self, server, number):
        super().__init__()
        self.server = server
        self.number = number
        self.acknowledged = {}
        self.attempted = {}
        self.wrote = threading.Event()

    def run(self):
        draws = random.Random(self.number)
        with httpx.Client(timeout=60, trust_env=False) as http:
            for count in range(100_000):
                name = f"{self.number}-{draws.randrange(20)}"
                body = b"%d " % count * draws.randrange(1, 3000)
                self.attempted[name] = body
                try:
                    response = put(http, self.server, name, body)
                except httpx.TransportError:
                    return
                if response.status_code != 200:
                    return
                self.acknowledged[name] = body, int(response.json()["generation"])
                if count > 20:
                    self.wrote.set()


@pytest.mark.parametrize("victim", ["command", "backend"])
def test_kill_9_in_mid_write_loses_nothing(tmp_path, http, victim):
    """After kill -9 of the emulator, or of fake-gcs-server alone, every acknowledged write is there, whole."""
    server = FakeGcs.start(data=tmp_path, buckets=["bucket"], options=["--write-burst=1000000"])
    writers = [Writer(server, number) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        assert writer.wrote.wait(60)
    os.kill(server.pid if victim == "command" else backend_of(server.pid), signal.SIGKILL)
    for writer in writers:
        writer.join(60)
    server.stop()
    with FakeGcs.start(data=tmp_path) as again:
        stored = names(http, again)
        for writer in writers:
            for name, (body, generation) in writer.acknowledged.items():
                assert stored[name] >= generation
                expected = {body} if stored[name] == generation else {writer.attempted[name]}
                assert {read(http, again, name).content} == expected
        assert eventually(lambda: len(bodies(tmp_path)) == len(stored))


def test_an_upload_that_was_killed_half_way_leaves_nothing(tmp_path, http):
    """A body whose metadata fake-gcs-server had still to write, which it does not find again, is removed, and so is
    the file by which it tries whether it can rename one to there."""
    with FakeGcs.start(data=tmp_path, buckets=["bucket"]) as server:
        put(http, server, "a", b"body")
    [whole] = bodies(tmp_path)
    half, probe = whole.with_name("b@1796108658495617"), whole.with_name(".c@1796108722085841940527521")
    half.write_bytes(b"half")
    probe.touch()
    with sqlite3.connect(tmp_path / "catalogue.sqlite") as catalogue:  # as it is once an upload has begun
        blobs = [("bucket/b@1796108658495617",), ("bucket/c@1796108722085841",)]
        catalogue.executemany("INSERT INTO garbage VALUES (?)", blobs)
    catalogue.close()
    with FakeGcs.start(data=tmp_path) as server:
        assert eventually(lambda: bodies(tmp_path) == [whole])
        assert read(http, server, "a").content == b"body"


def backend_of(pid):
    """The process id of fake-gcs-server below the command and its watchdog."""
    if sys.platform != "linux":
        pytest.skip("reads the process tree from /proc")

    def child(pid):
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    pids = [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]
    return child(pids[0])


def test_generations_grow_across_restarts(tmp_path, http):
    """A restart, and a clock that went back, never repeat a generation, of deleted objects neither."""
    with FakeGcs.start(data=tmp_path, buckets=["bucket"]) as server:
        generation = int(put(http, server, "a", b"1").json()["generation"])
        http.delete(f"{server.url}/storage/v1/b/bucket/o/a")
    ahead = generation + 10**15
    with sqlite3.connect(tmp_path / "catalogue.sqlite") as catalogue:  # as if the clock had been ahead until now
        catalogue.execute("UPDATE numbers SET last = ?", (ahead,))
    catalogue.close()
    with FakeGcs.start(data=tmp_path) as server:
        assert int(put(http, server, "a", b"2").json()["generation"]) > ahead


def test_settings_and_metadata_survive(tmp_path, http):
    """Bucket settings, custom metadata and metagenerations survive a restart."""
    with FakeGcs.start(data=tmp_path, buckets=["bucket"]) as server:
        put(http, server, "a", b"body")
        http.patch(f"{server.url}/storage/v1/b/bucket/o/a", json={"metadata": {"k": "v" * 8000}})
        http.patch(f"{server.url}/storage/v1/b/bucket", json={"labels": {"a": "1"}})
        before = http.get(f"{server.url}/storage/v1/b/bucket/o/a?fields=metadata,generation,metageneration").json()
    with FakeGcs.start(data=tmp_path, buckets=["bucket"]) as server:
        after = http.get(f"{server.url}/storage/v1/b/bucket/o/a?fields=metadata,generation,metageneration").json()
        assert after == before
        assert http.get(f"{server.url}/storage/v1/b/bucket").json()["labels"] == {"a": "1"}


def test_overwritten_bodies_are_removed(tmp_path, http):
    """Of an object that was overwritten and of one that was deleted no body stays on disk."""
    with FakeGcs.start(data=tmp_path, buckets=["bucket"], options=["--write-burst=100"]) as server:
        for number in range(10):
            put(http, server, "a", b"%d" % number)
        put(http, server, "b", b"gone")
        http.delete(f"{server.url}/storage/v1/b/bucket/o/b")
        put(http, server, "c", b"x", ifGenerationMatch=7)  # stored, then refused
        assert eventually(lambda: len(bodies(tmp_path)) == 1)
        assert read(http, server, "a").content == b"9"


def test_two_emulators_on_one_directory(tmp_path):
    """A second emulator on the same data directory does not start, and says why."""
    with FakeGcs.start(data=tmp_path):
        ended = subprocess.run(
            [sys.executable, "-m", "fake_gcs", "--port=0", f"--data={tmp_path}"],
            capture_output=True,
            check=False,
            text=True,
        )
        assert ended.returncode == 1
        assert "another emulator works on" in ended.stderr
        with pytest.raises(StartFailed):
            FakeGcs.start(data=tmp_path)


def test_reader_keeps_what_it_began_to_read(tmp_path, http):
    """A download that began before an overwrite ends with the body that it began with."""
    body = os.urandom(32 * MIB)
    with FakeGcs.start(buckets=["bucket"]) as server:
        put(http, server, "a", body)
        with http.stream("GET", f"{server.url}/storage/v1/b/bucket/o/a", params={"alt": "media"}) as response:
            pieces = response.iter_raw()
            received = next(pieces)
            with httpx.Client(trust_env=False, timeout=60) as other:
                put(other, server, "a", b"new")
            received += b"".join(pieces)
        assert received == body
        assert read(http, server, "a").content == b"new"


def test_slow_upload_slows_nobody(http):
    """While one client's upload trickles in, others read and write."""
    hold = threading.Event()

    def slowly():
        yield b"begin"
        assert hold.wait(60)
        yield b" end"

    with FakeGcs.start(buckets=["bucket"]) as server:
        answers = []

        def upload():
            with httpx.Client(timeout=60, trust_env=False) as slow:
                answers.append(put(slow, server, "slow", slowly()))

        thread = threading.Thread(target=upload)
        thread.start()
        assert put(http, server, "fast", b"body").status_code == 200
        assert read(http, server, "fast").content == b"body"
        assert read(http, server, "slow").status_code == 404
        hold.set()
        thread.join(60)
        assert answers[0].status_code == 200
        assert read(http, server, "slow").content == b"begin end"


def peak_memory(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


@pytest.mark.skipif(sys.platform != "linux", reason="reads peak memory from /proc")
def test_memory_stays_flat(http):
    """An upload and a download of 200 MiB raise the gateway's memory by less than 40 MiB."""

    def body():
        for _ in range(200):
            yield bytes(MIB)

    with FakeGcs.start(buckets=["bucket"]) as server:
        put(http, server, "small", b"x")
        read(http, server, "small")
        before = peak_memory(server.pid)
        assert put(http, server, "big", body()).json()["size"] == str(200 * MIB)
        size = 0
        with http.stream("GET", f"{server.url}/storage/v1/b/bucket/o/big", params={"alt": "media"}) as response:
            for piece in response.iter_raw():
                size += len(piece)
        assert size == 200 * MIB
        assert peak_memory(server.pid) - before < 40 * MIB


def break_off(url, path, headers, body):
    """Sends a request whose body ends early, and breaks the connection off."""
    host, port = url.removeprefix("http://").split(":")
    head = f"{path} HTTP/1.1\r\nHost: {host}:{port}\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in headers.items()
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"\r\n" + body)


def test_upload_that_breaks_off_publishes_nothing(fake_gcs_server, http):
    """An upload whose connection breaks within the body leaves the old object, and the server serves on."""
    bucket = fake_gcs_server.create_bucket()
    target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=a"
    http.post(fake_gcs_server.url + target, content=b"old")
    break_off(fake_gcs_server.url, f"POST {target}", {"Content-Length": 10 * MIB}, b"x" * MIB)
    assert eventually(lambda: len(fake_gcs_server.requests(bucket)) == 2)
    assert http.get(f"{fake_gcs_server.url}/storage/v1/b/{bucket}/o/a?alt=media").content == b"old"
    assert [write["key"] for write in fake_gcs_server.history(bucket)] == ["a"]


def test_chunk_that_breaks_off_is_persisted_in_part(fake_gcs_server, http):
    """Of a chunk whose connection breaks whole multiples of 256 KiB stay; the upload goes on from there."""
    bucket = fake_gcs_server.create_bucket()
    body = os.urandom(MIB)
    start = http.post(f"{fake_gcs_server.url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&name=a")
    location = start.headers["Location"]
    target = location.removeprefix(fake_gcs_server.url)
    headers = {"Content-Length": MIB, "Content-Range": f"bytes 0-{MIB - 1}/{MIB}"}
    break_off(fake_gcs_server.url, f"PUT {target}", headers, body[: MIB // 2 + 1000])
    status = {"Content-Range": "bytes */*"}
    assert eventually(lambda: http.put(location, headers=status).headers.get("Range") == f"bytes=0-{MIB // 2 - 1}")
    rest = {"Content-Range": f"bytes {MIB // 2}-{MIB - 1}/{MIB}"}
    assert http.put(location, headers=rest, content=body[MIB // 2 :]).status_code == 200
    assert http.get(f"{fake_gcs_server.url}/storage/v1/b/{bucket}/o/a?alt=media").content == body
