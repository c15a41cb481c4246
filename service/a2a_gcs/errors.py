"""The errors of a2a-gcs: one root, each with the key or id it is about and its cause.

`StoreError` and its five subclasses are the whole vocabulary of the object
store port; every adapter raises these and nothing else. How errors reach an
A2A client is decided in one table, `a2a_gcs.host.errors`.
"""

from __future__ import annotations


class A2AGcsError(Exception):
    """Root of every error that a2a-gcs raises on purpose."""


class ConfigError(A2AGcsError):
    """A setting, agent SPEC or store URI that cannot be used; the message says what to write instead."""


class InvalidId(A2AGcsError):
    """A task or context id that cannot become part of a key (`a2a_gcs.layout`).

    Attributes:
        value: The id as it came in.
        reason: What is wrong with it, as half a sentence.
    """

    def __init__(self, value: str, reason: str) -> None:
        super().__init__(f"id {value[:80]!r} {reason}")
        self.value = value
        self.reason = reason


class StoreError(A2AGcsError):
    """An operation on one object failed.

    Attributes:
        key: The key as the caller of the port gave it.
        cause: The client library's own exception, if there was one.
        ambiguous: True when a write may have been committed all the same:
            its answer was lost, now or in an earlier try of the same call.
    """

    what = "failed"

    def __init__(self, key: str, cause: BaseException | None = None, *, ambiguous: bool = False) -> None:
        detail = f": {cause}" if cause is not None and str(cause) else ""
        super().__init__(f"{key!r} {self.what}{detail}")
        self.key = key
        self.cause = cause
        self.ambiguous = ambiguous


class NotFound(StoreError):
    """There is no such object, or not at that version."""

    what = "not found"


class Conflict(StoreError):
    """A precondition failed: somebody else's write came first."""

    what = "changed meanwhile"


class Throttled(StoreError):
    """The store asks for fewer requests (429). Nothing was written; wait, read again, then retry."""

    what = "throttled"


class Unavailable(StoreError):
    """The store could not be reached, answered 5xx or 408, or broke off. Retry with backoff."""

    what = "unavailable"


class PermissionDenied(StoreError):
    """The credentials do not allow it (401, 403). Retrying does not help."""

    what = "not permitted"


class CorruptRecord(A2AGcsError):
    """A stored record that cannot be parsed. It is reported and never overwritten.

    Attributes:
        key: The object that holds it.
        cause: Why it could not be parsed.
        newer: A later release wrote it, which can read it: nothing is wrong but the version of this host.
    """

    def __init__(self, key: str, cause: BaseException | str, *, newer: bool = False) -> None:
        super().__init__(f"{key!r} cannot be read: {cause}")
        self.key = key
        self.cause = cause
        self.newer = newer
