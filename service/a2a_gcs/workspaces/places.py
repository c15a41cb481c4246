"""One path for each context, the same turn after turn and host after host on one machine, and never two turns in it.

    <work-dir>/places/<digest>/workspace   where the turn works
    <work-dir>/places/<digest>/lock        flock of whoever has the place

The kernel lets go of a lock when the last process that inherited it has ended,
so the place of a dead host is free once its agents are gone too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from a2a_gcs.workspaces.beneath import names_of, widen
from a2a_gcs.workspaces.removal import remove

_PLACES = b"places"
_NAME = re.compile(rb"[0-9a-f]{20}\Z")
_WORKSPACE = b"workspace"
_LOCK = b"lock"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 10  # at a place that others are leaving


@dataclass(eq=False, slots=True)
class Place:
    """The place of one context, while this process has it.

    Attributes:
        path: The directory to work in.
        name: Of the place.
        lock: Descriptor that holds it.
    """

    path: Path
    name: bytes
    lock: int


class Places:
    """The places below one work directory. Calls block, none of them for long but `clear`.

    Args:
        root: Descriptor of the work directory; stays the caller's.
        path: Its path.
    """

    def __init__(self, root: int, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(_PLACES, 0o700, dir_fd=root)
        self._fd = os.open(_PLACES, _DIRECTORY, dir_fd=root)
        self._path = path / os.fsdecode(_PLACES)
        self._held: set[Place] = set()

    def take(self, root: str, context_id: str, into: int, name: bytes) -> Place | None:
        """The place of a context with an empty directory; None if somebody works there, or may do so still.

        Args:
            root: Tells the contexts of one owner, tenant and agent from those of others.
            context_id: The context.
            into: Descriptor of a directory that takes what a turn has left there that did not end.
            name: What that is called there.

        Raises:
            OSError: It cannot be made.
        """
        digest = hashlib.sha256(f"{root}\0{context_id}".encode("utf-8", "surrogatepass")).hexdigest()[:20].encode()
        lock = self._lock(digest)
        if lock is None:
            return None
        place = Place(self._path / os.fsdecode(digest) / os.fsdecode(_WORKSPACE), digest, lock)
        try:
            self._move(place, into, name)
            os.mkdir(digest + b"/" + _WORKSPACE, 0o700, dir_fd=self._fd)
        except BaseException:
            os.close(lock)
            raise
        self._held.add(place)
        return place

    def leave(self, place: Place, into: int, name: bytes, *, free: bool = True) -> None:
        """Moves the directory away, and gives the place up unless `free` is false: then nobody gets it before `close`.

        Raises:
            OSError: It cannot be moved; the place stays taken.
        """
        self._move(place, into, name)
        if free:
            self._held.discard(place)
            self._free(place.name, place.lock)

    def clear(self) -> None:
        """Removes what the dead have left. Raises OSError."""
        for name in names_of(self._fd):
            lock = self._lock(name) if _NAME.match(name) else None
            if lock is not None:
                self._empty(name, lock)

    def lock_of(self, path: Path) -> int | None:
        """The descriptor that holds the place of a directory: who inherits it keeps others out."""
        return next((place.lock for place in self._held if place.path == path), None)

    def close(self) -> None:
        """Removes and gives up all that is held."""
        while self._held:
            place = self._held.pop()
            self._empty(place.name, place.lock)
        os.close(self._fd)

    def _lock(self, name: bytes) -> int | None:
        path = name + b"/" + _LOCK
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self._fd)
            try:
                fd = os.open(path, _OPEN, 0o600, dir_fd=self._fd)
            except FileNotFoundError:  # whoever left has removed the place in between
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.stat(path, dir_fd=self._fd)):
                    return fd
            except BlockingIOError:
                os.close(fd)
                return None
            except FileNotFoundError:  # the lock of a place that is gone
                pass
            os.close(fd)
        return None

    def _move(self, place: Place, into: int, name: bytes) -> None:
        source = place.name + b"/" + _WORKSPACE
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(source, dir_fd=self._fd, follow_symlinks=False).st_mode):
                widen(source, self._fd, 0o700)  # moving it rewrites its entry for the parent
            os.rename(source, name, src_dir_fd=self._fd, dst_dir_fd=into)

    def _empty(self, name: bytes, lock: int) -> None:
        slot = os.open(name, _DIRECTORY, dir_fd=self._fd)
        try:
            remove(_WORKSPACE, slot)
        finally:
            os.close(slot)
            self._free(name, lock)

    def _free(self, name: bytes, lock: int) -> None:
        os.unlink(name + b"/" + _LOCK, dir_fd=self._fd)
        with contextlib.suppress(OSError):  # the next one is there already
            os.rmdir(name, dir_fd=self._fd)
        os.close(lock)
