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

from a2a_gcs.workspaces.beneath import names_of, open_root
from a2a_gcs.workspaces.bridge import in_thread, outlast
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.places import Place, Places
from a2a_gcs.workspaces.removal import remove

log = structlog.get_logger(__name__)

_GATE = b".lock"
_LOCK = re.compile(rb"(run-[0-9a-f]{32})\.lock\Z")
_RUN = re.compile(rb"run-[0-9a-f]{32}\Z")
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


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
    `run-*` directories that nobody holds, and touches nothing else there.
    """

    def __init__(self, root: Path) -> None:
        """Makes `root` (mode 0700) and this process's part of it, and removes what the dead left. Blocks."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = f"run-{uuid.uuid4().hex}".encode()
        self._run = root.resolve() / os.fsdecode(self._name)
        self._numbers = itertools.count(1)
        with self._gate():
            self._lock: int | None = os.open(self._name + b".lock", _OPEN, 0o600, dir_fd=self._root)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.mkdir(self._name, 0o700, dir_fd=self._root)
            self._run_fd = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
            self._places = Places(self._root, root.resolve())
            self._remove_leftovers()
            self._places.clear()

    def occupy(self, root: str, context_id: str, task_id: str) -> Occupied:
        """A new, empty directory at the path of its context; where a turn still works there, or may, at one of its own.

        Raises:
            WorkspaceError: It cannot be made.
        """
        fresh = self._fresh(context_id, task_id)
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
        with self._gate():
            self._places.close()
            os.close(self._run_fd)
            self._remove_run(self._name)
            os.close(self._lock)
        os.close(self._root)
        self._lock = None

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
            os.unlink(name + b".lock", dir_fd=self._root)
        except OSError as error:
            log.warning("workspace.run_not_removed", run=os.fsdecode(name), error=str(error))

    @contextlib.contextmanager
    def _held(self, name: bytes) -> Iterator[bool]:
        fd = os.open(name + b".lock", _OPEN, 0o600, dir_fd=self._root)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(fd)


def _remove(run: Path, name: bytes) -> None:
    parent = open_root(run)
    try:
        remove(name, parent)
    except OSError as error:
        raise WorkspaceError.of("remove", name, error) from error
    finally:
        os.close(parent)
