"""Access tokens, renewed ahead of time and never in the event loop (decision 0001)."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC
from typing import Any

import google.auth
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request

from a2a_gcs.clock import boottime, utcnow
from a2a_gcs.errors import PermissionDenied, StoreError, Unavailable

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
AHEAD = 300.0
"""Seconds before expiry from which a new token is fetched in the background; metadata servers issue none earlier."""
_SPACING = 10.0


async def default_credentials() -> Any:
    """Application default credentials, looked up in a thread: the look-up reads files and may ask the network."""
    credentials, _ = await asyncio.to_thread(google.auth.default, scopes=[SCOPE])
    return credentials


class TokenKeeper:
    """Gives the headers that authorize a request.

    While the token has time left, no request waits: within `AHEAD` of its
    expiry one thread fetches the next. Without a valid token requests wait
    for that thread, all for the same one.

    Args:
        credentials: google-auth credentials; None sends requests without any (an emulator).
    """

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials
        self._refreshing: asyncio.Task[None] | None = None
        self._last = -_SPACING

    async def headers(self, key: str) -> dict[str, str]:
        """Authorization headers. Raises PermissionDenied or Unavailable about `key`; nothing was sent then."""
        if self._credentials is None:
            return {}
        if not self._credentials.valid:
            try:
                await asyncio.shield(self._refresh())
            except GoogleAuthError as error:
                raise _auth_failure(key, error) from error
        elif self._expires_soon() and boottime() - self._last >= _SPACING:
            self._refresh()
        headers: dict[str, str] = {}
        self._credentials.apply(headers)
        return headers

    async def close(self) -> None:
        if self._refreshing is not None:
            with contextlib.suppress(GoogleAuthError):
                await self._refreshing

    def _expires_soon(self) -> bool:
        expiry = self._credentials.expiry  # naive, in UTC
        return expiry is not None and (expiry.replace(tzinfo=UTC) - utcnow()).total_seconds() < AHEAD

    def _refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None or self._refreshing.done():
            self._last = boottime()
            self._refreshing = asyncio.create_task(asyncio.to_thread(self._credentials.refresh, Request()))
            # A failure in the background shows when the token has run out and a request waits for the next try.
            self._refreshing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._refreshing


def _auth_failure(key: str, error: GoogleAuthError) -> StoreError:
    if isinstance(error, TransportError) or error.retryable:
        return Unavailable(key, error)
    return PermissionDenied(key, error)
