"""The middleware over a small application: what passes, what is answered, and what the application is told."""

from urllib.parse import unquote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute

from a2a_gcs.host.auth import Authenticator, AuthUnavailable, Unauthenticated
from a2a_gcs.host.auth.credentials import bearer
from a2a_gcs.host.auth.middleware import PUBLIC, AuthMiddleware
from a2a_gcs.host.auth.principal import Principal


class Check:
    """Knows alice, and is out of order for one token."""

    async def check(self, token):
        if token == "later":
            raise AuthUnavailable(7, "no keys of https://issuer.internal.example")
        if token != "alice":
            raise Unauthenticated("the token is not valid", detail="secret reason")
        return Principal("alice")

    async def aclose(self):
        """Nothing is open."""


async def who(request):
    return PlainTextResponse(request.user.display_name if "user" in request.scope else "nobody")


async def echo(websocket):
    await websocket.accept()
    await websocket.send_text(websocket.user.display_name)
    await websocket.close()


def app():
    routes = [Route(path, who) for path in ("/", "/health", "/ready", "/.well-known/agent-card.json")]
    inner = Starlette(routes=[*routes, WebSocketRoute("/ws", echo)])
    return AuthMiddleware(inner, Authenticator(bearer, Check()))


async def messages(kind, path, *headers, **more):
    """What the server sends for a scope of this kind, written by hand."""
    sent = []

    async def receive():
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": kind,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
        **more,
    }
    await app()(scope, receive, send)
    return sent


@pytest.fixture
async def http():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app()), base_url="http://host") as client:
        yield client


async def test_the_application_is_told_who_calls(http):
    """As scope["user"], which is where the SDK's call context takes its user from."""
    assert (await http.get("/", headers={"Authorization": "Bearer alice"})).text == "alice"


async def test_public_paths_need_nothing_and_know_nobody(http):
    """Credentials are not even looked at there."""
    for path in ("/health", "/ready", "/.well-known/agent-card.json"):
        assert (await http.get(path, headers={"Authorization": "Bearer wrong"})).text == "nobody"


@pytest.mark.parametrize(
    "path",
    [
        "/health/",
        "//health",
        "/Health",
        "/health%0a",
        "/health%00",
        "/health;x",
        "/health/../",
        "/./health",
        "/%2e/health",
        "/x/health",
        "/.well-known/agent-card.json/",
        "/.well-known/",
        "/.well-known/agent.json",
        "/readyz",
    ],
)
async def test_nothing_but_the_public_paths_themselves_is_public(path):
    """However a path is written that looks like one; a server hands it over decoded."""
    started, _ = await messages("http", unquote(path), method="GET")
    assert started["status"] == 401


async def test_the_public_paths_are_public_when_asked_in_the_same_way():
    """The control."""
    for path in PUBLIC:
        started, *_ = await messages("http", path, method="GET")
        assert started["status"] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
async def test_public_paths_are_public_for_reading_alone(http, method):
    """Any other method is refused before the application sees it."""
    assert (await http.request(method, "/health")).status_code == 401


async def test_what_cannot_be_checked_is_503_with_a_time(http):
    """And says nothing about the issuer, nor about the token: no challenge."""
    response = await http.get("/", headers={"Authorization": "Bearer later"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "7")
    assert "www-authenticate" not in response.headers
    assert response.json()["error"]["status"] == "UNAVAILABLE"
    assert "issuer" not in response.text


async def test_a_refusal_is_an_error_of_the_rest_binding_with_a_challenge(http):
    """Readable by clients of every binding; what only the log should know is not in it."""
    response = await http.get("/", headers={"Authorization": "Bearer wrong"})
    assert response.status_code == 401
    challenge = 'Bearer realm="a2a-gcs", error="invalid_token", error_description="the token is not valid"'
    assert response.headers["www-authenticate"] == challenge
    assert response.headers["cache-control"] == "no-store"
    error = response.json()["error"]
    assert (error["code"], error["status"], error["message"]) == (401, "UNAUTHENTICATED", "the token is not valid")
    assert error["details"][0]["reason"] == "UNAUTHENTICATED"
    assert "secret" not in response.text


async def test_a_websocket_is_closed_before_it_opens():
    """There is none today; one that is added is not open by oversight."""
    assert await messages("websocket", "/ws") == [{"type": "websocket.close", "code": 1008}]
    accepted, said, _ = await messages("websocket", "/ws", (b"authorization", b"Bearer alice"))
    assert (accepted["type"], said["text"]) == ("websocket.accept", "alice")
