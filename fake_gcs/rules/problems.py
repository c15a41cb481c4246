"""How a rule says no to a request that is wrong in itself."""

from __future__ import annotations


class Invalid(Exception):
    """The request breaks a rule; nothing was done.

    Attributes:
        parameter: The query parameter at fault, or "".
        reason: The word in errors[].reason.
        status: HTTP status, 400 unless said.
        headers: Headers that belong to the answer.
    """

    def __init__(
        self,
        message: str,
        *,
        parameter: str = "",
        reason: str = "invalid",
        status: int = 400,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.reason = reason
        self.status = status
        self.headers = headers or {}
