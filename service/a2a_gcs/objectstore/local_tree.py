"""Objects in a directory, as blocking calls: the part of the local store that touches the disk.

    <dir>/<key>                      the current body, for ls, cat and tar; never read back
    <dir>/.objectstore/index.sqlite  one row per object: version, metadata, and its body, if that is small
    <dir>/.objectstore/blobs/        the other bodies; a blob is never changed once a row names it
    <dir>/.objectstore/incoming/     bodies being written
    <dir>/.objectstore/lock          flock of the one writer; holds what it was about to do

The row is the commit point, so body and metadata change together or not at
all. Writers exclude each other by the lock, which the kernel releases when a
process dies; the next writer finds the note of a dead one in the lock file and
tidies up after it. SQLite is there for ordered listing and for commits that
survive kill -9; readers never wait for the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from a2a_gcs.errors import Conflict, NotFound, StoreError, Unavailable
from a2a_gcs.objectstore.local_draft import Draft
from a2a_gcs.objectstore.local_index import Index, Row
from a2a_gcs.objectstore.port import Mode, ObjectInfo, Source
from a2a_gcs.objectstore.rules import holds

HIDDEN = ".objectstore"
_STALE_SECONDS = 24 * 3600
_OPEN_TRIES = 20
_NAME_MAX = 255


@dataclass(frozen=True)
class Put:
    """A finished draft is to become the object of its key, if the mode's and the sources' conditions hold."""

    key: str
    draft: Draft
    mode: Mode
    metadata: dict[str, str]
    content_type: str
    sources: Sequence[Source] = field(default=())


@dataclass(frozen=True)
class Remove:
    """An object is to be deleted, with `version` only that version."""

    key: str
    version: int | None


Change = Put | Remove
Outcome = ObjectInfo | StoreError | None
"""Of a change: the new object, none after a removal, or why it was refused."""


@dataclass
class _Touched:
    """What a key comes to: the blobs that were its own or are to be, its row, and the body of that, if it is small."""

    blobs: list[str]
    row: Row | None = None
    body: bytes | None = None


def incoming(root: Path) -> Path:
    """Where a body below `root` may be written to."""
    return root / HIDDEN / "incoming" / uuid.uuid4().hex


class LocalTree:
    """One directory of objects. Calls block; any thread may make them.

    Args:
        root: The directory; it is made when it is missing.
        durable: Wait for the disk at every write (see `LocalStore`).
    """

    def __init__(self, root: Path, *, durable: bool) -> None:
        self.root = root
        self.durable = durable
        self._hidden = root / HIDDEN
        self._writer = threading.Lock()
        for folder in ("incoming", "blobs"):
            (self._hidden / folder).mkdir(parents=True, exist_ok=True)
        self._lock_fd = os.open(self._hidden / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with self._locked():
            self._index = Index(self._hidden / "index.sqlite", durable=durable)
            self._settle_leftover()
        self._sweep_incoming()

    def close(self) -> None:
        with self._writer:
            if self._lock_fd >= 0:
                self._index.close()
                os.close(self._lock_fd)
            self._lock_fd = -1

    # Reading

    def find(self, key: str) -> Row:
        """The current object. Raises NotFound."""
        row = self._index.find(key)
        if row is None:
            raise NotFound(key)
        return row

    def open(self, key: str, version: int | None) -> tuple[Row, bytes | BinaryIO]:
        """The current object with its body, whole or open: what is open stays readable after a later write."""
        for _ in range(_OPEN_TRIES):
            found = self._index.read(key)
            if found is None or version not in {None, found[0].info.version}:
                raise NotFound(key)
            row, body = found
            if body is not None:
                return row, body
            with contextlib.suppress(FileNotFoundError):  # replaced between the two steps
                return row, self._blob_path(row.blob).open("rb")
        raise Unavailable(key, FileNotFoundError(f"no body {row.blob}"))

    def page(self, prefix: str, start: str, after: str | None, limit: int, *, as_of: float) -> list[ObjectInfo]:
        """Up to `limit` objects in key order, as of a moment."""
        return self._index.page(prefix, start, after, limit, as_of)

    # Writing

    def apply(self, changes: Sequence[Change]) -> list[Outcome]:
        """Makes changes, each as if after the one before it, and each by itself: what one is refused stops no other.

        Durable together, with one wait for the disk but for those of large bodies.

        Raises:
            OSError, sqlite3.Error: Nobody knows which of them were made.
        """
        touched: dict[str, _Touched] = {}
        with self._locked():
            self._settle_leftover()
            try:
                with self._index.transaction():
                    outcomes = [self._outcome(change, touched) for change in changes]
                    if touched:
                        self._note(touched)
                        self._move_in(_files(changes, outcomes))
            except BaseException:
                self._settle_leftover()
                raise
            for key, after in touched.items():
                self._settle(key, after.blobs, after.row, after.body)
            if touched:
                os.ftruncate(self._lock_fd, 0)
        return outcomes

    def _outcome(self, change: Change, touched: dict[str, _Touched]) -> Outcome:
        try:
            if isinstance(change, Put):
                return self._put(change, touched)
            self._remove(change, touched)
        except StoreError as error:
            return error
        return None

    def _put(self, put: Put, touched: dict[str, _Touched]) -> ObjectInfo:
        for source in put.sources:
            if source.version is not None and source.version != self._current(source.key).info.version:
                raise Conflict(source.key)
        current = self._index.current(put.key)
        if not holds(put.mode, current.info.version if current else None):
            raise Conflict(put.key)
        body = put.draft.body
        info = ObjectInfo(
            key=put.key,
            version=self._index.next_version(),
            size=put.draft.size,
            crc32c=put.draft.crc32c,
            metadata=put.metadata,
            content_type=put.content_type,
            updated=time.time(),
        )
        row = Row(info, put.draft.path.name if body is None else "")
        self._index.put(row, body, current)
        self._touch(touched, put.key, current, row, body)
        return info

    def _remove(self, remove: Remove, touched: dict[str, _Touched]) -> None:
        current = self._current(remove.key)
        if remove.version not in {None, current.info.version}:
            raise Conflict(remove.key)
        self._index.remove(current)
        self._touch(touched, remove.key, current, None, None)

    def _touch(
        self, touched: dict[str, _Touched], key: str, before: Row | None, after: Row | None, body: bytes | None
    ) -> None:
        blobs = touched[key].blobs if key in touched else []
        blobs += [row.blob for row in (before, after) if row is not None and row.blob]
        touched[key] = _Touched(blobs, after, body)

    def _current(self, key: str) -> Row:
        row = self._index.current(key)
        if row is None:
            raise NotFound(key)
        return row

    # The lock, and the note of its holder

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._writer:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _note(self, touched: Mapping[str, _Touched]) -> None:
        """Writes down what may be left half done: the keys, and the blobs that were theirs or are to be."""
        note = [(key, after.blobs) for key, after in touched.items()]
        os.pwrite(self._lock_fd, json.dumps(note).encode(), 0)

    def _settle_leftover(self) -> None:
        size = os.fstat(self._lock_fd).st_size
        if not size:
            return
        with contextlib.suppress(ValueError):  # died while writing the note: nothing else was begun
            for key, blobs in json.loads(os.pread(self._lock_fd, size, 0)):
                row = self._index.current(key)
                body = self._index.body(row) if row is not None and not row.blob else None
                self._settle(key, blobs, row, body)
        os.ftruncate(self._lock_fd, 0)

    def _settle(self, key: str, blobs: Sequence[str], row: Row | None, body: bytes | None) -> None:
        """Whatever was done: keeps the blob that the row names, drops the others, and shows the body."""
        for blob in blobs:
            if row is None or row.blob != blob:
                with contextlib.suppress(OSError):
                    self._blob_path(blob).unlink()
        with contextlib.suppress(OSError):  # the view is for people; `a` and `a/b` cannot both be shown
            self._show(key, row, body)

    def _show(self, key: str, row: Row | None, body: bytes | None) -> None:
        if not _is_plain(key):
            return
        visible = self.root / key
        if self._leaves(key):
            return
        if row is None:
            visible.unlink(missing_ok=True)
            for folder in visible.parents:
                if folder == self.root:
                    break
                folder.rmdir()  # raises where it is not empty, which ends the walk
            return
        copy = self._copy(row, body)
        try:
            visible.parent.mkdir(parents=True, exist_ok=True)
            copy.replace(visible)
        except OSError:
            copy.unlink(missing_ok=True)
            raise

    def _leaves(self, key: str) -> bool:
        """Whether somebody has put a link into the view, on the way to a key: it may lead elsewhere."""
        folder = self.root
        for name in key.split("/")[:-1]:
            folder /= name
            if folder.is_symlink():
                return True
        return False

    def _copy(self, row: Row, body: bytes | None) -> Path:
        """The body once more: what is done to the visible file is not done to the object."""
        copy = incoming(self.root)
        if body is None:
            os.link(self._blob_path(row.blob), copy)
            return copy
        fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        try:
            os.write(fd, body)
        finally:
            os.close(fd)
        return copy

    # Parts

    def _blob_path(self, blob: str) -> Path:
        return self._hidden / "blobs" / blob[:2] / blob

    def _move_in(self, drafts: Sequence[Draft]) -> None:
        targets = [self._blob_path(draft.path.name) for draft in drafts]
        for draft, target in zip(drafts, targets, strict=True):
            target.parent.mkdir(exist_ok=True)
            draft.path.rename(target)
        if self.durable:
            for folder in {folder for target in targets for folder in (target.parent, target.parent.parent)}:
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)

    def _sweep_incoming(self) -> None:
        """Removes what killed writers left, by age: a living one may be at work in another process."""
        for path in (self._hidden / "incoming").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _STALE_SECONDS:
                    path.unlink()


def _files(changes: Sequence[Change], outcomes: Sequence[Outcome]) -> list[Draft]:
    """The drafts of those that were not refused, but for small ones, which have no file."""
    return [
        change.draft
        for change, outcome in zip(changes, outcomes, strict=True)
        if isinstance(change, Put) and isinstance(outcome, ObjectInfo) and change.draft.body is None
    ]


def _is_plain(key: str) -> bool:
    """Whether a key can be shown as a path inside the directory."""
    parts = key.split("/")
    return parts[0] != HIDDEN and all(
        part not in {"", ".", ".."} and "\0" not in part and len(part.encode()) <= _NAME_MAX for part in parts
    )
