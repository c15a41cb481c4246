"""Credentials that somebody else has issued: JWTs of an OpenID provider, of Google, or of a proxy in front."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.auth.authenticator import Check
from a2a_gcs.host.auth.fetch import FetchFailed, JsonFetcher
from a2a_gcs.host.auth.jwks import ALGORITHMS, KeySet
from a2a_gcs.host.auth.jwts import Rules, SignedTokens, StrippedTokens
from a2a_gcs.host.settings import Settings, listed, may_be_asked

GOOGLE_ISSUERS = frozenset({"https://accounts.google.com", "accounts.google.com"})
GOOGLE_KEYS = "https://www.googleapis.com/oauth2/v3/certs"
IAP_ISSUERS = frozenset({"https://cloud.google.com/iap"})
IAP_KEYS = "https://www.gstatic.com/iap/verify/public_key-jwk"
DISCOVERY = "/.well-known/openid-configuration"


def check_of(settings: Settings) -> Check:
    """What a mode holds a token against. Nothing is fetched before the first one.

    Raises:
        ConfigError: An algorithm cannot be used.
    """
    match settings.auth:
        case "oidc":
            rules = _rules(settings, frozenset({settings.auth_issuer or ""}), _algorithms(settings))
            return _signed(rules, settings.auth_jwks_url, settings.auth_issuer)
        case "google":
            return _signed(_rules(settings, GOOGLE_ISSUERS, ("RS256",)), settings.auth_jwks_url or GOOGLE_KEYS)
        case "iap":
            rules = _rules(settings, IAP_ISSUERS, ("ES256",), verifies_email=True)
            return _signed(rules, settings.auth_jwks_url or IAP_KEYS)
        case "cloud-run-iam":
            return StrippedTokens(_rules(settings, GOOGLE_ISSUERS, ("RS256",)))
        case other:
            raise ValueError(f"nobody issues tokens for {other}")


def _algorithms(settings: Settings) -> tuple[str, ...]:
    chosen = listed(settings.auth_algorithms)
    if not chosen or not ALGORITHMS.issuperset(chosen):
        raise ConfigError(
            f"A2A_GCS_AUTH_ALGORITHMS: choose of {', '.join(sorted(ALGORITHMS))}, not {settings.auth_algorithms!r}"
        )
    return chosen


def _rules(
    settings: Settings, issuers: frozenset[str], algorithms: tuple[str, ...], *, verifies_email: bool = False
) -> Rules:
    return Rules(
        issuers=issuers,
        audiences=listed(settings.auth_audience),
        algorithms=frozenset(algorithms),
        owner_claim=settings.auth_owner_claim,
        leeway=settings.auth_leeway_seconds,
        verifies_email=verifies_email,
    )


def _signed(rules: Rules, url: str | None, issuer: str | None = None) -> SignedTokens:
    fetcher = JsonFetcher()
    fetch = _at(fetcher, url) if url else _discovered(fetcher, issuer or "")
    return SignedTokens(rules, KeySet(fetch), fetcher.aclose)


def _at(fetcher: JsonFetcher, url: str) -> Callable[[], Awaitable[Mapping[str, Any]]]:
    async def fetch() -> Mapping[str, Any]:
        return await fetcher.get(url)

    return fetch


def _discovered(fetcher: JsonFetcher, issuer: str) -> Callable[[], Awaitable[Mapping[str, Any]]]:
    """Keys where the issuer's discovery document says (OpenID Connect Discovery 1.0, section 4), each time anew."""

    async def fetch() -> Mapping[str, Any]:
        url = issuer.rstrip("/") + DISCOVERY
        document = await fetcher.get(url)
        if document.get("issuer") != issuer:
            raise FetchFailed(f"{url} names another issuer than {issuer}")
        keys = document.get("jwks_uri")
        if not isinstance(keys, str) or not may_be_asked(keys):
            raise FetchFailed(f"{url} names no jwks_uri with https")
        return await fetcher.get(keys)

    return fetch
