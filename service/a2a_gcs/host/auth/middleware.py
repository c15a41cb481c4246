"""Authentication before anything else happens to a request: before routing, so that paths tell nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from a2a_gcs.console.sign_in import SignIn
from a2a_gcs.host.auth.authenticator import Authenticator
from a2a_gcs.host.auth.errors import AuthUnavailable, Unauthenticated

log = structlog.get_logger(__name__)

PUBLIC = frozenset({"/.well-known/agent-card.json", "/health", "/ready"})
"""Paths that need no credentials: a client learns from the card which ones to bring, and probes have none."""

_POLICY_VIOLATION = 1008


class AuthMiddleware:
    """Lets authenticated requests through, with the caller as `scope["user"]`; answers the others itself.

    Middleware that has to see unauthenticated requests, such as CORS for its preflights, belongs outside.

    Args:
        app: What is protected.
        authenticator: Tells who calls.
        public: Further paths that need no credentials: agent cards of a host with several agents.
        sign_in: How browsers bring credentials to the console, which cannot send headers; None for not at all.
    """

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, public: Iterable[str] = (), sign_in: SignIn | None = None
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._public = PUBLIC.union(public)
        self._sign_in = sign_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_public(scope):
            await self._app(scope, receive, send)
            return
        browser = self._sign_in if self._sign_in and self._sign_in.covers(scope) else None
        if browser is not None and browser.handles(scope):
            await browser(scope, receive, send)
            return
        try:
            headers = scope["headers"] if browser is None else browser.headers(scope)
            principal = await self._authenticator.authenticate(headers)
        except (Unauthenticated, AuthUnavailable) as e:
            log.info("auth.refused", reason=str(e), detail=e.detail)
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                return
            answer: ASGIApp = browser if browser and isinstance(e, Unauthenticated) else _answer(e)
            await answer(scope, receive, send)
            return
        await self._app({**scope, "user": principal}, receive, send)

    def _is_public(self, scope: Scope) -> bool:
        if self._sign_in is not None and self._sign_in.is_open(scope):
            return True
        return scope["type"] == "http" and scope["path"] in self._public and scope["method"] in ("GET", "HEAD")


def _answer(error: Unauthenticated | AuthUnavailable) -> JSONResponse:
    if isinstance(error, AuthUnavailable):
        headers = {"Retry-After": str(error.retry_after)}
        return _response(503, "UNAVAILABLE", "AUTH_UNAVAILABLE", str(error), headers)
    return _response(401, "UNAUTHENTICATED", "UNAUTHENTICATED", str(error), {"WWW-Authenticate": error.challenge})


def _response(code: int, status: str, reason: str, message: str, headers: dict[str, str]) -> JSONResponse:
    """A google.rpc.Status, the form of every error of the REST binding."""
    info: dict[str, Any] = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-gcs"}
    body = {"error": {"code": code, "status": status, "message": message, "details": [info]}}
    return JSONResponse(body, status_code=code, headers={"Cache-Control": "no-store", **headers})
