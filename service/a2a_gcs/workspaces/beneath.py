"""Directories below a root, reached name by name and never through a symbolic link.

A path that is checked first and used later can be swapped for a link in
between, by an archive's own members or by a process that still runs in the
workspace. Descriptors cannot: every step here is an open relative to the
directory before it, with O_NOFOLLOW.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from a2a_gcs.workspaces.errors import WorkspaceError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HANDLE = getattr(os, "O_PATH", None)  # Linux only
_KEPT = 64  # levels whose descriptors stay open; deeper ones are walked again


def open_root(directory: Path) -> int:
    """Opens a workspace's directory; raises WorkspaceError if it is gone or is something else now."""
    try:
        return os.open(directory, _DIRECTORY)
    except FileNotFoundError:
        raise WorkspaceError(f"the workspace directory {directory.name!r} is gone: removed or renamed") from None
    except NotADirectoryError:
        raise WorkspaceError(f"the workspace directory {directory.name!r} was replaced by a file or link") from None


def open_below(name: bytes, parent: int) -> int:
    """Opens one directory in another. Raises OSError, NotADirectoryError for a link."""
    return os.open(name, _DIRECTORY, dir_fd=parent)


def is_at(fd: int, name: bytes | Path, parent: int | None = None) -> bool:
    """Whether an open file or directory still is what its name stands for; a link's target does not count."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=parent, follow_symlinks=False))
    return False


def names_of(fd: int) -> list[bytes]:
    """The raw names in a directory, in no order."""
    return [os.fsencode(name) for name in os.listdir(fd)]


def widen(name: bytes, parent: int, mode: int) -> None:
    """Sets the mode of a file or directory that its owner may not open; never that of a link's target."""
    if _HANDLE is None:
        os.chmod(name, mode, dir_fd=parent, follow_symlinks=False)
        return
    handle = os.open(name, _HANDLE | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", mode)  # noqa: PTH101 - not one of ours to resolve
    finally:
        os.close(handle)


def open_file(name: bytes, parent: int) -> int:
    """Opens a file for reading, for a moment also one that its owner made unreadable."""
    try:
        return os.open(name, _FILE, dir_fd=parent)
    except PermissionError:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            raise
    mode = stat.S_IMODE(status.st_mode)
    widen(name, parent, mode | stat.S_IRUSR)
    fd = os.open(name, _FILE, dir_fd=parent)
    os.fchmod(fd, mode)
    return fd


class Beneath:
    """Opens directories below `root`, which stays the caller's to close.

    The descriptors of the path walked last are kept, so visiting a tree in
    order costs about one open per directory. One thread at a time.
    """

    def __init__(self, root: int, *, force: int = 0) -> None:
        """With `force`, directories that lack these bits for their owner get them; see `widened`."""
        self._root = root
        self._force = 0 if os.geteuid() == 0 else force  # root needs no bits
        self.widened: dict[bytes, int] = {}
        self._names: list[bytes] = []
        self._fds: list[int | None] = []

    def directory(self, parts: Sequence[bytes]) -> int:
        """A descriptor of the directory, valid until the next call.

        Raises:
            FileNotFoundError: A part does not exist.
            NotADirectoryError: A part is a link or a file.
        """
        self._keep(self._common(parts))
        for name in parts[len(self._names) :]:
            fd = self._open(name, self._top())
            if len(self._fds) > _KEPT:
                self._close_top()
            self._names.append(name)
            self._fds.append(fd)
        return self._top()

    def close(self) -> None:
        self._keep(0)

    def put_back(self) -> None:
        """Gives directories that were widened their modes back, from the leaves up."""
        for path in sorted(self.widened, reverse=True):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.fchmod(self.directory(path.split(b"/")), self.widened[path])
        self.widened.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _common(self, parts: Sequence[bytes]) -> int:
        depth = 0
        for mine, wanted in zip(self._names, parts, strict=False):
            if mine != wanted:
                break
            depth += 1
        while depth and self._fds[depth - 1] is None:
            depth -= 1
        return depth

    def _keep(self, depth: int) -> None:
        while len(self._names) > depth:
            self._close_top()
            self._names.pop()
            self._fds.pop()

    def _close_top(self) -> None:
        fd, self._fds[-1] = self._fds[-1], None
        if fd is not None:
            os.close(fd)

    def _top(self) -> int:
        fd = self._fds[-1] if self._fds else self._root
        assert fd is not None
        return fd

    def _open(self, name: bytes, parent: int) -> int:
        if not self._force:
            return open_below(name, parent)
        mode = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        path = b"/".join([*self._names, name])
        if mode & self._force != self._force and path not in self.widened:
            widen(name, parent, mode | self._force)
            self.widened[path] = mode
        return open_below(name, parent)
