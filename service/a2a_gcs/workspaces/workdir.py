"""Where agents work: a fresh directory per turn, at the path of its context or in a subdirectory per process."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from a2a_gcs.workspaces.beneath import is_at, names_of, open_root
from a2a_gcs.workspaces.bridge import in_thread, outlast
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.places import Place, Places
from a2a_gcs.workspaces.removal import remove

log = structlog.get_logger(__name__)

_GATE = b".lock"
_LOCK = re.compile(rb"(run-[0-9a-f]{32})\.lock\Z")
_RUN = re.compile(rb"run-[0-9a-f]{32}\Z")
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Occupied:
    """A turn's directory.

    Attributes:
        path: Where it is.
        place: The place of the context, if the directory is there.
        left: What was there before, to be discarded.
    """

    path: Path
    place: Place | None
    left: tuple[Path, ...]


class WorkDirs:
    """The working directories of one process.

    A process holds a lock on `<root>/run-*.lock` as long as it lives; the kernel
    lets go of it at any death. Whoever starts on the same root removes the
    `run-*` directories that nobody holds, and touches nothing else there. The directory itself
    is locked too, as the file may be removed under a living host.

    Below /tmp a cleaner of temporary files may come by. systemd-tmpfiles passes over directories
    that are locked, as the root is; what any other one has removed is made again for the next turn.
    """

    def __init__(self, root: Path) -> None:
        """Makes `root` (mode 0700) and this process's part of it, and removes what the dead left. Blocks."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = root.resolve()
        self._root = _open_root(self._path)
        self._name = f"run-{uuid.uuid4().hex}".encode()
        self._run = self._path / os.fsdecode(self._name)
        self._numbers = itertools.count(1)
        with self._gate():
            self._lock: int | None = self._make_lock()
            self._run_fd = self._make_run()
            self._places = Places(self._root, self._path)
            self._remove_leftovers()
            self._places.clear()

    def occupy(self, root: str, context_id: str, task_id: str) -> Occupied:
        """A new, empty directory at the path of its context; where a turn still works there, or may, at one of its own.

        Raises:
            WorkspaceError: It cannot be made.
        """
        fresh = self._fresh(context_id, task_id)
        self._mend()
        try:
            place = self._places.take(root, context_id, self._run_fd, os.fsencode(fresh.name))
        except OSError as error:
            raise WorkspaceError.of("make", os.fsencode(fresh.name), error) from error
        if place is None:
            return Occupied(self.create(context_id, task_id), None, ())
        return Occupied(place.path, place, (fresh,))

    def vacate(self, place: Place, *, free: bool = True) -> Path:
        """Moves a turn's directory away from the path of its context, which the next turn may have from now on.

        Args:
            place: Where it is.
            free: Nobody works there any more; else nobody gets the place while this process lives.

        Returns:
            Where the directory is now, to be discarded.
        """
        away = self._run / f"{os.fsdecode(place.name)}-{next(self._numbers)}"
        try:
            self._places.leave(place, self._run_fd, os.fsencode(away.name), free=free)
        except OSError as error:
            log.warning("workspace.place_not_left", error=str(error))
        return away

    def lock_of(self, path: Path) -> int | None:
        """A descriptor that keeps others from the path of a context while any process has it; None elsewhere."""
        return self._places.lock_of(path)

    def create(self, context_id: str, task_id: str) -> Path:
        """A new, empty directory that never had another use; the ids show in its name only as a digest."""
        path = self._fresh(context_id, task_id)
        self._mend()
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            raise WorkspaceError.of("make", os.fsencode(path.name), error) from error
        return path

    def _fresh(self, context_id: str, task_id: str) -> Path:
        if self._lock is None:
            raise WorkspaceError("the working directories are closed")
        digest = hashlib.sha256(f"{context_id}\0{task_id}".encode("utf-8", "surrogatepass")).hexdigest()
        return self._run / f"{digest[:16]}-{next(self._numbers)}"

    async def discard(self, path: Path) -> None:
        """Removes a directory that `create` made or `vacate` moved away, whatever became of it; twice is fine.

        Raises:
            ValueError: It is no such directory.
            WorkspaceError: It cannot be removed.
        """
        if path.parent != self._run or path.name in {"", ".", ".."}:
            raise ValueError(f"{path.name!r} is no working directory of this process")
        try:
            os.rmdir(path)  # noqa: PTH106 - most agents leave nothing behind, and a thread costs ten times as much
        except FileNotFoundError:
            return
        except OSError:  # it is not empty, or cannot be removed, which the thread tells
            pass
        else:
            return
        removed = in_thread(partial(_remove, self._run, os.fsencode(path.name)))
        await outlast(removed)
        removed.result()

    def close(self) -> None:
        """Removes everything that can be, and lets go of the lock; may be called twice. Blocks."""
        if self._lock is None:
            return
        try:
            with self._gate():
                self._places.close()
                self._remove_run(self._name)
        except FileNotFoundError:  # a cleaner has removed the root: nothing is left
            log.warning("workspace.directory_gone", path=str(self._path))
        for fd in (self._run_fd, self._lock, self._root):
            os.close(fd)
        self._lock = None

    # ------------------------------------------------------------------ what a cleaner may remove

    def _mend(self) -> None:
        """Makes again what was removed under this process; a lock before anything that it keeps from others.

        Raises:
            WorkspaceError: It cannot be made, or somebody else has made it.
        """
        if self._stands():
            return
        log.warning("workspace.directory_gone", path=str(self._path))
        try:
            self._mend_root()
            with self._gate():
                assert self._lock is not None
                if not is_at(self._lock, self._name + b".lock", self._root):
                    with contextlib.suppress(BlockingIOError):  # ours after all, on a file system that renumbers
                        old, self._lock = self._lock, self._make_lock()
                        os.close(old)
                if not is_at(self._run_fd, self._name, self._root):
                    old, self._run_fd = self._run_fd, self._make_run()
                    os.close(old)
                self._places.mend(self._root)
        except OSError as error:
            raise WorkspaceError.of("make", self._name, error) from error

    def _stands(self) -> bool:
        return (
            self._lock is not None
            and is_at(self._root, self._path)
            and is_at(self._lock, self._name + b".lock", self._root)
            and is_at(self._run_fd, self._name, self._root)
            and self._places.stand(self._root)
        )

    def _mend_root(self) -> None:
        if is_at(self._root, self._path):
            return
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = _open_root(self._path)
        if os.fstat(root).st_uid != os.fstat(self._root).st_uid:  # below /tmp anybody may have made it
            os.close(root)
            raise WorkspaceError(f"the work directory {self._path} was removed, and is somebody else's now")
        os.close(self._root)
        self._root = root

    def _make_lock(self) -> int:
        fd = os.open(self._name + b".lock", _OPEN, 0o600, dir_fd=self._root)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _make_run(self) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._name, 0o700, dir_fd=self._root)
        fd = os.open(self._name, _DIRECTORY, dir_fd=self._root)
        _lock_directory(fd, fcntl.LOCK_EX)
        return fd

    # ------------------------------------------------------------------ other processes

    @contextlib.contextmanager
    def _gate(self) -> Iterator[None]:
        """One process at a time starts or ends: between making a lock file and holding it nobody may look."""
        fd = os.open(_GATE, _OPEN, 0o600, dir_fd=self._root)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _remove_leftovers(self) -> None:
        names = names_of(self._root)
        dead = {match[1] for name in names if (match := _LOCK.match(name))}
        dead |= {name for name in names if _RUN.match(name)}
        for name in sorted(dead - {self._name}):
            with self._held(name) as mine:
                if mine:
                    self._remove_run(name)

    def _remove_run(self, name: bytes) -> None:
        """Removes a run's part; one with what another user has made, say a container, stays, and so does its lock."""
        try:
            remove(name, self._root)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name + b".lock", dir_fd=self._root)
        except OSError as error:
            log.warning("workspace.run_not_removed", run=os.fsdecode(name), error=str(error))

    @contextlib.contextmanager
    def _held(self, name: bytes) -> Iterator[bool]:
        """Holds what a dead process has left; not if it lives, though somebody has removed its lock."""
        with contextlib.ExitStack() as stack:
            fd = os.open(name + b".lock", _OPEN, 0o600, dir_fd=self._root)
            stack.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alive = not self._lock_run(name, stack)
            except BlockingIOError:
                alive = True
            yield not alive

    def _lock_run(self, name: bytes, stack: contextlib.ExitStack) -> bool:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            directory = os.open(name, _DIRECTORY, dir_fd=self._root)
            stack.callback(os.close, directory)
            return _lock_directory(directory, fcntl.LOCK_EX)
        return True


def _open_root(path: Path) -> int:
    fd = os.open(path, _DIRECTORY)
    _lock_directory(fd, fcntl.LOCK_SH)
    return fd


def _lock_directory(fd: int, how: int) -> bool:
    """Whether nobody else has it; a cleaner may, for a moment. Where directories have no locks, files' are all."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.info("workspace.directory_not_locked", error=str(error))
    return True


def _remove(run: Path, name: bytes) -> None:
    parent = open_root(run)
    try:
        remove(name, parent)
    except OSError as error:
        raise WorkspaceError.of("remove", name, error) from error
    finally:
        os.close(parent)
