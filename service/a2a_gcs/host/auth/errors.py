"""How authentication fails: for want of valid credentials, or because they cannot be checked right now.

| error | HTTP | gRPC |
|---|---|---|
| Unauthenticated | 401 with `WWW-Authenticate` | UNAUTHENTICATED |
| AuthUnavailable | 503 with `Retry-After` | UNAVAILABLE |
"""

from __future__ import annotations

from typing import Literal

from a2a_gcs.errors import A2AGcsError

REALM = "a2a-gcs"


class Unauthenticated(A2AGcsError):
    """The caller has not proved who it is. The text is for the caller: it says nothing that a forger could use.

    Attributes:
        error: RFC 6750's code; None when there were no credentials at all, for which it forbids a code.
        detail: For the host's log alone; never a credential.
    """

    def __init__(
        self,
        text: str,
        *,
        error: Literal["invalid_request", "invalid_token"] | None = "invalid_token",
        detail: str = "",
    ) -> None:
        super().__init__(text)
        self.error = error
        self.detail = detail

    @property
    def challenge(self) -> str:
        """The value of `WWW-Authenticate` (RFC 6750, section 3)."""
        challenge = f'Bearer realm="{REALM}"'
        if self.error:
            challenge += f', error="{self.error}", error_description="{self}"'
        return challenge


class AuthUnavailable(A2AGcsError):
    """Credentials cannot be checked right now; nothing is said about whether they are good.

    Attributes:
        retry_after: Whole seconds after which a try may succeed.
        detail: For the host's log alone.
    """

    def __init__(self, retry_after: int, detail: str) -> None:
        super().__init__("credentials cannot be checked right now; send again in a few seconds")
        self.retry_after = retry_after
        self.detail = detail
