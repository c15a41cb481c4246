"""The errors of fake_gcs: one root, each with what to do about it in its message."""

from __future__ import annotations


class FakeGcsError(Exception):
    """Root of every error that fake_gcs raises on purpose."""


class BinaryNotFound(FakeGcsError):
    """No fake-gcs-server to run, or the one that was named cannot be run."""


class StartFailed(FakeGcsError):
    """The emulator did not come up; the message holds the end of its log."""


class PortTaken(StartFailed):
    """Something else listens on the port that was asked for.

    Attributes:
        host: The address that was asked for.
        port: The port that was asked for.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} on {host} is taken: stop the program that listens there, "
            f"or choose another port (--port 0 picks a free one)"
        )
        self.host = host
        self.port = port


class DataInUse(StartFailed):
    """Another emulator works on the same data directory."""
