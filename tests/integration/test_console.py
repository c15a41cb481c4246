"""The console over HTTP: who may read and write, what a page costs, and what its headers forbid."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from a2a_gcs.console import writing
from a2a_gcs.host.settings import Settings
from a2a_gcs.layout import TaskRef, encode_segment, pointer_key, task_key
from a2a_gcs.objectstore import InstrumentedStore, MemoryStore, StoreStats
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import TaskMeta
from tests.browser.scene import HOSTILE_FILE, SCRIPT
from tests.support.a2a_http import A2AClient
from tests.support.host_thread import serve_in_thread

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOWING = "tests.browser.scene:showing"
ALICE = "alice-token-0123456789"
BOB = "bob-token-0123456789"
ODD = "token/with+all-that~may.be_in/one=="
PAGE = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def stats():
    return StoreStats()


@pytest.fixture(scope="module")
def store(stats):
    return InstrumentedStore(MemoryStore(), stats)


@pytest.fixture(scope="module")
def host(store):
    with serve_in_thread(store, agent=SHOWING) as serving:
        yield serving


@pytest.fixture(scope="module")
def guarded():
    with serve_in_thread(MemoryStore(), agent=SHOWING, auth="tokens", tokens=f"alice:{ALICE},alice:{ODD}") as serving:
        yield serving


@pytest_asyncio.fixture(loop_scope="module")
async def web(host):
    async with browser(host) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def api(host):
    async with A2AClient(host.url) as client:
        yield client


def browser(host):
    """Keeps cookies, as a browser does, and follows no redirect by itself."""
    return httpx.AsyncClient(base_url=f"{host.url}/console", trust_env=False, timeout=60, headers=PAGE)


async def form(web, path="", **fields):
    """The fields of a page's form, with the secret that it holds."""
    secret = re.search(r'name="csrf" value="([^"]+)"', (await web.get(path)).text)[1]
    return {"csrf": secret, **fields}


# ---------------------------------------------------------------------- what headers forbid


async def test_pages_forbid_all_that_is_not_ours(web, api):
    """Pages run no inline script and no inline style, go into no frame, and stay in no cache."""
    task = await api.send("report", context="headers")
    for path in (
        "",
        "/contexts/headers",
        f"/tasks/{task.id}",
        f"/tasks/{task.id}/files",
        "/tasks/none",
        "/static/console.js",
    ):
        answer = await web.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<[^>]+ (style|on\w+)=|<script>|<style", answer.text) or path.endswith(".js")


@pytest.mark.parametrize(("where", "kind"), [("a1.0", "page.html"), ("a1.1", "drawing.svg")])
async def test_documents_of_a_task_are_downloads(web, api, where, kind):
    """A page or drawing that a task made is never shown as one, and its name cannot end the header."""
    task = await api.send("hostile")
    answer = await web.get(f"/tasks/{task.id}/parts/{where}")
    assert answer.content.find(SCRIPT.encode()) >= 0
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{kind}"
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


async def test_files_of_a_workspace_as_they_are(web, api):
    """A file is a download, an image is an image, and both are in a sandbox."""
    hostile, report = await api.send("hostile"), await api.send("report")
    page = await web.get(f"/tasks/{hostile.id}/raw?path={quote(HOSTILE_FILE)}")
    assert page.text == SCRIPT
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"].startswith("attachment; filename*=UTF-8''a%3Cimg")
    image = await web.get(f"/tasks/{report.id}/raw?path=report/chart.png")
    assert (image.headers["content-type"], "content-disposition" in image.headers) == ("image/png", False)
    for answer in (page, image):
        assert answer.headers["content-security-policy"].startswith("sandbox")
    archive = await web.get(f"/tasks/{report.id}/workspace.tar.gz")
    assert archive.headers["content-disposition"] == f"attachment; filename*=UTF-8''{report.id}.tar.gz"
    assert archive.content[:2] == b"\x1f\x8b"
    assert json.loads((await web.get(f"/tasks/{report.id}/task.json")).content)["id"] == report.id


async def test_what_is_kept_beside_a_task(web, api):
    """A large part is a link of the console's own, which needs no credentials of the API; as safe as a small one."""
    task = await api.send("large")
    page = (await web.get(f"/tasks/{task.id}")).text
    links = re.findall(r'href="/console(/tasks/[^"]+/parts/files/[^"]+)"', page)
    assert len(links) == 2
    assert "300 KB" in page
    document, image = [await web.get(link) for link in links]
    assert document.content.startswith(SCRIPT.encode())
    assert len(document.content) > 300_000
    assert document.headers["content-type"] == "application/octet-stream"
    assert document.headers["content-disposition"].startswith("attachment")
    assert (image.headers["content-type"], image.content[:4]) == ("image/png", b"\x89PNG")
    for answer in (document, image):
        assert answer.headers["content-security-policy"].startswith("sandbox")
    assert (await web.get(f"/tasks/{task.id}/parts/files/{'0' * 64}")).status_code == 404
    assert (await web.get(f"/tasks/{task.id}/parts/files/x")).status_code == 404


async def test_a_name_that_is_not_ours_is_not_answered(web):
    """A site that lets its name resolve to this machine reads nothing of a host without authentication."""
    assert (await web.get("", headers={"Host": "evil.example"})).status_code == 421
    assert (await web.get("", headers={"Host": "localhost:1"})).status_code == 200


# ---------------------------------------------------------------------- what writes


async def test_a_form_needs_its_secret_and_its_site(web, api):
    """Nothing is sent or canceled for another site, nor without the secret that only our pages know."""
    waits = await api.send("ask who?", context="csrf")
    good = await form(web, text="hello", context_id="csrf-2")
    tries = {
        "no secret": ({**good, "csrf": ""}, {}),
        "another secret": ({**good, "csrf": "x" * 43}, {}),
        "another site": (good, {"Sec-Fetch-Site": "cross-site"}),
        "a sibling": (good, {"Sec-Fetch-Site": "same-site"}),
        "another origin": (good, {"Origin": "https://evil.example"}),
        "no origin at all": (good, {"Origin": "null"}),
    }
    for name, (fields, headers) in tries.items():
        for path in ("/send", f"/tasks/{waits.id}/cancel"):
            answer = await web.post(path, data=fields, headers=headers)
            assert answer.status_code == 403, (name, path)
    assert (await web.get("/contexts/csrf-2")).status_code == 404
    assert (await api.get(waits.id)).state == "input-required"
    sent = await web.post("/send", data=good, headers={"Sec-Fetch-Site": "same-origin"})
    assert sent.status_code == 303
    assert (await web.post(f"/tasks/{waits.id}/cancel", data=good)).status_code == 303
    assert (await api.get(waits.id)).state == "canceled"


async def test_a_form_that_is_sent_twice_starts_one_task(web):
    """Its message id is made with the form, so that the host sees the repeat."""
    fields = await form(web, text="hello", context_id="twice", message_id="m-1")
    first, second = [await web.post("/send", data=fields) for _ in range(2)]
    assert first.headers["location"] == second.headers["location"]


async def test_an_answer_without_a_task_is_shown(store):
    """An agent may answer with a plain message; it is on the page, escaped, and nowhere else."""
    with serve_in_thread(MemoryStore(), agent=SHOWING, answers="message") as serving:
        async with browser(serving) as web:
            page = await web.post("/send", data=await form(web, text="message", context_id="plain"))
            assert page.status_code == 200
            assert "&lt;script&gt;" in page.text
            assert SCRIPT not in page.text
            assert "6,000 more characters" in page.text


async def test_a_refused_message_is_not_lost(web):
    """Not even where its context cannot be one."""
    page = await web.post("/send", data=await form(web, text="keep me", context_id="a\nb"))
    assert (page.status_code, "keep me</textarea>" in page.text, "control characters" in page.text) == (409, True, True)


async def test_a_new_task_is_waited_for_however_slowly_it_starts(web, monkeypatch):
    """Looking whether an answered task runs is for answers alone, though the SDK writes an id into every message."""
    monkeypatch.setattr(writing, "_LOOK_SECONDS", 0.001)
    for _ in range(5):
        sent = await web.post("/send", data=await form(web, text="sleep 0.05"))
        assert (sent.status_code, "/console/tasks/" in sent.headers.get("location", "")) == (303, True)


async def test_canceling_what_has_ended_says_so(web, api):
    done = await api.send("hello", context="ended")
    answer = await web.post(f"/tasks/{done.id}/cancel", data=await form(web))
    assert (answer.status_code, "cannot be canceled" in answer.text) == (409, True)


async def test_pages_are_read_with_get_alone(web):
    assert (await web.post("")).status_code == 405
    assert (await web.get("/send")).status_code == 405


# ---------------------------------------------------------------------- where it is


async def test_rest_does_not_swallow_the_console(host):
    """`console` is no tenant."""
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=60) as client:
        assert (await client.get("/console/tasks")).status_code == 404
        for path in ("/console", "/console/"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")


async def test_tenants_have_pages_of_their_own(host, web):
    async with A2AClient(host.url, tenant="acme & co") as client:
        task = await client.send("hello", context="c")
    base = "/tenants/" + quote(encode_segment("acme & co"))
    assert (await web.get(f"{base}/tasks/{task.id}")).status_code == 200
    assert (await web.get(f"/tasks/{task.id}")).status_code == 404
    sent = await web.post(f"{base}/send", data=await form(web, base, text="hello", context_id="d"))
    assert sent.headers["location"].startswith(f"/console{base}/tasks/")


@pytest.mark.parametrize("scope", ["tenants/%25zz", "tenants/.acme", "tenants/acme%20co", "agents/%25zz"])
async def test_a_name_that_is_none_is_nobody_elses(web, api, scope):
    """Pages and forms below it do not fall back to those without a tenant."""
    task = await api.send("hello", context="c")
    for path in ("", f"/tasks/{task.id}"):
        answer = await web.get(f"/{scope}{path}")
        assert (answer.status_code, answer.headers.get("location")) == (307, "/console")
    before = (await web.get("")).text.count("/console/contexts/")
    await web.post(f"/{scope}/send", data=await form(web, text="hello", context_id="d"))
    assert (await web.get("")).text.count("/console/contexts/") == before


async def test_several_agents_have_pages_of_their_own():
    agents = [{"name": name, "agent": SHOWING} for name in ("writer", "reader")]
    with serve_in_thread(MemoryStore(), agents=agents) as serving:
        async with A2AClient(f"{serving.url}/reader") as client:
            task = await client.send("hello")
        async with browser(serving) as web:
            assert (await web.get("")).headers["location"] == "/console/agents/writer"
            assert (await web.get(f"/agents/reader/tasks/{task.id}")).status_code == 200
            assert (await web.get(f"/agents/writer/tasks/{task.id}")).status_code == 404


async def test_no_agent_takes_its_place():
    """An agent of that name needs another path."""
    agent = {"name": "console", "agent": SHOWING}
    with pytest.raises(ValueError, match="cannot be at /console"):
        Settings(agents=[agent])
    assert Settings(agents=[{**agent, "path": "/a/console"}]).agents[0].name == "console"


async def test_it_can_be_turned_off():
    with serve_in_thread(MemoryStore(), console=False) as serving:
        async with browser(serving) as web:
            assert (await web.get("")).status_code == 404


# ---------------------------------------------------------------------- who may


async def test_without_a_token_there_is_a_form_and_nothing_else(guarded):
    """Every page, also one that never was, answers 401 with the form; what it looks like is for everybody."""
    async with browser(guarded) as web:
        for path in ("", "/tasks/none", "/contexts/none", "/tasks/none/events", "/nothing"):
            answer = await web.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="a2a-gcs"')
            assert 'name="token"' in answer.text
        assert (await web.get("/static/console.css")).status_code == 200
        assert (await web.post("/static/console.css")).status_code == 401


async def test_the_cookie_counts_for_the_console_alone(guarded):
    """It holds the token, out of the reach of scripts and of other sites; the API does not know it."""
    async with browser(guarded) as web:
        fields = await form(web, token=ALICE, next="/console/host?x=1")
        assert (await web.post("/sign-in", data={**fields, "csrf": "wrong"})).status_code == 403
        entered = await web.post("/sign-in", data=fields)
        assert (entered.status_code, entered.headers["location"]) == (303, "/console/host?x=1")
        cookie = entered.headers["set-cookie"]
        for attribute in ("HttpOnly", "SameSite=strict", "Path=/console"):
            assert attribute in cookie
        assert "Secure" not in cookie
        assert (await web.get("/host")).status_code == 200
        token = web.cookies["a2a-gcs-token"]
        api = await web.get(f"{guarded.url}/tasks", headers={"Cookie": f"a2a-gcs-token={token}"})
        assert api.status_code == 401
        left = await web.post("/sign-out", data=await form(web))
        assert left.status_code == 303
        assert (await web.get("/host")).status_code == 401


async def test_the_host_page_names_the_tasks_of_its_visitor_alone():
    """What runs for others is a number."""
    tokens = f"alice:{ALICE},bob:{BOB}"
    options = {"agent": SHOWING, "auth": "tokens", "tokens": tokens, "lease_seconds": 3}
    with serve_in_thread(InstrumentedStore(MemoryStore()), **options) as serving:
        async with A2AClient(serving.url) as client:
            client.http.headers["Authorization"] = f"Bearer {ALICE}"
            task = await client.send("import", context="alices", at_once=True)
        async with browser(serving) as web:
            pages = {}
            while "alices" not in pages.get(ALICE, ""):  # the next heartbeat lists it
                for token in (ALICE, BOB):
                    pages[token] = (await web.get("/host", headers={"Authorization": f"Bearer {token}"})).text
            assert task.id in pages[ALICE]
            assert task.id not in pages[BOB]
            assert "alices" not in pages[BOB]
            assert '<p class="figure">1</p><p class="muted">turns running</p>' in pages[BOB]


async def test_behind_tls_the_cookie_is_for_tls(guarded):
    async with browser(guarded) as web:
        tls = {"X-Forwarded-Proto": "https"}
        secret = re.search(r'name="csrf" value="([^"]+)"', (first := await web.get("", headers=tls)).text)[1]
        assert "Secure" in first.headers["set-cookie"]
        kept = {"Cookie": f"a2a-gcs-csrf={secret}"}
        entered = await web.post("/sign-in", data={"csrf": secret, "token": ALICE}, headers={**tls, **kept})
        assert "Secure" in entered.headers["set-cookie"]


NOT_OURS = ("https://evil.example", "//evil.example", "/console//evil.example", "/consoles", "/console/\\x")


async def test_every_kind_of_token_fits_into_the_cookie(guarded):
    async with browser(guarded) as web:
        assert (await web.post("/sign-in", data=await form(web, token=ODD))).status_code == 303
        assert (await web.get("/host")).status_code == 200
        long = await web.post("/sign-in", data=await form(web, token="x" * 4000))
        assert (long.status_code, "too long" in long.text) == (401, True)


@pytest.mark.parametrize("following", NOT_OURS)
async def test_signing_in_leads_nowhere_else(guarded, following):
    async with browser(guarded) as web:
        entered = await web.post("/sign-in", data=await form(web, token=ALICE, next=following))
        assert entered.headers["location"] == "/console"


# ---------------------------------------------------------------------- what a page costs


async def fill(store, contexts, tasks):
    """Ended tasks, written as a host would have."""
    for c in range(contexts):
        for t in range(tasks):
            ref = TaskRef(f"big-{c:03}", f"big-{c:03}-{t:03}")
            meta = TaskMeta(owner="h/1", turn=1, state="TASK_STATE_COMPLETED", status_time=1_796_000_000_000 + t)
            body = {"id": ref.task_id, "contextId": ref.context_id, "status": {"state": "TASK_STATE_COMPLETED"}}
            await store.put(
                pointer_key(ref.task_id), ref.context_id.encode(), OVERWRITE, metadata={"context": ref.context_id}
            )
            await store.put(task_key(ref), json.dumps(body).encode(), OVERWRITE, metadata=meta.to_metadata())


async def test_ten_thousand_tasks_are_not_read_one_by_one():
    """The list of contexts costs one LIST per 1,000 tasks, and three requests for each context that it shows."""
    memory, stats = MemoryStore(), StoreStats()
    await fill(memory, contexts=100, tasks=100)
    with serve_in_thread(InstrumentedStore(memory, stats), agent=SHOWING) as serving:
        async with browser(serving) as web:
            for path, shown in (("", 25), ("?q=big-042", 1), ("?q=big-077-05", 1)):
                before = stats.operations.copy()
                page = await web.get(path)
                asked = stats.operations - before
                assert page.text.count('<li class="card">') == shown
                assert asked["list"] <= 10 + 3 * shown
                assert asked["get"] + asked["head"] <= 3 * shown + 5  # the heartbeat's among them
            assert "10,000 tasks" in (await web.get("")).text
            before = stats.operations.copy()
            assert (await web.get("/contexts/big-000")).text.count('<svg class="lane') == 50
            assert (stats.operations - before).total() < 10


async def test_a_task_of_fifty_megabytes(web, store):
    """Its page is small, says what it leaves out, and where the rest is; what streams to it is bounded, too."""
    ref = TaskRef("large", "large-1")
    parts = [{"text": "x" * 50_000} for _ in range(1000)]
    body = {"id": ref.task_id, "contextId": ref.context_id, "artifacts": [{"artifactId": "a", "parts": parts}]}
    body["status"] = {"state": "TASK_STATE_INPUT_REQUIRED"}
    meta = TaskMeta(owner="h/1", turn=1, state="TASK_STATE_INPUT_REQUIRED", status_time=1_796_000_000_000)
    await store.put(pointer_key(ref.task_id), b"large", OVERWRITE, metadata={"context": "large"})
    await store.put(task_key(ref), json.dumps(body).encode(), OVERWRITE, metadata=meta.to_metadata())
    page = await web.get("/tasks/large-1")
    assert page.status_code == 200
    assert len(page.content) < 100_000
    assert "49,936,000 more characters are not shown" in page.text
    async with web.stream("GET", "/tasks/large-1/events") as events:
        first = await anext(line async for line in events.aiter_lines() if line.startswith("data:"))
    assert len(first) < 20_000


async def test_a_running_task_of_a_dead_host_is_ended_by_looking(web, store):
    """As everywhere: whoever touches it ends it."""
    ref = TaskRef("dead", "dead-1")
    meta = TaskMeta(owner="gone/1", turn=1, open=True, state="TASK_STATE_WORKING", status_time=1_796_000_000_000)
    body = {"id": ref.task_id, "contextId": ref.context_id, "status": {"state": "TASK_STATE_WORKING"}}
    await store.put(pointer_key(ref.task_id), b"dead", OVERWRITE, metadata={"context": "dead"})
    await store.put(task_key(ref), json.dumps(body).encode(), OVERWRITE, metadata=meta.to_metadata())
    page = await web.get("/contexts/dead")
    assert 'class="chip failed"' in page.text
    assert "working" not in page.text


async def test_a_pointer_that_something_else_wrote(web, store):
    """It has no metadata of ours; its body tells the context."""
    await store.put(pointer_key("foreign-1"), b"foreign", OVERWRITE)
    assert "/console/contexts/foreign" in (await web.get("?q=foreign")).text


async def test_ids_of_every_kind_have_pages(web, api):
    """Slashes, dots, percent signs and other alphabets are one segment of an address."""
    for context in ("a/b", "..", "%2F", "ключ?x#y", "a&b=c", "context.json"):
        task = await api.send("hello", context=context)
        page = await web.get(f"/contexts/{quote(encode_segment(context))}")
        assert page.status_code == 200, context
        assert task.id in page.text
        link = re.search(r'href="(/console/contexts/[^"]+)"', (await web.get(f"/tasks/{task.id}")).text)[1]
        assert (await web.get(link.removeprefix("/console"))).status_code == 200, context
