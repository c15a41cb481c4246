"""Hosts in this process that want credentials: what they are asked, and what they answer."""

from __future__ import annotations

import contextlib

import httpx

from a2a_gcs.host.app import create_app
from a2a_gcs.host.settings import Settings
from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.issuer import SigningKey

RSA, EC, FOREIGN, NEXT = SigningKey("rsa"), SigningKey("ec", "ES256"), SigningKey("foreign"), SigningKey("next")
GOOGLE, IAP = "https://accounts.google.com", "https://cloud.google.com/iap"
AUDIENCE = "agent.example"
TOKEN = "alice-token-0123456789"
TOKENS = {"auth": "tokens", "tokens": f"alice:{TOKEN}"}
WHOAMI = "tests.support.whoami:WhoAmI"


@contextlib.asynccontextmanager
async def hosts_in_process():
    """Opens hosts by settings; each comes as an HTTP client, and answers with the owner that it works for."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_host(*, store=None, **settings):
            app = create_app(Settings(agent=WHOAMI, **settings), store=store or MemoryStore())
            await stack.enter_async_context(app.router.lifespan_context(app))
            transport = httpx.ASGITransport(app)
            return await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://host"))

        yield open_host


def oidc(issuer):
    return {"auth": "oidc", "auth_issuer": issuer.url, "auth_audience": AUDIENCE}


def google(issuer):
    return {"auth": "google", "auth_audience": AUDIENCE, "auth_jwks_url": issuer.jwks_url}


def iap(issuer):
    return {"auth": "iap", "auth_audience": AUDIENCE, "auth_jwks_url": issuer.jwks_url}


def authorization(token):
    return {"Authorization": f"Bearer {token}"}


def message(text="hello"):
    said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}


async def owner(http, headers):
    """Whom the agent is told that it works for, over the whole way of a message."""
    response = await http.post("/", json=message(), headers={"A2A-Version": "1.0", **headers})
    assert response.status_code == 200, response.text
    name, _, authenticated = response.json()["result"]["task"]["status"]["message"]["parts"][0]["text"].rpartition(":")
    assert authenticated == "True"
    return name


async def refusal(http, headers):
    """The challenge with which a call is refused."""
    response = await http.post("/", json=message(), headers={"A2A-Version": "1.0", **headers})
    assert response.status_code == 401, response.text
    assert response.json()["error"]["code"] == 401
    return response.headers["www-authenticate"]
