"""How large a workspace may be; the same in both directions, so that what was saved can be restored."""

from __future__ import annotations

from dataclasses import dataclass

from a2a_gcs.workspaces.errors import WorkspaceTooLarge, shown

MAX_PATH = 4096
"""Longest path below the workspace, and longest link target, in bytes (Linux: PATH_MAX)."""

_HEADERS = 4096
"""Bytes of headers and padding that an average entry may have besides its content."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Passing any of them raises WorkspaceTooLarge, in `save` before anything is published.

    Attributes:
        max_bytes: Content of all files together, hard links counted once.
        max_entries: Files, directories and links.
        max_ratio: Bytes unpacked per byte of the archive, applied beyond `ratio_from`. Deflate itself
            ends at 1,032; python-isal packs zeros at 983.
        ratio_from: Bytes unpacked from which the ratio counts.
    """

    max_bytes: int = 20 << 30
    max_entries: int = 1_000_000
    max_ratio: int = 1000
    ratio_from: int = 100 << 20


class Meter:
    """Counts one pass over a workspace or archive against its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.entries = 0
        self.content = 0

    def entry(self, path: bytes) -> None:
        self.entries += 1
        if self.entries > self._limits.max_entries:
            raise WorkspaceTooLarge(f"more than {self._limits.max_entries:,} entries, at {shown(path)!r}")
        if len(path) > MAX_PATH:
            raise WorkspaceTooLarge(f"path of {len(path):,} bytes, more than {MAX_PATH:,}: {shown(path)!r}")

    def file(self, path: bytes, size: int) -> None:
        self.content += size
        if self.content > self._limits.max_bytes:
            raise WorkspaceTooLarge(f"more than {self._limits.max_bytes:,} bytes of content, at {shown(path)!r}")

    def stream(self, unpacked: int, packed: int) -> None:
        """Checks the tar stream as a whole, which may hold more than its entries declare."""
        limits = self._limits
        if unpacked > limits.ratio_from and unpacked > limits.max_ratio * packed:
            raise WorkspaceTooLarge(f"more than {limits.max_ratio:,} bytes unpacked per byte of the archive")
        if unpacked > limits.max_bytes + limits.max_entries * _HEADERS:
            raise WorkspaceTooLarge(f"the archive unpacks to more than {limits.max_bytes:,} bytes and their headers")
