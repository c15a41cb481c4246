"""Removes trees, whatever their modes and depth, and nothing that a link in them points to."""

from __future__ import annotations

import errno
import os
import stat

from a2a_gcs.workspaces.beneath import Beneath, names_of

_ACCESS = 0o700
_VISITS = 1000  # of one directory, in case somebody fills it as fast as it is emptied


def empty(root: int) -> None:
    """Removes everything in an open directory. Raises OSError."""
    with Beneath(root, force=_ACCESS) as beneath:
        _empty(beneath, [])


def remove(name: bytes, parent: int) -> None:
    """Removes a file, link or tree; nothing to remove is fine. Raises OSError."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    with Beneath(parent, force=_ACCESS) as beneath:
        _empty(beneath, [name])
    os.rmdir(name, dir_fd=parent)


def _empty(beneath: Beneath, top: list[bytes]) -> None:
    """Depth first without recursion: a tree may be deeper than Python's stack."""
    path, pending, visits = list(top), [_unlink_files(beneath, top)], 0
    while pending:
        if pending[-1]:
            path.append(pending[-1].pop())
            pending.append(_unlink_files(beneath, path))
            continue
        pending.pop()
        if not pending:
            return
        try:
            os.rmdir(path[-1], dir_fd=beneath.directory(path[:-1]))
        except OSError as error:
            visits += 1
            if error.errno != errno.ENOTEMPTY or visits > _VISITS:
                raise
            pending.append(_unlink_files(beneath, path))
            continue
        path.pop()


def _unlink_files(beneath: Beneath, path: list[bytes]) -> list[bytes]:
    """Unlinks whatever is no directory and returns the names of the directories."""
    fd = beneath.directory(path)
    directories = []
    for name in names_of(fd):
        if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            directories.append(name)
        else:
            os.unlink(name, dir_fd=fd)
    return directories
