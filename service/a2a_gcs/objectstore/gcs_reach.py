"""Why Cloud Storage cannot be reached, in one line for people: what was wrong, and what to do."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator

from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError

REAL = "https://storage.googleapis.com"


def why_unreachable(error: BaseException, *, within: float) -> str:
    """One line, without what a client library has to say of itself; that belongs in a debug log.

    Args:
        error: What google-cloud-storage raised.
        within: Seconds that it had.
    """
    if isinstance(error, DefaultCredentialsError):
        return (
            "there are no credentials; give the service a service account, or on a machine of your own run "
            "`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
        )
    if isinstance(error, RefreshError):
        return "the credentials are not accepted any more; renew them with `gcloud auth application-default login`"
    if isinstance(error, GoogleAuthError) and not isinstance(error, TransportError):
        return f"the credentials cannot be used ({type(error).__name__}); check GOOGLE_APPLICATION_CREDENTIALS"
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    todo = "is the emulator that STORAGE_EMULATOR_HOST names running?" if emulator else "check network and proxy"
    return f"{emulator or REAL} {_fault(error, within)}; {todo}"


def _fault(error: BaseException, within: float) -> str:
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, GoogleAPICallError) and cause.code:
            return f"answers {int(cause.code)}"
        if isinstance(cause, TimeoutError):
            return f"does not answer within {within:g} s"
        if isinstance(cause, socket.gaierror):
            return "has a name that cannot be resolved"
        if isinstance(cause, ssl.SSLError):
            return f"has no TLS that can be trusted ({cause.reason or 'SSLError'})"
    named = [c.strerror for c in causes if isinstance(c, OSError) and c.strerror]
    return f"cannot be reached ({named[-1] if named else type(causes[-1]).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what lies behind it; urllib3 keeps that in `reason`, requests in its first argument."""
    seen: set[int] = set()
    pending: list[object] = [error]
    while pending:
        one = pending.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        pending += [*one.args[:1], getattr(one, "reason", None), one.__cause__, one.__context__]
