"""An issuer's public keys: cached, rotated, and kept through an outage.

    fresh (10 min)   known key: used.             unknown key: one fetch, at most one in ten seconds
    old (24 h)       known key: used, and a fetch in the background
    older, or none   a fetch first; while that fails nobody can be told apart: AuthUnavailable

A successful fetch replaces all keys, so a key that the issuer withdrew is
gone within minutes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from a2a_gcs.clock import boottime
from a2a_gcs.host.auth.errors import AuthUnavailable, Unauthenticated
from a2a_gcs.host.auth.fetch import FetchFailed

log = structlog.get_logger(__name__)

FRESH_SECONDS = 600.0
KEPT_SECONDS = 24 * 3600.0
PAUSE_SECONDS = 10.0
"""Least time between two fetches: what unknown keys, which anybody can make up, may cost the issuer."""

MAX_KEYS = 100
MIN_RSA_BITS = 2048

_ALGORITHMS = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
ALGORITHMS = frozenset(_ALGORITHMS)
"""What can be accepted at all: signatures by a private key, never `none` and never a shared secret (HS*)."""


@dataclass(frozen=True)
class Key:
    """A public key and what it may verify."""

    kid: str | None
    kind: tuple[str, str | None]
    algorithm: str | None
    public: Any

    def fits(self, algorithm: str) -> bool:
        """The key is of the algorithm's type and curve, and not reserved for another algorithm."""
        return _ALGORITHMS.get(algorithm) == self.kind and self.algorithm in (None, algorithm)


def parse_keys(document: Mapping[str, Any]) -> tuple[Key, ...]:
    """The usable public signing keys of a JWKS (RFC 7517); others are skipped. Raises FetchFailed if it is none."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise FetchFailed("the key set has no list of keys")
    keys = [_parse(entry) for entry in entries[:MAX_KEYS] if isinstance(entry, dict)]
    return tuple(key for key in keys if key is not None)


def _parse(entry: dict[str, Any]) -> Key | None:
    kid, kty, crv, algorithm = (entry.get(name) for name in ("kid", "kty", "crv", "alg"))
    kind = next((kind for kind in _ALGORITHMS.values() if kind == (kty, None if kty == "RSA" else crv)), None)
    if kind is None or "d" in entry or entry.get("use", "sig") != "sig":
        return None
    try:
        public = jwt.PyJWK(entry, algorithm if algorithm in ALGORITHMS else None).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < MIN_RSA_BITS:
        return None
    return Key(kid if isinstance(kid, str) else None, kind, algorithm, public)


class KeySet:
    """The keys of one issuer. Fetches are single: whoever needs one while it is under way waits for the same.

    Args:
        fetch: Gets the JWKS; raises FetchFailed.
        now: Seconds on a clock that only goes forward.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Mapping[str, Any]]], now: Callable[[], float] = boottime) -> None:
        self._fetch = fetch
        self._now = now
        self._keys: tuple[Key, ...] = ()
        self._fetched_at = -math.inf
        self._tried_at = -math.inf
        self._failure = ""
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> Key:
        """The key that a token names; without a name, the only one that fits.

        Raises:
            Unauthenticated: The issuer has no such key, or it is not for this algorithm.
            AuthUnavailable: The keys cannot be had.
        """
        age = self._now() - self._fetched_at
        if age > KEPT_SECONDS:
            await self._fetch_now()
        elif age > FRESH_SECONDS:
            self._start()
        found = self._named(kid, algorithm)
        if not found:
            await self._fetch_now(needed=False)
            found = self._named(kid, algorithm)
        if not found and self._failure:
            raise self._unavailable()
        if len(found) != 1 or not found[0].fits(algorithm):
            raise Unauthenticated("the token is not valid", detail="no key of the issuer fits")
        return found[0]

    def _named(self, kid: str | None, algorithm: str) -> list[Key]:
        if kid is None:
            return [key for key in self._keys if key.fits(algorithm)]
        named = [key for key in self._keys if key.kid == kid]
        return [key for key in named if key.fits(algorithm)] or named[:1]

    async def _fetch_now(self, *, needed: bool = True) -> None:
        """Waits for a fetch, where one may be made. Raises AuthUnavailable if it is needed and fails."""
        task = self._start()
        if task is not None:
            await asyncio.shield(task)
        if needed and self._now() - self._fetched_at > KEPT_SECONDS:
            raise self._unavailable()

    def _start(self) -> asyncio.Task[None] | None:
        """The fetch under way, else a new one, else None: the last was a moment ago."""
        if self._fetching is None and self._now() - self._tried_at >= PAUSE_SECONDS:
            self._tried_at = self._now()
            self._fetching = asyncio.create_task(self._replace(), name="jwks")
        return self._fetching

    async def _replace(self) -> None:
        try:
            self._keys = parse_keys(await self._fetch())
            self._fetched_at, self._failure = self._now(), ""
        except FetchFailed as e:
            self._failure = str(e)
            log.warning("auth.keys_unreachable", error=str(e), kept=len(self._keys))
        finally:
            self._fetching = None

    def _unavailable(self) -> AuthUnavailable:
        remaining = self._tried_at + PAUSE_SECONDS - self._now()
        return AuthUnavailable(max(1, math.ceil(remaining)), self._failure or "the issuer's keys are not known yet")

    async def aclose(self) -> None:
        """Ends a fetch under way."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
