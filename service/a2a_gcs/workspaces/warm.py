"""Directories that are kept after their turn, in case the next one starts from exactly what they hold."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

from a2a_gcs.records import Pin
from a2a_gcs.workspaces.beneath import Beneath, open_file, open_root
from a2a_gcs.workspaces.bridge import CHUNK
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.manifest import Baseline, unchanged
from a2a_gcs.workspaces.scanner import survey

MOST_KEPT = 1000
"""Directories that are kept at most, whatever they hold: an empty one takes no disk, but each some kB of memory."""
_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Warm:
    """A directory, and the archive that it holds the tree of."""

    path: Path
    baseline: Baseline

    @property
    def bytes(self) -> int:
        """What it takes on disk, about: whole blocks, and one more for each name, its own included."""
        sizes = (stamp.size for stamp in self.baseline.stamps.values() if not stamp.link)
        return _BLOCK + sum(_BLOCK * (1 + -(-size // _BLOCK)) for size in sizes)


class WarmDirs:
    """At most one directory per archive of a root, so many in all, within a budget of bytes.

    The least recently used go first. A directory leaves with whoever takes it, so no two turns ever
    meet in one. Archives of different roots have different names here: two owners may use the same context id.
    """

    def __init__(self, budget: int, most: int = MOST_KEPT) -> None:
        self._budget = budget
        self._most = most
        self._kept: OrderedDict[tuple[str, str, Pin], Warm] = OrderedDict()
        self._bytes = 0

    def keep(self, root: str, warm: Warm) -> list[Path]:
        """Keeps a directory, unless it could not serve; returns those that are to be removed instead."""
        known = warm.baseline
        if not known.whole or warm.bytes > self._budget:
            return [warm.path]
        dropped = [old.path] if (old := self.take(root, known.key, known.pin)) else []
        self._kept[root, known.key, known.pin] = warm
        self._bytes += warm.bytes
        while self._bytes > self._budget or len(self._kept) > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.bytes
            dropped.append(oldest.path)
        return dropped

    def take(self, root: str, key: str, pin: Pin) -> Warm | None:
        """Hands out the directory of an archive, if there is one."""
        warm = self._kept.pop((root, key, pin), None)
        if warm is not None:
            self._bytes -= warm.bytes
        return warm


def verified(warm: Warm, limits: Limits) -> Baseline | None:
    """Looks whether a directory is still as its archive has it; blocks.

    Whatever was touched since, or has come, or is gone, shows in the stamps; what was too young to have
    a stamp that tells is read.

    Returns:
        What is known of it now; None if it is anything but untouched.
    """
    try:
        root = open_root(warm.path)
    except WorkspaceError:
        return None
    try:
        tree = survey(root, limits)
        stamps, recent = tree.stamps(), warm.baseline.recent
        same = tree.whole and unchanged(warm.baseline, stamps)
        if not same or not all(_digest(root, path) == digest for path, digest in recent.items()):
            return None
        os.fchmod(root, 0o700)
    except (WorkspaceError, OSError):
        return None
    finally:
        os.close(root)
    return replace(warm.baseline, stamps=stamps, recent={})


def _digest(root: int, path: bytes) -> bytes:
    *parents, name = path.split(b"/")
    with Beneath(root) as beneath:
        parent = beneath.directory(parents)
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return hashlib.sha256(os.readlink(name, dir_fd=parent)).digest()
        digest = hashlib.sha256()
        with open(open_file(name, parent), "rb") as file:  # noqa: PTH123 - a descriptor
            while data := file.read(CHUNK):
                digest.update(data)
        return digest.digest()
