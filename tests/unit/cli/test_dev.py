"""`dev`: emulator and host as one process tree, with the real emulator and a stand-in for the host's application."""

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.ports import free_port

HOST = """
import os, sys, types
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

def create_app(settings):
    async def show(request):
        return JSONResponse({"store": settings.store, "emulator": os.environ["STORAGE_EMULATOR_HOST"]})
    return Starlette(routes=[Route("/", show)])

module = types.ModuleType("a2a_gcs.host.app")
module.create_app = create_app
sys.modules["a2a_gcs.host.app"] = module
"""


@pytest.fixture
def port():
    """A port for the emulator."""
    return free_port()


@pytest.fixture
def dev(start, port):
    def dev(*arguments):
        return start("dev", "--port", "0", "--emulator-port", str(port), *arguments, prelude=HOST)

    return dev


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def answers(url):
    try:
        get(url)
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_dev_serves_over_an_emulator_with_a_bucket_and_stops_both(dev, port, tmp_path):
    """One line on stdout, the host's; a bucket that is there; SIGTERM leaves nobody listening and the data in place."""
    running = dev()
    line = running.line()
    emulator = f"http://127.0.0.1:{port}"
    assert get(line.removeprefix("listening on ")) == {"store": "gs://a2a-gcs-dev", "emulator": emulator}
    assert get(f"{emulator}/storage/v1/b/a2a-gcs-dev")["name"] == "a2a-gcs-dev"
    running.signal(signal.SIGTERM)
    status, out, err = running.end()
    assert (status, out) == (0, "")
    assert f"{emulator}/storage/v1/b/a2a-gcs-dev/o, kept in .a2a-gcs/data" in err
    assert re.search(
        rf"^look +STORAGE_EMULATOR_HOST={emulator} \S*a2a-gcs tasks --store gs://a2a-gcs-dev$", err, re.MULTILINE
    )
    assert not answers(f"{emulator}/storage/v1/b")
    assert (tmp_path / ".a2a-gcs" / "data").is_dir()


def test_ctrl_c_reaches_the_emulator_only_after_the_host_has_closed(dev, port):
    """The host's last writes still need it: the terminal's signal to the whole group is not the emulator's."""
    running = dev()
    running.line()
    running.ctrl_c()
    status, out, err = running.end()
    assert (status, out) == (0, "")
    assert "the emulator ended" not in err
    assert not answers(f"http://127.0.0.1:{port}/storage/v1/b")


def test_after_kill_9_the_next_start_works_at_once(dev, port):
    """The emulator goes with its parent, and a start that comes before it has gone waits for the port."""
    first = dev("--data", "data")
    assert first.line().startswith("listening on ")
    first.signal(signal.SIGKILL)
    first.end()
    second = dev("--data", "data")
    assert second.line().startswith("listening on ")
    second.signal(signal.SIGINT)
    assert second.end()[0] == 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the emulator's process in /proc")
def test_dev_says_so_when_the_emulator_dies(dev):
    """A host without its bucket is of no use: status 1, with the reason."""
    running = dev()
    running.line()
    for child in children(running.pid):
        os.kill(child, signal.SIGKILL)
    status, out, err = running.end()
    assert (status, out) == (1, "")
    assert "the emulator ended (status -9); stopping" in err
    assert err.splitlines()[-1].startswith("error: the emulator ended unexpectedly (status -9)")


def test_a_port_of_somebody_else_is_named_with_its_option(port, start):
    """After the wait the message names the port and how to choose another; the host's own port likewise."""
    short = "import a2a_gcs.cli.dev as dev; dev.PORT_WAIT = 0.2\n"
    with socket.create_server(("127.0.0.1", port)):
        status, out, err = start("dev", "--emulator-port", str(port), prelude=HOST + short).end()
        assert (status, out) == (1, "")
        assert f"port {port} is in use; waiting up to" in err
        reason = f"error: port {port} is in use by another program; stop it, or choose another port with "
        assert err.splitlines()[-1] == f"{reason}--emulator-port"
        arguments = ("--port", str(port), "--emulator-port", "0")
        status, out, err = start("dev", *arguments, prelude=HOST + short).end()
        assert (status, out) == (1, "")
        assert err.splitlines()[-1] == f"{reason}--port"


def test_an_emulator_that_cannot_start_names_the_extra(start):
    """Its own reason comes first; what to install after it."""
    status, out, err = start("dev", "--emulator-port", "0", prelude=HOST, FAKE_GCS_BINARY="/nowhere").end()
    assert (status, out) == (1, "")
    assert "'/nowhere', which is not an executable file" in err
    assert "pip install 'a2a-gcs[emulator]'" in err.splitlines()[-1]
    assert err.count("the emulator") == 1
