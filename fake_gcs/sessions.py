"""Resumable uploads under way. They live a week, as with real GCS, but not beyond the process."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fake_gcs.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_gcs.rules.preconditions import Preconditions
    from fake_gcs.spool import Spool

LIFETIME_SECONDS = 7 * 86_400.0


@dataclass
class Session:
    """One resumable upload.

    Attributes:
        wanted: What the client asked for on the object.
        headers: Declared checksums may come with the request that starts it, too.
        total: Size of the object, None while nobody has said.
        spool: The bytes persisted so far.
        outcome: The finished object's resource, or the error that ended the upload for good.
    """

    bucket: str
    name: str
    wanted: dict[str, Any]
    conditions: Preconditions
    declared: dict[str, str]
    total: int | None
    spool: Spool
    born: float
    outcome: dict[str, Any] | ApiError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def end(self, outcome: dict[str, Any] | ApiError) -> None:
        self.outcome = outcome
        self.spool.close()


class Sessions:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def now(self) -> float:
        return self._clock()

    def add(self, session: Session) -> str:
        """Keeps a session and answers its upload_id."""
        for key, old in list(self._sessions.items()):
            if self._clock() - old.born > LIFETIME_SECONDS:
                self._sessions.pop(key).spool.close()
        key = uuid.uuid4().hex
        self._sessions[key] = session
        return key

    def get(self, key: str) -> Session:
        """Raises ApiError 404 for an upload that never was, or was over a week ago."""
        found = self._sessions.get(key)
        if found is None or self._clock() - found.born > LIFETIME_SECONDS:
            raise ApiError(404, "notFound", f"Upload session not found: {key}")
        return found

    def close(self) -> None:
        for session in self._sessions.values():
            session.spool.close()
        self._sessions.clear()
