"""Clients that others have written, as they are installed from their registries, against a host.

Each runs in a process and an environment of its own, does everything that it can, and
prints what came of it. `make clients` installs them; without them these tests are skipped.
"""

import functools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from tests.clients import environments
from tests.support.host_thread import serve_in_thread

HERE = Path(__file__).parent
SECONDS = 90
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
CLIENTS = ("a2a-sdk-1", "a2a-sdk-0.3", "a2a-js")
LISTS = ("a2a-sdk-1", "a2a-js")
"""The client of 0.3 has no listing."""


class Webhook(ThreadingHTTPServer):
    """Takes push notifications, and hands them out by the last segment of their path."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Receiver)
        self._got = defaultdict(queue.Queue)

    @property
    def address(self):
        return f"127.0.0.1:{self.server_port}"

    def put(self, path, token, body):
        self._got[path.rpartition("/")[2]].put((token, body))

    def get(self, name):
        return self._got[name].get(timeout=SECONDS)


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.put(self.path, self.headers["X-A2A-Notification-Token"], body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def webhook():
    with Webhook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def host(tmp_path_factory, webhook):
    """The demo agent over all bindings, gRPC in its card."""
    settings = {"grpc_port": 0, "advertise_grpc": True, "push_allowed_hosts": webhook.address}
    with serve_in_thread(MemoryStore(), work_dir=tmp_path_factory.mktemp("work"), **settings) as host:
        yield host


@pytest.fixture(scope="module")
def run(host, webhook, tmp_path_factory):
    """What a client found over a binding; each is run once."""

    @functools.cache
    def found(client, binding):
        context = context_of(client, binding)
        arguments = [host.url, binding, context, f"http://{webhook.address}/{context}"]
        if client == "a2a-js":
            return outcome(_js(tmp_path_factory), "sdk.mjs", arguments)
        if client == "a2a-sdk-1":
            return outcome([sys.executable], "sdk_1.py", arguments)
        if binding == "GRPC":  # a card tells this client one address a binding, and the one of 1.0 comes first
            arguments.append(host.grpc_target)
        return outcome([_python("a2a-sdk-0.3")], "sdk_03.py", arguments)

    return found


def context_of(client, binding):
    return f"{client}-{binding}".replace("+", "-")


def _python(name):
    return environments.python(name) or pytest.skip(f"{name} is not installed: make clients")


def _js(tmp_path_factory):
    """Node, where the modules are found: beside the script."""
    if environments.node() is None:
        pytest.skip(f"there is no Node {environments.NODE_NEEDED} or newer on the PATH")
    modules = environments.node_modules() or pytest.skip("@a2a-js/sdk is not installed: make clients")
    directory = tmp_path_factory.mktemp("js")
    (directory / "node_modules").symlink_to(modules / "node_modules")
    shutil.copy(HERE / "js" / "sdk.mjs", directory)
    return [environments.node(), "--preserve-symlinks-main", directory]


def outcome(command, script, arguments):
    """What the client's last line says. A client that fails fails its tests, with what it wrote."""
    *command, last = command
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "A2A_GCS_REQUIRE")}
    command = [*command, str(last / script)] if script.endswith(".mjs") else [last, str(HERE / script)]
    ran = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=SECONDS, env=inherited, check=False
    )
    assert ran.returncode == 0, f"{script} {arguments}:\n{ran.stderr[-4000:]}"
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(params=[(client, binding) for client in CLIENTS for binding in BINDINGS], ids="-".join, scope="module")
def found(request, run):
    return run(*request.param)


def test_send(found):
    """A message is a completed task with the agent's artifact."""
    assert found["send"] == {"state": "completed", "files": "journal.md 9\n"}


def test_stream(found):
    """The task first, then every chunk once and in order, then its end."""
    chunks = "".join(f"chunk {n} of 3\n" for n in (1, 2, 3))
    assert found["stream"] == {"first": "task", "chunks": chunks, "state": "completed"}


def test_continue(found):
    """A task that asks is answered in the same task."""
    asked = ["input-required", "blue or green?"]
    assert found["continue"] == {"asked": asked, "same": True, "state": "completed"}


def test_cancel(found):
    """A running task is canceled, and the client is told so."""
    assert found["cancel"] == {"before": "working", "after": "canceled"}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("binding", BINDINGS)
def test_push(run, webhook, client, binding):
    """A configuration that the client made is kept, and its webhook hears of the end of the task, in its protocol."""
    name = context_of(client, binding)
    assert run(client, binding)["push"] == {"url": f"http://{webhook.address}/{name}"}
    token, body = webhook.get(name)
    while (body.get("statusUpdate") or body)["status"]["state"] not in {"TASK_STATE_COMPLETED", "completed"}:
        token, body = webhook.get(name)
    assert token == name
    assert ("statusUpdate" in body) == (client != "a2a-sdk-0.3")


@pytest.mark.parametrize("client", LISTS)
@pytest.mark.parametrize("binding", BINDINGS)
def test_list(run, client, binding):
    """All tasks of the context, the latest first."""
    listed = run(client, binding)["list"]
    assert listed == {"tasks": ["canceled", "completed", "completed", "completed"], "total": 4}


def test_large(found):
    """A file of 300,000 bytes comes back as a URL that gives it, with its length."""
    assert found["large"]["size"] == 300_000
    assert httpx.get(found["large"]["url"], trust_env=False, timeout=60).content == bytes(300_000)


def test_google_adk(tmp_path):
    """RemoteA2aAgent: send, stream, and a session that stays in one context. It cannot cancel, nor list."""
    python = _python("google-adk")
    with serve_in_thread(MemoryStore(), work_dir=tmp_path) as host:  # it rejects cards with a second origin
        found = outcome([python], "adk.py", [host.url])
    assert found["send"].endswith("journal.md holds 1 message")
    assert found["stream"].count("chunk ") == 3
    assert found["stream"].endswith("streamed 3 chunks")
    assert "blue or green?" in found["asked"]
    assert found["answered"].endswith("journal.md holds 4 messages")
    assert found["same_task"]
    said = ["hello", "stream 3", "ask blue or green?", "blue", "read journal.md"]
    assert "".join(f"{n}. {text}\n" for n, text in enumerate(said, start=1)) in found["read"]
