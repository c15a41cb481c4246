"""What can go wrong between a directory and its archive; one root, `WorkspaceError`."""

from __future__ import annotations

import os

from a2a_gcs.errors import A2AGcsError

_SHOWN = 200


def shown(name: bytes) -> str:
    """A file name for people: bytes that are no UTF-8 or not printable are escaped, long ones are cut."""
    text = name.decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class WorkspaceError(A2AGcsError):
    """A workspace could not be saved, restored, made or removed; the message names the file."""

    @classmethod
    def of(cls, doing: str, name: bytes, cause: OSError) -> WorkspaceError:
        """The operating system refused something about one file."""
        reason = os.strerror(cause.errno) if cause.errno else str(cause)
        return cls(f"cannot {doing} {shown(name)!r}: {reason}")


class NoWorkspace(WorkspaceError):
    """There is no such task, or it has no workspace (yet); the message says which."""


class SnapshotMissing(WorkspaceError):
    """The pinned archive is not there, or not any more: no such object, or another generation or crc32c.

    Attributes:
        key: The object that was to be read.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"the snapshot {key!r} is not there as it was pinned: {reason}")
        self.key = key


class SnapshotCorrupt(WorkspaceError):
    """The archive is truncated, cannot be decoded, or does not match its checksum."""


class UnsafeArchive(WorkspaceError):
    """A member was refused.

    Attributes:
        member: Its name, escaped for people.
        reason: Why, as half a sentence.
    """

    def __init__(self, member: bytes, reason: str) -> None:
        self.member = shown(member)
        super().__init__(f"member {self.member!r} of the archive is refused: {reason}")
        self.reason = reason


class WorkspaceTooLarge(WorkspaceError):
    """A limit on bytes, entries, length of a path or compression ratio was passed."""


class SnapshotUnstable(WorkspaceError):
    """A file kept changing while it was read, in every try.

    Attributes:
        path: The file, below the workspace, escaped for people.
    """

    def __init__(self, path: bytes, reason: str) -> None:
        self.path = shown(path)
        super().__init__(f"{self.path!r} kept changing while the workspace was saved: {reason}")
