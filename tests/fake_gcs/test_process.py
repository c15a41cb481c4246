"""The emulator's processes: started, stopped, and never left behind."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import fake_gcs
from fake_gcs.errors import StartFailed
from fake_gcs.process import FakeGcs
from fake_gcs.server import FakeGcsServer

PARENT = """
import sys, time
import fake_gcs
from fake_gcs.process import FakeGcs
server = FakeGcs.start(plain={plain})
print(server.pid, server.url, flush=True)
time.sleep(600)
"""


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def put(url, bucket, name, body):
    request = urllib.request.Request(
        f"{url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", data=body, method="POST"
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def listens(url):
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def eventually(condition, seconds=15):
    """Polls a condition that another process brings about; there is nothing to wait on."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def children(pid):
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def descendants(pid):
    return [found for child in children(pid) for found in (child, *descendants(child))]


def alive(pid):
    """False for a zombie too: it holds nothing, and whoever adopted it decides when it goes."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads the process tree from /proc")


@pytest.fixture(params=[True, False], ids=["plain", "gateway"])
def plain(request):
    return request.param


def test_one_line_on_stdout_then_clean_end_on_sigterm(plain):
    """The command prints exactly one line, once it answers, and SIGTERM ends it with status 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fake_gcs", "--port=0", "--bucket=one", "--bucket=two", *(["--plain"] if plain else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    line = process.stdout.readline()
    url = line.removeprefix("listening on ").strip()
    assert line == f"listening on {url}\n"
    assert {bucket["name"] for bucket in get(f"{url}/storage/v1/b?project=p")["items"]} == {"one", "two"}
    process.terminate()
    rest, _ = process.communicate(timeout=30)
    assert rest == ""
    assert process.returncode == 0
    assert not listens(url)


def test_interrupt_ends_it_cleanly():
    """Ctrl-C ends the command with status 0 too."""
    server = FakeGcs.start(plain=True)
    os.kill(server.pid, signal.SIGINT)
    assert server.stop() == 0


@linux_only
def test_kill_9_of_the_parent_ends_everything(plain):
    """However the parent dies, no process of the emulator survives it."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(plain=plain)], stdout=subprocess.PIPE, text=True)
    pid, url = parent.stdout.readline().split()
    tree = [int(pid), *descendants(int(pid))]
    assert len(tree) >= 3  # the command, the watchdog, fake-gcs-server
    parent.kill()
    parent.communicate()
    assert eventually(lambda: not any(alive(pid) for pid in tree))
    assert not listens(url)


@linux_only
@pytest.mark.parametrize("victim", [0, 1], ids=["command", "watchdog"])
def test_kill_9_within_the_tree_leaves_nothing(victim, plain):
    """Killing the command, or the watchdog below it, ends the rest as well."""
    server = FakeGcs.start(plain=plain)
    tree = [server.pid, *descendants(server.pid)]
    os.kill(tree[victim], signal.SIGKILL)
    assert eventually(lambda: not any(alive(pid) for pid in tree[1:]))
    assert eventually(lambda: not server.running)
    server.stop()


@linux_only
def test_a_backend_that_lives_on_keeps_its_directory(tmp_path):
    """What the backend of a killed emulator still writes cannot come behind the back of the next one: its directory
    is locked until it has ended."""
    server = FakeGcs.start(data=tmp_path)
    [watchdog] = children(server.pid)
    [backend] = children(watchdog)
    os.kill(watchdog, signal.SIGSTOP)  # as a busy machine holds it up
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    try:
        assert alive(backend)
        assert not free(tmp_path / "objects.lock")
    finally:
        os.kill(watchdog, signal.SIGCONT)
    assert eventually(lambda: free(tmp_path / "objects.lock"))
    assert not alive(backend)


def free(path):
    with path.open() as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def test_a_directory_that_another_keeps_is_not_begun(tmp_path, monkeypatch):
    """A server waits for its directory to become free, and says what it waited for in vain."""
    monkeypatch.setattr("fake_gcs.server.START_SECONDS", 0.1)
    with (tmp_path / "objects.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StartFailed, match="an earlier fake-gcs-server has not ended"):
            FakeGcsServer(root=tmp_path / "objects").start()


def test_taken_port_is_said(plain):
    """A port that somebody else listens on ends the command with the reason."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = subprocess.run(
            [sys.executable, "-m", "fake_gcs", f"--port={port}", *(["--plain"] if plain else [])],
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )
    assert ended.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_data_survives_a_restart(tmp_path, plain):
    """Buckets and objects in --data are there again after a restart."""
    with FakeGcs.start(data=tmp_path, buckets=["kept"], plain=plain) as server:
        put(server.url, "kept", "a", b"body")
    with FakeGcs.start(data=tmp_path, buckets=["kept"], plain=plain) as server:
        assert [item["name"] for item in get(f"{server.url}/storage/v1/b/kept/o")["items"]] == ["a"]


def test_temporary_data_goes_with_the_server(tmp_path, monkeypatch):
    """Without a root the filesystem backend's temporary directory is removed at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with FakeGcsServer() as server:
        server.create_bucket("bucket")
        put(server.url, "bucket", "a", b"body")
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_buckets_are_fresh(fake_gcs_server):
    """The fixture's create_bucket makes a bucket nobody has used, and accepts a name that exists."""
    first, second = fake_gcs_server.create_bucket(), fake_gcs_server.create_bucket()
    assert first != second
    assert fake_gcs_server.create_bucket(first) == first
    assert get(f"{fake_gcs_server.url}/storage/v1/b/{second}")["name"] == second


def test_plugin_is_inert_when_unused(tmp_path):
    """A session that does not use the fixture imports nothing of fake_gcs but the plugin, and starts nothing."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    ours = {name for name in sys.modules if name.split('.')[0] in ('fake_gcs', 'aiohttp', 'typer')}\n"
        "    assert ours == {'fake_gcs', 'fake_gcs.pytest_plugin'}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "fake_gcs.pytest_plugin", "test_other.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(Path(fake_gcs.__file__).parents[1]),
        },
        capture_output=True,
        check=False,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout
