"""JSON Web Tokens: the signed ones of an issuer, and those whose signature Cloud Run checked and took away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import jwt

from a2a_gcs.host.auth.errors import Unauthenticated
from a2a_gcs.host.auth.jwks import Key, KeySet
from a2a_gcs.host.auth.principal import Principal, principal_of

STRIPPED = "SIGNATURE_REMOVED_BY_GOOGLE"
"""What Cloud Run puts in place of a signature that it has checked (README, *Authentication*)."""

_SEGMENTS = 3


@dataclass(frozen=True)
class Rules:
    """What a token has to say.

    Attributes:
        issuers: `iss` is one of these, to the letter.
        audiences: `aud` is, or holds, one of these; none: not looked at.
        algorithms: What the token may be signed with.
        owner_claim: Whose value names the owner.
        leeway: Seconds by which clocks may differ.
        verifies_email: The issuer vouches for every email address that it writes; otherwise `email` as the
            owner claim needs `email_verified`.
    """

    issuers: frozenset[str]
    audiences: tuple[str, ...]
    algorithms: frozenset[str]
    owner_claim: str = "sub"
    leeway: float = 30.0
    verifies_email: bool = False


class SignedTokens:
    """Checks tokens of an issuer against its keys.

    Args:
        rules: What they have to say.
        keys: The issuer's.
        close: Called at the end.
    """

    def __init__(self, rules: Rules, keys: KeySet, close: Callable[[], Awaitable[None]] | None = None) -> None:
        self._rules = rules
        self._keys = keys
        self._close = close

    async def check(self, token: str) -> Principal:
        """The owner that a token proves. Raises Unauthenticated, or AuthUnavailable while there are no keys."""
        header = _header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms:
            raise Unauthenticated("the token is not valid", detail="its algorithm is not accepted")
        if kid is not None and not isinstance(kid, str):
            raise Unauthenticated("the token is not valid", detail="its kid is no string")
        key = await self._keys.find(kid, algorithm)
        return owner_of(claims_of(token, self._rules, key, algorithm), self._rules)

    async def aclose(self) -> None:
        """Ends a fetch under way, and closes connections."""
        await self._keys.aclose()
        if self._close is not None:
            await self._close()


class StrippedTokens:
    """Reads tokens that Cloud Run has checked, and nothing else: to this code anybody could have written them.

    Sound only where no request reaches the container but through Cloud Run's IAM check.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    async def check(self, token: str) -> Principal:
        """The owner that a stripped token names. Raises Unauthenticated for any other signature."""
        segments = token.split(".")
        if len(segments) != _SEGMENTS or segments[2] != STRIPPED:
            raise Unauthenticated("the token is not valid", detail="Cloud Run has not checked it")
        return owner_of(claims_of(token, self._rules), self._rules)

    async def aclose(self) -> None:
        """Nothing is open."""


def claims_of(token: str, rules: Rules, key: Key | None = None, algorithm: str = "") -> dict[str, Any]:
    """The claims of a token that keeps the rules: first its signature, by the key, then what it says.

    Without a key the signature is not looked at. Raises Unauthenticated.
    """
    options: Any = {f"verify_{claim}": True for claim in ("exp", "nbf", "iat", "iss")}
    options |= {"verify_signature": key is not None, "verify_aud": bool(rules.audiences)}
    options |= {"require": ["exp", "iss", *(["aud"] if rules.audiences else [])]}
    try:
        return jwt.decode(
            token,
            key=key.public if key else "",
            algorithms=[algorithm],
            options=options,
            audience=rules.audiences or None,
            issuer=rules.issuers,
            leeway=rules.leeway,
        )
    except jwt.ExpiredSignatureError as e:
        raise Unauthenticated("the token has expired") from e
    except jwt.ImmatureSignatureError as e:
        raise Unauthenticated("the token is not valid yet") from e
    except jwt.InvalidAudienceError as e:
        raise Unauthenticated("the token is for another audience") from e
    except jwt.InvalidIssuerError as e:
        raise Unauthenticated("the token is from another issuer") from e
    except jwt.MissingRequiredClaimError as e:
        raise Unauthenticated(f"the token has no {e.claim} claim") from e
    except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError) as e:
        raise Unauthenticated("the token is not valid", detail=type(e).__name__) from e


def owner_of(claims: dict[str, Any], rules: Rules) -> Principal:
    """The owner that claims name. Raises Unauthenticated if they name none, or by an address that nobody verified."""
    owner = claims.get(rules.owner_claim)
    if rules.owner_claim == "email" and not rules.verifies_email and claims.get("email_verified") is not True:
        raise Unauthenticated("the token has no verified email")
    return principal_of(owner, rules.owner_claim)


def _header(token: str) -> dict[str, Any]:
    try:
        return jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as e:
        raise Unauthenticated("the token is not valid", detail="it is no JSON Web Token") from e
