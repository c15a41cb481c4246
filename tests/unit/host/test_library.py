"""a2a-gcs in somebody else's server: the README's snippet as it stands there, and what else a Host promises."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.server.routes import create_jsonrpc_routes
from a2a.types.a2a_pb2 import AgentCard, GetTaskRequest
from starlette.applications import Starlette

import a2a_gcs
from a2a_gcs.executors.demo import DemoAgent
from a2a_gcs.host.agent_card import LINEAR_EXECUTION
from a2a_gcs.objectstore import MemoryStore
from tests.support.a2a_http import A2AClient, Refused
from tests.support.host_process import environment
from tests.support.ports import free_port

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
ASKING = """

class Counter(Counter):
    async def execute(self, context, event_queue):
        if context.get_user_input() != "ask":
            return await super().execute(context, event_queue)
        task = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
        await task.requires_input(task.new_agent_message([Part(text="what?")]))
"""
CARD = AgentCard(name="demo", description="demo", version="1")


def snippet(section):
    """The only Python block of a section."""
    text = README.split(f"\n## {section}\n")[1].split("\n## ")[0]
    [block] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return block


@pytest.fixture
def serve(tmp_path):
    """Serves the README's snippet with uvicorn, in a process of its own."""
    (tmp_path / "my_agent.py").write_text(snippet("Your own agent") + ASKING)
    (tmp_path / "server.py").write_text(snippet("In your own server"))

    @contextlib.contextmanager
    def serving(number):
        port = free_port()
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "server:app", "--port", str(port)],
                cwd=tmp_path,
                env=environment(A2A_GCS_STORE="file:/nonexistent/not-read"),
                stdout=log,
                stderr=log,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process)
            yield url
            process.send_signal(number)
            process.wait(30)
        finally:
            process.kill()
            process.wait()

    return serving


def _wait_for(url, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/.well-known/agent-card.json", trust_env=False, timeout=60).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the server did not start")


async def test_the_readme_server_keeps_its_tasks_over_restarts(serve, tmp_path):
    """Stopped, or killed, and started again: the next task finds the files of the last, and old tasks are there."""
    ids = []
    for number, signal_number in enumerate([signal.SIGTERM, signal.SIGKILL, signal.SIGTERM], start=1):
        with serve(signal_number) as url:
            async with A2AClient(url) as client:
                answer = await client.send("hello", context="c")
                assert answer.text == f"message {number} of this context"
                ids.append(answer.id)
                assert [(await client.get(one)).state for one in ids] == ["completed"] * number
    assert (tmp_path / "a2a-data").is_dir()
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_the_readme_server_refuses_a_second_task_of_a_context(serve):
    """CONTEXT_BUSY while a task waits for an answer, also after a restart; the answer frees the context."""
    with serve(signal.SIGTERM) as url:
        async with A2AClient(url) as client:
            waiting = await client.send("ask", context="c")
            assert waiting.state == "input-required"
    with serve(signal.SIGTERM) as url:
        async with A2AClient(url) as client:
            with pytest.raises(Refused) as refusal:
                await client.send("hello", context="c")
            assert refusal.value.code == -32004
            assert refusal.value.data["reason"] == "CONTEXT_BUSY"
            assert refusal.value.data["activeTaskId"] == waiting.id
            assert (await client.send("an answer", task=waiting.id)).state == "completed"
            assert (await client.send("hello", context="c")).text == "message 2 of this context"
            card = (await client.http.get("/.well-known/agent-card.json")).json()
            assert [one["uri"] for one in card["capabilities"]["extensions"]] == [LINEAR_EXECUTION]


@contextlib.asynccontextmanager
async def client_of(host):
    app = Starlette(routes=create_jsonrpc_routes(host.request_handler, "/"))
    async with A2AClient("http://host") as client:
        await client.http.aclose()
        client.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://host", headers={"A2A-Version": "1.0"}
        )
        yield client


async def test_a_store_object_is_shared_and_stays_open(tmp_path):
    """Two hosts after each other over one object: the second finds what the first left, and the caller closes it."""
    store = a2a_gcs.open_store("memory")
    for number in (1, 2):
        async with (
            a2a_gcs.Host(DemoAgent(), card=CARD, store=store, work_dir=tmp_path) as host,
            client_of(host) as client,
        ):
            assert f"{number} message" in (await client.send("hello", context="c")).text
    keys = [info.key for info in (await store.list("")).objects]
    assert "contexts/c/context.json" in keys
    assert not [key for key in keys if key.startswith("hosts/")]
    await store.close()


async def test_a_host_that_was_not_entered_answers_nothing(tmp_path):
    """Before and after, a request is an internal error that says what to do, and nothing is stored."""
    store = MemoryStore()
    host = a2a_gcs.Host(DemoAgent(), card=CARD, store=store, work_dir=tmp_path)
    async with client_of(host) as client:
        with pytest.raises(Refused, match="lifespan"):
            await client.send("hello")
        assert not (await store.list("")).objects
        async with host:
            assert (await client.send("hello")).state == "completed"
        with pytest.raises(Refused, match="lifespan"):
            await client.send("hello")
    with pytest.raises(RuntimeError, match="once"):
        await host.__aenter__()


async def test_the_environment_is_not_read(monkeypatch, tmp_path):
    """A2A_GCS_* variables, also those that serve would refuse, change nothing."""
    monkeypatch.setenv("A2A_GCS_STORE", "nonsense")
    monkeypatch.setenv("A2A_GCS_LEASE_SECONDS", "1")
    monkeypatch.setenv("A2A_GCS_AUTH", "tokens")
    async with a2a_gcs.Host(DemoAgent(), card=CARD, work_dir=tmp_path) as host, client_of(host) as client:
        assert (await client.send("hello")).state == "completed"


class _Named(User):
    def __init__(self, name):
        self._name = name

    @property
    def is_authenticated(self):
        return bool(self._name)

    @property
    def user_name(self):
        return self._name


async def test_owners_have_roots_of_their_own(tmp_path):
    """A caller whom nobody has authenticated gets invalid params, and never the bucket's prefix itself."""
    async with a2a_gcs.Host(DemoAgent(), card=CARD, owners=True, work_dir=tmp_path) as host:
        asked = GetTaskRequest(id="t")
        with pytest.raises(Exception, match="nobody has authenticated"):
            await host.request_handler.on_get_task(asked, ServerCallContext(user=_Named("")))
        with pytest.raises(Exception, match="not found"):
            await host.request_handler.on_get_task(asked, ServerCallContext(user=_Named("alice")))


async def test_the_card_of_the_caller_is_not_changed(tmp_path):
    """`Host.card` is a copy that declares streaming and the linear rule."""
    given = AgentCard()
    given.CopyFrom(CARD)
    async with a2a_gcs.Host(DemoAgent(), card=given, work_dir=tmp_path) as host:
        assert given == CARD
        assert host.card.capabilities.streaming


@pytest.mark.parametrize("store", ["nonsense", "file:", "s3://bucket", 7, {}])
def test_an_unknown_store_names_the_accepted_forms(store):
    """`open_store` and `Host` raise the same ConfigError."""
    for attempt in (a2a_gcs.open_store, lambda wanted: a2a_gcs.Host(DemoAgent(), card=CARD, store=wanted)):
        with pytest.raises(a2a_gcs.ConfigError) as refused:
            attempt(store)
        for form in ("memory", "file:<dir>", "gs://bucket[/prefix]", "ObjectStore"):
            assert form in str(refused.value)


@pytest.mark.parametrize(("option", "says"), [({"port": 1}, "work_dir"), ({"lease_seconds": 1}, "lease_seconds")])
def test_an_option_that_cannot_be_used_is_named(option, says):
    """Options of the server are none of a Host's, and values are checked as the settings' are."""
    with pytest.raises(a2a_gcs.ConfigError, match=says):
        a2a_gcs.Host(DemoAgent(), card=CARD, **option)


def test_the_public_names_are_few_and_come_when_they_are_used():
    """About ten, all of them there; `import a2a_gcs` itself loads neither the SDK nor a web framework."""
    assert len(a2a_gcs.__all__) <= 11
    assert all(getattr(a2a_gcs, name) for name in a2a_gcs.__all__)
    program = "import sys, a2a_gcs; print(*{m.split('.')[0] for m in sys.modules} & {'a2a', 'fastapi', 'pydantic'})"
    loaded = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=True)
    assert loaded.stdout.split() == []
    with pytest.raises(AttributeError):
        a2a_gcs.nothing  # noqa: B018
