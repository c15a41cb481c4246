"""A small real A2A server, the commands in this process, and the commands in processes of their own."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import structlog
import uvicorn
from a2a.server.agent_execution import AgentExecutor, SimpleRequestContextBuilder
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface
from a2a.utils.errors import UnsupportedOperationError
from starlette.applications import Starlette
from typer.testing import CliRunner

import a2a_gcs
from a2a_gcs.cli.main import app
from a2a_gcs.executors import demo
from a2a_gcs.executors.workspace import WORKSPACE_STATE

SOURCES = Path(a2a_gcs.__file__).parents[1]


class InDirectory(AgentExecutor):
    """The demo agent with one directory a context; `message ...` answers with a plain Message."""

    def __init__(self, root):
        self.agent, self.root = demo.DemoAgent(), root

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        if text.startswith("message "):
            answer = demo.TaskUpdater(event_queue, "", context.context_id)
            await event_queue.enqueue_event(answer.new_agent_message([demo.Part(text=text.removeprefix("message "))]))
            return
        directory = self.root / context.context_id
        directory.mkdir(exist_ok=True)
        context.call_context.state[WORKSPACE_STATE] = directory
        await self.agent.execute(context, event_queue)

    async def cancel(self, context, event_queue):
        await self.agent.cancel(context, event_queue)


class Refusing(SimpleRequestContextBuilder):
    """Refuses `busy <state>` as the ledger refuses a second task."""

    async def build(self, context, params=None, **rest):
        text = params.message.parts[0].text if params else ""
        if text.startswith("busy "):
            data = {"reason": "CONTEXT_BUSY", "contextId": "c", "activeTaskId": "t-1", "state": text[5:]}
            raise UnsupportedOperationError("the context works on another task", data=data)
        return await super().build(context=context, params=params, **rest)


class Announcing(uvicorn.Server):
    def __init__(self, config):
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.ready.set()


@contextlib.contextmanager
def _serving(make_app):
    """Runs make_app(url) on a free port, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(make_app(url), log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = Announcing(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert server.ready.wait(20)
        yield url
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(autouse=True)
def restored():
    """Puts the process's logging back, which commands set up."""
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    root.handlers, level = before
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def serving():
    """Context manager: make_app(url) on a free port, in a thread."""
    return _serving


@pytest.fixture
def agent_url(tmp_path):
    """Address of the demo agent under the SDK's own handler and routes."""

    def make(url):
        card = AgentCard(
            name="demo",
            description="demo",
            version="1",
            capabilities=AgentCapabilities(streaming=True),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=demo.skills(),
            supported_interfaces=[AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0")],
        )
        handler = DefaultRequestHandler(
            InDirectory(tmp_path), InMemoryTaskStore(), card, request_context_builder=Refusing()
        )
        return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])

    with _serving(make) as url:
        yield url


@pytest.fixture
def run(monkeypatch):
    """Runs a command line in this process; COLUMNS keeps rich from wrapping."""
    for name in [name for name in os.environ if name.startswith("A2A_GCS_") or name == "PORT"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments, **environment):
        return CliRunner().invoke(app, list(arguments), env=environment)

    return run


class Command:
    """A command in a process of its own."""

    def __init__(self, arguments, environment, prelude, cwd):
        program = f"{prelude}\nfrom a2a_gcs.cli.main import main\nmain()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # as in a terminal
        )

    @property
    def pid(self):
        return self.process.pid

    def line(self):
        """The next line of stdout."""
        return self.process.stdout.readline().strip()

    def errors_until(self, text):
        """Lines of stderr up to and with the first that contains the text."""
        lines = []
        for line in self.process.stderr:
            lines.append(line.rstrip())
            if text in line:
                return lines
        raise AssertionError(f"{text!r} was never printed, but: {lines}")

    def signal(self, number):
        self.process.send_signal(number)

    def ctrl_c(self):
        """What a terminal does: SIGINT to the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self):
        """Exit status, the rest of stdout, and the rest of stderr."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts command lines in processes of their own, which do not outlive the test."""
    started = []

    def start(*arguments, prelude="", **environment):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("A2A_GCS_") and k != "PORT"}
        roots = os.pathsep.join([str(SOURCES), str(SOURCES.parent)])
        command = Command(arguments, {**inherited, "PYTHONPATH": roots, **environment}, prelude, tmp_path)
        started.append(command.process)
        return command

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
