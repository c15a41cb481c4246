"""HEAD: what GET would answer, without its body, and without the work that only the body needs."""

from __future__ import annotations

import httpx
import pytest
import pytest_asyncio
from starlette.routing import Route

from a2a_gcs.host.app import create_app
from a2a_gcs.host.settings import AgentSettings, Settings
from a2a_gcs.objectstore import InstrumentedStore, MemoryStore, StoreStats
from tests.support.a2a_http import A2AClient
from tests.support.host_thread import serve_in_thread
from tests.support.turns import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONSOLE = [
    "/console",
    "/console/host",
    "/console/contexts/{context}",
    "/console/static/console.css",
    "/console/nothing",
]
TASK = ["", "/task.json", "/files", "/file?path=journal.md", "/raw?path=journal.md", "/workspace.tar.gz", "/changes"]
PATHS = [
    "/health",
    "/ready",
    "/metrics",
    "/.well-known/agent-card.json",
    "/docs",
    "/openapi.json",
    *[f"/console{path}" for path in CONSOLE],
    *[f"/console/tasks/{{task}}{path}" for path in TASK],
]
VARYING = {"date", "content-length"}
"""Headers in which two answers to one request may differ."""

COUNTING = {"/metrics", "/console/host"}
"""What tells of requests and of times, and is longer with each digit of them."""


@pytest.fixture(scope="module")
def stats():
    return StoreStats()


@pytest.fixture(scope="module")
def host(stats):
    with serve_in_thread(InstrumentedStore(MemoryStore(), stats), cors_origins="https://page.example") as serving:
        yield serving


@pytest_asyncio.fixture(loop_scope="module")
async def web(host):
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=30) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def names(host):
    async with A2AClient(host.url) as client:
        task = await client.send("hello", context="head")
        return {"context": "head", "task": task.id}


@pytest.mark.parametrize("path", PATHS)
async def test_head_tells_what_get_would(web, names, path):
    """The same status and headers, with the length of a body that does not come."""
    path = path.format(**names)
    await web.get(path)  # which may set a cookie
    got, told = await web.get(path), await web.head(path)
    assert got.content
    assert told.status_code == got.status_code
    assert {k: v for k, v in told.headers.items() if k not in VARYING} == {
        k: v for k, v in got.headers.items() if k not in VARYING
    }
    assert ("content-length" in told.headers) == ("content-length" in got.headers)
    if path not in COUNTING:
        assert told.headers.get("content-length") == got.headers.get("content-length")
    assert told.content == b""


async def test_the_card_is_revalidated_by_head_too(web):
    """A client that only asks whether its copy is good."""
    etag = (await web.get("/.well-known/agent-card.json")).headers["etag"]
    answer = await web.head("/.well-known/agent-card.json", headers={"If-None-Match": etag})
    assert (answer.status_code, answer.headers["etag"]) == (304, etag)


async def test_whatever_is_read_answers_head():
    """A route that is new, too; all but those of the REST binding, whose methods are the specification's."""
    agents = (AgentSettings(name="writer", agent="demo"),)
    app = create_app(Settings(agents=agents, store="memory"))
    try:
        places = [app, *(route.app for route in app.router.routes if hasattr(route, "app") and route.path)]
        routes = [r for place in places for r in getattr(place, "routes", ()) if isinstance(r, Route)]
        got, told = ({r.path for r in routes if method in (r.methods or ())} for method in ("GET", "HEAD"))
        rest = {r.path for r in routes if "A2A: REST" in getattr(r, "tags", ())}
        assert {"/metrics", "/.well-known/agent-card.json", "/files/{task}/{name}"} <= got
        assert got - told - rest == set()
    finally:
        app.state.services.workdirs.close()


async def test_a_head_of_live_events_ends_at_once(host):
    """The stream itself ends with its task, which may take hours; the connection would be of no use until then."""
    limits = httpx.Limits(max_connections=1)
    async with A2AClient(host.url) as client:
        task_id = await running(client, "sleep 600", context="live")
        try:
            async with httpx.AsyncClient(base_url=host.url, trust_env=False, limits=limits, timeout=20) as web:
                answer = await web.head(f"/console/tasks/{task_id}/events")
                assert (await web.get("/health")).status_code == 200
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert (await client.get(task_id)).state == "working"
        finally:
            await client.cancel(task_id)


async def test_a_head_reads_no_archive(web, names, stats):
    """It may be gigabytes."""
    path = f"/console/tasks/{names['task']}/workspace.tar.gz"
    before = stats.operations["stream"]
    length = int((await web.head(path)).headers["content-length"])
    assert stats.operations["stream"] == before
    assert len((await web.get(path)).content) == length > 0
    assert stats.operations["stream"] == before + 1


async def test_a_page_elsewhere_may_ask_too(web):
    """With credentials a browser asks before, whatever the method."""
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "HEAD"}
    answer = await web.options("/files/t/n", headers={**asked, "Access-Control-Request-Headers": "authorization"})
    assert answer.status_code == 200
    assert "HEAD" in answer.headers["access-control-allow-methods"]
