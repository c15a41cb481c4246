"""The modes: each is a header to read and a check to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.auth import credentials
from a2a_gcs.host.auth.credentials import Headers
from a2a_gcs.host.auth.principal import Principal
from a2a_gcs.host.auth.tokens import StaticTokens, TokensFile, parse_tokens
from a2a_gcs.host.settings import Settings

_READ = {
    "oidc": credentials.bearer,
    "google": credentials.bearer,
    "iap": credentials.iap_assertion,
    "cloud-run-iam": credentials.serverless_bearer,
}


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
        case "oidc" | "google" | "iap" | "cloud-run-iam":
            from a2a_gcs.host.auth.issued import check_of  # noqa: PLC0415 - cryptography, which only these modes pay for

            return Authenticator(_READ[settings.auth], check_of(settings))


def _tokens(settings: Settings) -> StaticTokens:
    if settings.tokens_file:
        return TokensFile(settings.tokens_file)
    given = settings.tokens.get_secret_value() if settings.tokens else ""
    entries = parse_tokens(given.replace(",", "\n"))
    if not entries:
        raise ConfigError("A2A_GCS_TOKENS holds no token; write name:token, several of them with commas between")
    return StaticTokens(entries)
