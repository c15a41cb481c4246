"""Which header a mode reads. What is ambiguous is refused: two readers of one request must not see two callers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from a2a_gcs.host.auth.errors import Unauthenticated

Headers = Iterable[tuple[str | bytes, str | bytes]]
"""ASGI's headers, or gRPC's metadata; names in any case."""

MAX_TOKEN_CHARS = 16 * 1024
"""Longest credential that is looked at; a token of any issuer is far shorter."""

IAP_HEADER = "x-goog-iap-jwt-assertion"

_BEARER = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


def bearer(headers: Headers) -> str:
    """The token of `Authorization: Bearer`, which has to be the only Authorization header (RFC 6750, 2.1)."""
    return _bearer(headers, "authorization")


def serverless_bearer(headers: Headers) -> str:
    """The token that Cloud Run checked: of `X-Serverless-Authorization` when that is there, else of `Authorization`.

    Cloud Run checks the first when a caller sends both, and then passes the second on as it came. To read
    `Authorization` beside it would let any invoker write what it likes there.
    """
    headers = list(headers)
    named = "x-serverless-authorization"
    return _bearer(headers, named if _values(headers, named) else "authorization")


def iap_assertion(headers: Headers) -> str:
    """The signed assertion of Identity-Aware Proxy; its plain X-Goog-Authenticated-User-* headers are never read."""
    value = _only(headers, IAP_HEADER, "the request did not come through Identity-Aware Proxy")
    return _short(value.strip())


def _bearer(headers: Headers, name: str) -> str:
    value = _only(headers, name, "a bearer token is needed").strip()
    match = _BEARER.fullmatch(_short(value))
    if match:
        return match[1]
    if value.partition(" ")[0].lower() != "bearer":  # another scheme: as good as nothing
        raise Unauthenticated("a bearer token is needed", error=None)
    raise Unauthenticated("the Authorization header is malformed", error="invalid_request")


def _only(headers: Headers, name: str, missing: str) -> str:
    values = _values(headers, name)
    if not values:
        raise Unauthenticated(missing, error=None)
    if len(values) > 1:
        raise Unauthenticated("credentials were given more than once", error="invalid_request")
    return values[0]


def _values(headers: Headers, name: str) -> list[str]:
    return [_text(value) for key, value in headers if _text(key).lower() == name]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _short(value: str) -> str:
    if len(value) > MAX_TOKEN_CHARS:
        raise Unauthenticated("the token is too long")
    return value
