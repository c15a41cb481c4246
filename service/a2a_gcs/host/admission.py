"""Whether this host takes on more work right now."""

from __future__ import annotations

from collections import Counter

from a2a.utils.errors import InternalError, UnsupportedOperationError

RETRY_AFTER_SECONDS = 5
"""What a refused client is told to wait; any run may end earlier."""


class Place:
    """One running task's place, to be given back once."""

    def __init__(self, admission: Admission, owner: str) -> None:
        self._admission = admission
        self._owner = owner
        self._left = False

    def leave(self) -> None:
        """Gives the place back. Does nothing the second time."""
        if not self._left:
            self._left = True
            self._admission.running.subtract([self._owner])
            self._admission.running += Counter()  # forgets owners without a task


class Admission:
    """The one gate that every message passes before anything is claimed.

    Args:
        most: Most tasks that run on this host at a time; None for any number.
        most_per_owner: Most of them of one owner. Without authentication everybody is the same owner.

    Attributes:
        draining: The host is being stopped: nothing new begins.
        running: Places taken, by owner.
    """

    def __init__(self, *, most: int | None = None, most_per_owner: int | None = None) -> None:
        self.draining = False
        self.running: Counter[str] = Counter()
        self._most = most
        self._most_per_owner = most_per_owner

    def check(self, owner: str = "") -> None:
        """Raises an A2AError that says when to try again, if the host takes no work (of this owner)."""
        if self.draining:
            raise InternalError("this host is being restarted; send again", {"reason": "HOST_DRAINING"})
        if self._most is not None and self.running.total() >= self._most:
            raise _busy("HOST_BUSY", f"this host runs {self._most} tasks, which is the most it may")
        if self._most_per_owner is not None and self.running[owner] >= self._most_per_owner:
            raise _busy("OWNER_BUSY", f"{self._most_per_owner} of your tasks run, which is the most that may")

    def admit(self, owner: str = "") -> Place:
        """Takes a place for a task that is about to run. Raises what `check` raises."""
        self.check(owner)
        self.running[owner] += 1
        return Place(self, owner)


def _busy(reason: str, why: str) -> UnsupportedOperationError:
    data = {"reason": reason, "retryAfterSeconds": str(RETRY_AFTER_SECONDS)}
    return UnsupportedOperationError(f"{why}; nothing was started, send again in {RETRY_AFTER_SECONDS} s", data)
