"""Authentication over the whole host: every mode on every route, and real connections."""

import subprocess

import httpx
import pytest

from a2a_gcs.host.app import create_app
from a2a_gcs.host.auth.middleware import PUBLIC
from a2a_gcs.host.settings import Settings
from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_http import BINDINGS, A2AClient, Refused
from tests.support.auth_hosts import AUDIENCE, TOKEN, TOKENS, WHOAMI, authorization, hosts_in_process, message
from tests.support.host_process import COMMAND, environment
from tests.support.host_thread import serve_in_thread
from tests.support.places import Place


@pytest.fixture
async def open_host():
    async with hosts_in_process() as open_host:
        yield open_host


MODES = {
    "tokens": TOKENS,
    "oidc": {"auth": "oidc", "auth_issuer": "http://127.0.0.1:9", "auth_audience": AUDIENCE},
    "google": {"auth": "google", "auth_audience": AUDIENCE, "auth_jwks_url": "http://127.0.0.1:9"},
    "iap": {"auth": "iap", "auth_audience": AUDIENCE, "auth_jwks_url": "http://127.0.0.1:9"},
    "cloud-run-iam": {"auth": "cloud-run-iam"},
}


def routes_of(app):
    """Every path that is registered, with its methods and those that are always worth a try."""
    always = {"GET", "HEAD", "OPTIONS", "POST", "DELETE"}
    return {
        (route.path, method) for route in app.routes for method in always | set(getattr(route, "methods", None) or ())
    }


@pytest.mark.parametrize("mode", MODES)
async def test_every_route_but_the_public_ones_answers_401_with_a_challenge(mode):
    """Known or unknown, whatever the method, with one and the same answer, and before any issuer is asked."""
    app = create_app(Settings(**MODES[mode]), store=MemoryStore())
    swept = routes_of(app) | {("/nowhere", "GET"), ("/tasks/no-such-task", "GET"), ("/x/y/z", "OPTIONS")}
    assert {"/", "/message:stream", "/v1/message:stream", "/tasks/{id}", "/docs", "/openapi.json"} <= {
        path for path, _ in swept
    }
    answers, public = set(), set()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as http:
        for path, method in sorted(swept):
            if path in PUBLIC and method in ("GET", "HEAD"):
                public.add(path)
                continue
            response = await http.request(method, path.replace("{", "").replace("}", ""), json={})
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"].startswith("Bearer realm="), (method, path)
            names = tuple(sorted(response.headers))
            if path.startswith("/console"):  # the same for browsers is a page to sign in with, where there is one
                continue
            answers.add((response.headers["www-authenticate"], response.headers["content-length"], names))
    assert public == PUBLIC
    assert len(answers) == 1


async def test_the_same_routes_answer_those_who_are_known(open_host):
    """The control of the sweep: with a token no route answers 401; and the public ones never needed one."""
    http = await open_host(**TOKENS)
    app = http._transport.app
    for path, method in sorted(routes_of(app)):
        response = await http.request(method, path, json={}, headers=authorization(TOKEN))
        assert response.status_code != 401, (method, path)
    for path in PUBLIC:
        assert (await http.get(path)).status_code == 200


async def test_a_stream_is_refused_before_it_begins(open_host):
    """As JSON, with 401, on each of its four forms; nothing is written."""
    store = MemoryStore()
    http = await open_host(store=store, **TOKENS)
    before = [info.key for info in (await store.list("")).objects]
    streaming = {**message(), "method": "SendStreamingMessage"}
    old = {**message(), "method": "message/stream"}
    for path, body in [("/", streaming), ("/", old), ("/message:stream", {}), ("/v1/message:stream", {})]:
        response = await http.post(path, json=body, headers={"Accept": "text/event-stream", "A2A-Version": "1.0"})
        assert (response.status_code, response.headers["content-type"]) == (401, "application/json")
    assert [info.key for info in (await store.list("")).objects] == before


async def test_ready_keeps_its_reason_for_the_log(open_host):
    """Without authentication it says why; with it anybody may ask, so it only says that it is not."""
    for settings, told in (({}, True), (TOKENS, False)):
        http = await open_host(**settings)
        await http._transport.app.state.drain()
        response = await http.get("/ready")
        assert (response.status_code, "reason" in response.json()) == (503, told)


# ---------------------------------------------------------------------- over real connections


@pytest.fixture
def served(tmp_path):
    with serve_in_thread(MemoryStore(), agent=WHOAMI, work_dir=tmp_path, **TOKENS) as host:
        yield host


@pytest.mark.parametrize("binding", BINDINGS)
async def test_every_binding_carries_the_owner_to_the_agent(served, binding):
    """And a stream, too; without the token none of them answers."""
    async with A2AClient(served.url, binding) as client:
        client.http.headers["Authorization"] = f"Bearer {TOKEN}"
        assert (await client.send("hello")).text == "alice:True"
        assert [event.text async for event in client.stream("hello") if event.ended] == ["alice:True"]
        del client.http.headers["Authorization"]
        for refused in (client.send("hello"), anext(client.stream("hello"))):
            with pytest.raises(Refused) as caught:
                await refused
            assert (caught.value.status, caught.value.sse) == (401, False)


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")],
        [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")],
        [("Authorization", "Basic YTpi"), ("authorization", f"Bearer {TOKEN}")],
        [("Authorization", f"Bearer {TOKEN}, Bearer {TOKEN}")],
    ],
)
async def test_several_authorization_headers_are_refused(served, headers):
    """Also when one of them is good: a proxy in front may have read another one."""
    async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60) as http:
        response = await http.get("/tasks", headers=headers)
        assert response.status_code == 401
        assert 'error="invalid_request"' in response.headers["www-authenticate"]
        control = await http.get("/tasks", headers={"A2A-Version": "1.0", **authorization(TOKEN)})
        assert control.status_code == 200


async def test_a_refusal_does_not_wait_for_the_body_and_head_has_none(served):
    """A large upload by nobody is refused at once, and the connection is of use afterwards."""
    async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60) as http:
        response = await http.post("/", content=b"x" * 2**20)
        assert response.status_code == 401
        response = await http.head("/tasks")
        assert (response.status_code, response.content) == (401, b"")
        assert (await http.get("/health")).status_code == 200


async def test_tokens_in_the_url_or_the_body_are_not_looked_at(served):
    """RFC 6750 knows them; they end up in logs."""
    async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60) as http:
        assert (await http.get("/tasks", params={"access_token": TOKEN})).status_code == 401
        assert (await http.post("/", data={"access_token": TOKEN})).status_code == 401


def test_a_host_with_tokens_listens_anywhere_and_the_command_line_can_use_it(hosts, tmp_path):
    """`serve --auth tokens` on 0.0.0.0; `send` with the token works, and without it says what is missing."""
    (tmp_path / "tokens").write_text(f"alice:{TOKEN}\n")
    host = hosts(
        Place(f"file:{tmp_path / 'objects'}"),
        agent=WHOAMI,
        host="0.0.0.0",
        auth="tokens",
        tokens_file=tmp_path / "tokens",
    )
    url = host.url.replace("0.0.0.0", "127.0.0.1")

    def send(**env):
        return subprocess.run(
            [COMMAND, "send", "hello", "--url", url],
            env=environment(**env),
            capture_output=True,
            text=True,
            check=False,
        )

    known, unknown = send(A2A_GCS_TOKEN=TOKEN), send()
    assert (known.returncode, "completed: alice:True" in known.stderr) == (0, True)
    assert unknown.stderr.strip().endswith("wants credentials (HTTP 401): give them with --token")
    assert unknown.returncode == 1
    assert TOKEN not in host.errors()
