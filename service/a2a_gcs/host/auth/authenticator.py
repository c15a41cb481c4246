"""The modes: each is a header to read and a check to make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.auth import credentials
from a2a_gcs.host.auth.credentials import Headers
from a2a_gcs.host.auth.fetch import FetchFailed, JsonFetcher
from a2a_gcs.host.auth.jwks import ALGORITHMS, KeySet
from a2a_gcs.host.auth.jwts import Rules, SignedTokens, StrippedTokens
from a2a_gcs.host.auth.principal import Principal
from a2a_gcs.host.auth.tokens import StaticTokens, TokensFile, parse_tokens
from a2a_gcs.host.settings import Settings, listed, may_be_asked

GOOGLE_ISSUERS = frozenset({"https://accounts.google.com", "accounts.google.com"})
GOOGLE_KEYS = "https://www.googleapis.com/oauth2/v3/certs"
IAP_ISSUERS = frozenset({"https://cloud.google.com/iap"})
IAP_KEYS = "https://www.gstatic.com/iap/verify/public_key-jwk"
DISCOVERY = "/.well-known/openid-configuration"


class Check(Protocol):
    """Tells whom a credential belongs to."""

    async def check(self, token: str) -> Principal:
        """The owner. Raises Unauthenticated or AuthUnavailable."""

    async def aclose(self) -> None:
        """Lets go of what is open."""


class Authenticator:
    """Answers who sent a request, by its headers alone. Has no state of a request: any number may ask at once.

    Args:
        read: Finds the credential in headers.
        check: Tells whom it belongs to.
    """

    def __init__(self, read: Callable[[Headers], str], check: Check) -> None:
        self._read = read
        self._check = check

    async def authenticate(self, headers: Headers) -> Principal:
        """The caller.

        Args:
            headers: All of them, as often as they came: ASGI's `scope["headers"]`, or gRPC's
                `context.invocation_metadata()`.

        Raises:
            Unauthenticated: It did not prove who it is.
            AuthUnavailable: That cannot be checked right now.
        """
        return await self._check.check(self._read(headers))

    async def aclose(self) -> None:
        """Closes connections to the issuer."""
        await self._check.aclose()


def open_authenticator(settings: Settings) -> Authenticator | None:
    """The authenticator of the configured mode; None for none. Nothing is fetched before the first request.

    Raises:
        ConfigError: The list of tokens, or an algorithm, cannot be used.
    """
    match settings.auth:
        case "none":
            return None
        case "tokens":
            return Authenticator(credentials.bearer, _tokens(settings))
        case "oidc":
            rules = _rules(settings, frozenset({settings.auth_issuer or ""}), _algorithms(settings))
            return Authenticator(credentials.bearer, _signed(rules, settings.auth_jwks_url, settings.auth_issuer))
        case "google":
            rules = _rules(settings, GOOGLE_ISSUERS, ("RS256",))
            return Authenticator(credentials.bearer, _signed(rules, settings.auth_jwks_url or GOOGLE_KEYS))
        case "iap":
            rules = _rules(settings, IAP_ISSUERS, ("ES256",), verifies_email=True)
            return Authenticator(credentials.iap_assertion, _signed(rules, settings.auth_jwks_url or IAP_KEYS))
        case "cloud-run-iam":
            return Authenticator(
                credentials.serverless_bearer, StrippedTokens(_rules(settings, GOOGLE_ISSUERS, ("RS256",)))
            )


def _tokens(settings: Settings) -> StaticTokens:
    if settings.tokens_file:
        return TokensFile(settings.tokens_file)
    given = settings.tokens.get_secret_value() if settings.tokens else ""
    entries = parse_tokens(given.replace(",", "\n"))
    if not entries:
        raise ConfigError("A2A_GCS_TOKENS holds no token; write name:token, several of them with commas between")
    return StaticTokens(entries)


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
