"""What is in a workspace: every entry, in the order of the archive, from one walk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from a2a_gcs.workspaces.beneath import Beneath, names_of
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.ignore import Ignore
from a2a_gcs.workspaces.limits import Meter
from a2a_gcs.workspaces.notes import Notes

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
        mode: With the type bits.
        inode: Device and inode number.
    """

    path: bytes
    mode: int
    inode: tuple[int, int]


def scan(beneath: Beneath, ignore: Ignore, meter: Meter, notes: Notes, check: Callable[[], None]) -> list[Entry]:
    """Walks the tree and returns its entries in the order of a walk, names sorted by their bytes.

    So `a`, `a/x`, `a-b`: GNU tar gives a directory its time when it meets the first member outside of it.
    Whatever vanishes during the walk is left out. `check` is called once per directory and may raise.
    """
    entries: list[Entry] = []
    seen: set[tuple[int, int]] = set()
    pending: list[bytes] = [b""]
    while pending:
        check()
        directory = pending.pop()
        for path, status in _children(directory, beneath):
            is_directory = stat.S_ISDIR(status.st_mode)
            if not _kept(path, status.st_mode, ignore, notes):
                continue
            inode = (status.st_dev, status.st_ino)
            meter.entry(path)
            if stat.S_ISREG(status.st_mode) and not (status.st_nlink > 1 and inode in seen):
                meter.file(path, status.st_size)
                if status.st_nlink > 1:
                    seen.add(inode)
            entries.append(Entry(path, status.st_mode, inode))
            if is_directory:
                pending.append(path)
    entries.sort(key=lambda entry: entry.path.replace(b"/", b"\0"))
    return entries


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
