"""Authentication before anything else happens to a request: before routing, so that paths tell nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

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
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator, public: Iterable[str] = ()) -> None:
        self._app = app
        self._authenticator = authenticator
        self._public = PUBLIC.union(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_public(scope):
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._authenticator.authenticate(scope["headers"])
        except (Unauthenticated, AuthUnavailable) as e:
            log.info("auth.refused", reason=str(e), detail=e.detail)
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                return
            await _answer(e)(scope, receive, send)
            return
        await self._app({**scope, "user": principal}, receive, send)

    def _is_public(self, scope: Scope) -> bool:
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
