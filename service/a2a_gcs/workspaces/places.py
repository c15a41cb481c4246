"""One path for each context, the same turn after turn and host after host on one machine, and never two turns in it.

    <work-dir>/places/<digest>/workspace   where the turn works
    <work-dir>/places/<digest>/lock        flock of whoever has the place

The kernel lets go of a lock when the last process that inherited it has ended,
so the place of a dead host is free once its agents are gone too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import structlog

from a2a_gcs.workspaces.beneath import is_at, names_of, widen
from a2a_gcs.workspaces.removal import remove

log = structlog.get_logger(__name__)

_PLACES = b"places"
_NAME = re.compile(rb"[0-9a-f]{20}\Z")
_WORKSPACE = b"workspace"
_LOCK = b"lock"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FILE = {errno.EISDIR, errno.ELOOP, errno.ENXIO}  # an agent has made something else of its lock
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
        self._fd = _made(root)
        self._path = path / os.fsdecode(_PLACES)
        self._held: set[Place] = set()
        self._lost: set[Place] = set()

    def stand(self, root: int) -> bool:
        """Whether the places still are where they were made."""
        return is_at(self._fd, _PLACES, root)

    def mend(self, root: int) -> None:
        """Makes the directory of all places again. Those that were held are lost: their paths may be others' by now.

        Raises:
            OSError: It cannot be made.
        """
        if not self.stand(root):
            fd = _made(root)
            os.close(self._fd)
            self._fd = fd
            self._lost |= self._held
            self._held.clear()

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
            self._make(place, into, name)
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
            self._lost.discard(place)
            self._free(place.name, place.lock)

    def clear(self) -> None:
        """Removes what the dead have left, but what cannot be removed. Raises OSError."""
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
        while self._lost:
            os.close(self._lost.pop().lock)
        os.close(self._fd)

    def _lock(self, name: bytes) -> int | None:
        for _ in range(_TRIES):
            slot = self._make_slot(name)
            if slot is None:  # whoever left has removed the place in between
                continue
            try:
                return _locked(slot)
            except BlockingIOError:
                return None
            except FileNotFoundError:
                continue
            finally:
                os.close(slot)
        return None

    def _make_slot(self, name: bytes) -> int | None:
        """The directory of a place, also where an agent has put something else in its stead."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self._fd)
        if (slot := self._open_slot(name)) is None:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=self._fd)
        return slot

    def _open_slot(self, name: bytes) -> int | None:
        """The directory of a place as it is, opened to its owner; None where there is none, or something else."""
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                if mode & stat.S_IRWXU != stat.S_IRWXU:
                    widen(name, self._fd, 0o700)
                return os.open(name, _DIRECTORY, dir_fd=self._fd)
        return None

    def _make(self, place: Place, into: int, name: bytes) -> None:
        workspace = place.name + b"/" + _WORKSPACE
        try:
            os.mkdir(workspace, 0o700, dir_fd=self._fd)
        except FileExistsError:
            self._move(place, into, name)
            os.mkdir(workspace, 0o700, dir_fd=self._fd)

    def _move(self, place: Place, into: int, name: bytes) -> None:
        slot = self._open_slot(place.name)
        if slot is None:
            return
        try:
            if _is_others(place.lock, slot):
                return
            with contextlib.suppress(FileNotFoundError):
                mode = os.stat(_WORKSPACE, dir_fd=slot, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                    widen(_WORKSPACE, slot, 0o700)  # moving it rewrites its entry for the parent
                os.rename(_WORKSPACE, name, src_dir_fd=slot, dst_dir_fd=into)
        finally:
            os.close(slot)

    def _empty(self, name: bytes, lock: int) -> None:
        try:
            slot = self._open_slot(name)
            if slot is not None:
                try:
                    if not _is_others(lock, slot):
                        remove(_WORKSPACE, slot)
                finally:
                    os.close(slot)
        except OSError as error:  # such as what another user has made there; the next turn finds it in its way
            log.warning("workspace.place_not_emptied", error=str(error))
        finally:
            self._free(name, lock)

    def _free(self, name: bytes, lock: int) -> None:
        try:
            slot = self._open_slot(name)
            if slot is not None:
                try:
                    if is_at(lock, _LOCK, slot):  # else an agent has removed it, and it may be somebody else's by now
                        os.unlink(_LOCK, dir_fd=slot)
                finally:
                    os.close(slot)
                with contextlib.suppress(OSError):  # the next one is there already
                    os.rmdir(name, dir_fd=self._fd)
        finally:
            os.close(lock)


def _locked(slot: int) -> int:
    """The lock of a place. Raises BlockingIOError if somebody has it, and FileNotFoundError if it is gone meanwhile."""
    try:
        fd = os.open(_LOCK, _OPEN, 0o600, dir_fd=slot)
    except PermissionError:
        widen(_LOCK, slot, 0o600)
        fd = os.open(_LOCK, _OPEN, 0o600, dir_fd=slot)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        remove(_LOCK, slot)
        fd = os.open(_LOCK, _OPEN, 0o600, dir_fd=slot)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(fd, _LOCK, slot):  # the lock of a place that is gone
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_others(lock: int, slot: int) -> bool:
    """Whether a place has another lock than ours: ours was removed, and somebody has taken the place since."""
    try:
        there = os.stat(_LOCK, dir_fd=slot, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(there.st_mode) and not os.path.samestat(os.fstat(lock), there)


def _made(root: int) -> int:
    """The directory of all places, which may be there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(_PLACES, 0o700, dir_fd=root)
    return os.open(_PLACES, _DIRECTORY, dir_fd=root)
