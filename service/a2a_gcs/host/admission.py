"""Whether this host takes on more work right now."""

from __future__ import annotations

from a2a.utils.errors import InternalError


class Admission:
    """The one gate that every message passes before anything is claimed.

    Attributes:
        draining: The host is being stopped: nothing new begins.
    """

    def __init__(self) -> None:
        self.draining = False

    def check(self) -> None:
        """Raises an A2AError that says when to try again, if the host takes no work."""
        if self.draining:
            raise InternalError("this host is being restarted; send again", {"reason": "HOST_DRAINING"})
