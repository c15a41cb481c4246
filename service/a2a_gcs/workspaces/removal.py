"""Removes trees, whatever their modes and depth, and nothing that a link in them points to."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections import deque

from a2a_gcs.workspaces.beneath import names_of, open_below, widen

_ACCESS = 0o700
_REFILLS = 1000  # in case somebody fills a directory as fast as it is emptied


def remove(name: bytes, parent: int) -> None:
    """Removes a file, link or tree; nothing to remove is fine. Raises OSError."""
    if not _is_directory(name, parent):
        _remove_empty(name, parent)
        return
    directory = _open(name, parent)
    try:
        empty(directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def empty(root: int) -> None:
    """Removes everything in an open directory. Raises OSError.

    Directories that are not empty are moved up into `root` and emptied there: a tree may be
    deeper than Python's stack, the limit on open files, and what can be walked again and again.
    """
    moved = uuid.uuid4().hex.encode()
    pending, count, refills = deque(names_of(root)), 0, 0
    while pending or (pending := deque(names_of(root))):
        name = pending.popleft()
        for fresh in _empty_level(name, root, moved, count):
            count += 1
            pending.append(fresh)
        try:
            _remove_empty(name, root)
        except OSError as error:
            refills += 1
            if error.errno != errno.ENOTEMPTY or refills > _REFILLS:
                raise
            pending.append(name)


def _empty_level(name: bytes, root: int, moved: bytes, count: int) -> list[bytes]:
    """Empties one directory of `root`, and returns the new names of those that were moved out of it."""
    if not _is_directory(name, root):
        return []
    fresh: list[bytes] = []
    directory = _open(name, root)
    try:
        for child in names_of(directory):
            try:
                _remove_empty(child, directory)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                widen(child, directory, _ACCESS)  # moving it rewrites its entry for the parent
                fresh.append(b"%s-%d" % (moved, count + len(fresh)))
                os.rename(child, fresh[-1], src_dir_fd=directory, dst_dir_fd=root)
    finally:
        os.close(directory)
    return fresh


def _remove_empty(name: bytes, parent: int) -> None:
    remove_entry = os.rmdir if _is_directory(name, parent) else os.unlink
    with contextlib.suppress(FileNotFoundError):
        remove_entry(name, dir_fd=parent)


def _is_directory(name: bytes, parent: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    return False


def _open(name: bytes, parent: int) -> int:
    widen(name, parent, _ACCESS)
    return open_below(name, parent)
