"""What is in a workspace: every entry, in the order of the archive, from one walk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from a2a_gcs.workspaces.beneath import Beneath, names_of
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.ignore import NOTHING, Ignore
from a2a_gcs.workspaces.limits import Limits, Meter
from a2a_gcs.workspaces.manifest import Stamp
from a2a_gcs.workspaces.notes import Notes

READABLE = 0o500
"""Bits that a directory needs to be walked; those that lack them get them meanwhile."""

_SKIPPED = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in the tree, as it was when the walk came by.

    Attributes:
        path: Below the workspace.
        stamp: The look at it.
        linked: It is a file with other names.
    """

    path: bytes
    stamp: Stamp
    linked: bool = False

    @property
    def content(self) -> int:
        """Bytes of content that follow its header in an archive."""
        return self.stamp.size if stat.S_ISREG(self.stamp.mode) and not self.stamp.link else 0

    @property
    def inode(self) -> tuple[int, int]:
        """Device and inode number."""
        return self.stamp.device, self.stamp.inode


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole workspace.

    Attributes:
        entries: In the order of the archive.
        content: Bytes of all files together, hard links counted once.
        whole: Nothing was left out, and all of it would come back as it is.
    """

    entries: Sequence[Entry]
    content: int
    whole: bool

    def stamps(self) -> dict[bytes, Stamp]:
        return {entry.path: entry.stamp for entry in self.entries}


def scan(beneath: Beneath, ignore: Ignore, meter: Meter, notes: Notes, check: Callable[[], None]) -> Tree:
    """Walks the tree and returns its entries in the order of a walk, names sorted by their bytes.

    So `a`, `a/x`, `a-b`: GNU tar gives a directory its time when it meets the first member outside of it.
    Whatever vanishes during the walk is left out. `check` is called once per directory and may raise.
    """
    entries: list[Entry] = []
    seen: set[tuple[int, int]] = set()
    pending, whole, owner = [b""], True, os.geteuid()
    while pending:
        check()
        for path, status in _children(pending.pop(), beneath):
            if not _kept(path, status.st_mode, ignore, notes):
                whole = False
                continue
            whole &= status.st_uid == owner and not status.st_mode & (stat.S_ISUID | stat.S_ISGID)
            entry = Entry(path, Stamp.of(status), stat.S_ISREG(status.st_mode) and status.st_nlink > 1)
            meter.entry(path)
            if stat.S_ISREG(status.st_mode) and not (entry.linked and entry.inode in seen):
                meter.file(path, status.st_size)
                if entry.linked:
                    seen.add(entry.inode)
            entries.append(entry)
            if stat.S_ISDIR(status.st_mode):
                pending.append(path)
    entries.sort(key=lambda entry: entry.path.replace(b"/", b"\0"))
    return Tree(_with_links(entries) if seen else entries, meter.content, whole)


def survey(root: int, limits: Limits) -> Tree:
    """Everything below an open directory, whatever patterns say. Raises WorkspaceError."""
    with Beneath(root, force=READABLE) as beneath:
        try:
            return scan(beneath, NOTHING, Meter(limits), Notes(), lambda: None)
        finally:
            beneath.put_back()


def _with_links(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, each further name of a file with the first one."""
    first: dict[tuple[int, int], bytes] = {}
    found = []
    for entry in entries:
        earlier = first.setdefault(entry.inode, entry.path) if entry.linked else entry.path
        found.append(entry if earlier == entry.path else replace(entry, stamp=entry.stamp._replace(link=earlier)))
    return found


def _children(directory: bytes, beneath: Beneath) -> list[tuple[bytes, os.stat_result]]:
    try:
        fd = beneath.directory(directory.split(b"/") if directory else ())
        prefix = directory + b"/" if directory else b""
        return [(prefix + name, status) for name in names_of(fd) if (status := _status(name, fd)) is not None]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise WorkspaceError.of("read", directory, error) from error


def _status(name: bytes, fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _kept(path: bytes, mode: int, ignore: Ignore, notes: Notes) -> bool:
    directory = stat.S_ISDIR(mode)
    kind = _SKIPPED.get(stat.S_IFMT(mode))
    if kind is not None:
        notes.add(path, f"left out, it is {kind}")
        return False
    if ignore.by_setting(path, directory=directory):
        notes.add(path, "left out, it matches a pattern of the ignore setting")
        return False
    if ignore.by_workspace(path, directory=directory):
        return False
    if mode & (stat.S_ISUID | stat.S_ISGID):
        notes.add(path, "saved without its set-uid and set-gid bits")
    return True
