"""Objects in a directory, as blocking calls: the part of the local store that touches the disk.

    <dir>/<key>                      hard link to the current body, for ls, cat and tar; never read back
    <dir>/.objectstore/index.sqlite  one row per object: version, metadata, and the name of its blob
    <dir>/.objectstore/blobs/        bodies; a blob is never changed once a row names it
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
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from a2a_gcs.errors import Conflict, NotFound, Unavailable
from a2a_gcs.objectstore.copying import copy_bytes
from a2a_gcs.objectstore.port import Mode, ObjectInfo, Source
from a2a_gcs.objectstore.rules import Crc32c, holds

HIDDEN = ".objectstore"
_STALE_SECONDS = 24 * 3600
_OPEN_TRIES = 20
_NAME_MAX = 255
_COLUMNS = "key, version, blob, size, crc32c, content_type, metadata, updated"
_SELECT = f"SELECT {_COLUMNS} FROM objects WHERE key = ?"  # noqa: S608 - of constants
_PAGE = f"SELECT {_COLUMNS} FROM objects WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"  # noqa: S608
_REPLACE = f"INSERT OR REPLACE INTO objects ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    key BLOB PRIMARY KEY, version INTEGER NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL,
    crc32c TEXT NOT NULL, content_type TEXT NOT NULL, metadata TEXT NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (1, 0);
"""


@dataclass(frozen=True, slots=True)
class Row:
    """An object and the name of the blob that holds its body."""

    info: ObjectInfo
    blob: str


class Draft:
    """A body on its way in: nobody sees it before `LocalTree.commit` names it in a row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._checksum = Crc32c()
        self._file: BinaryIO = path.open("xb")

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._checksum.update(data)
        self.size += len(data)

    def append(self, body: BinaryIO, info: ObjectInfo) -> None:
        """Copies another object's body. Its checksum is taken over: who reads damaged bytes is told all the same.

        Raises:
            OSError: It is shorter than it was.
        """
        self._file.flush()
        copy_bytes(body.fileno(), self._file.fileno(), info.size)
        self._checksum.append(info.crc32c, info.size)
        self.size += info.size

    def finish(self, *, durable: bool) -> None:
        self._file.flush()
        if durable:
            os.fsync(self._file.fileno())
        self._file.close()
        self.path.chmod(0o444)  # the visible link shares the inode: an editor must not write through it

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    @property
    def crc32c(self) -> str:
        return self._checksum.encoded()


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
        self._using_db = threading.Lock()
        for folder in ("incoming", "blobs"):
            (self._hidden / folder).mkdir(parents=True, exist_ok=True)
        self._lock_fd = os.open(self._hidden / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._db = sqlite3.connect(
            self._hidden / "index.sqlite", timeout=30, isolation_level=None, check_same_thread=False
        )
        with self._exclusive():  # also settles what a writer that died left behind
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._db.executescript(_SCHEMA)
        self._sweep_incoming()

    def close(self) -> None:
        with self._writer, self._using_db:
            self._db.close()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
            self._lock_fd = -1

    # Reading

    def find(self, key: str) -> Row:
        """The current object. Raises NotFound."""
        row = self._lookup(key)
        if row is None:
            raise NotFound(key)
        return row

    def open(self, key: str, version: int | None) -> tuple[Row, BinaryIO]:
        """The current object with its body open: what is open stays readable after a later write."""
        for _ in range(_OPEN_TRIES):
            row = self.find(key)
            if version not in {None, row.info.version}:
                raise NotFound(key)
            with contextlib.suppress(FileNotFoundError):  # replaced between the two steps
                return row, self._blob_path(row.blob).open("rb")
        raise Unavailable(key, FileNotFoundError(f"no body {row.blob}"))

    def page(self, prefix: str, start: str, after: str | None, limit: int, *, as_of: float) -> list[ObjectInfo]:
        """Up to `limit` objects in key order, as of a moment; memcmp order of blobs is UTF-8 byte order."""
        following = after.encode() + b"\0" if after is not None else b""  # one bound: of two, SQLite seeks but one
        lower = max(prefix.encode(), start.encode(), following)
        raw = prefix.encode()
        upper = raw[:-1] + bytes([raw[-1] + 1]) if raw else b"\xff"  # no UTF-8 byte is 0xff
        with self._using_db:
            rows = self._db.execute(_PAGE, (lower, upper, limit)).fetchall()
        return [_row(columns, as_of).info for columns in rows]

    # Writing

    def draft(self) -> Draft:
        """A new body to write to."""
        return Draft(self._hidden / "incoming" / uuid.uuid4().hex)

    def commit(
        self,
        key: str,
        draft: Draft,
        mode: Mode,
        *,
        sources: Sequence[Source] = (),
        metadata: dict[str, str],
        content_type: str,
    ) -> ObjectInfo:
        """Makes a finished draft the object of its key, if the mode's and the sources' conditions hold."""
        with self._exclusive():
            for source in sources:
                if source.version is not None and source.version != self.find(source.key).info.version:
                    raise Conflict(source.key)
            current = self._lookup(key)
            if not holds(mode, current.info.version if current else None):
                raise Conflict(key)
            info = ObjectInfo(
                key=key,
                version=self._next_version(),
                size=draft.size,
                crc32c=draft.crc32c,
                metadata=metadata,
                content_type=content_type,
                updated=time.time(),
            )
            blob = draft.path.name
            with self._noted(key, [blob, *([current.blob] if current else [])]):
                self._move_in(draft.path, self._blob_path(blob))
                self._replace_row(Row(info, blob))
            return info

    def remove(self, key: str, version: int | None) -> None:
        """Deletes an object. Raises NotFound and Conflict."""
        with self._exclusive():
            current = self.find(key)
            if version not in {None, current.info.version}:
                raise Conflict(key)
            with self._noted(key, [current.blob]), self._using_db:
                self._db.execute("DELETE FROM objects WHERE key = ?", (key.encode(),))

    # The lock, and the note of its holder

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._writer:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            try:
                self._settle_leftover()
                yield
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def _noted(self, key: str, blobs: list[str]) -> Iterator[None]:
        """Writes down what the body may leave half done, and settles it afterwards, done or not."""
        os.pwrite(self._lock_fd, json.dumps([key, blobs]).encode(), 0)
        try:
            yield
        finally:
            self._settle(key, blobs)
            os.ftruncate(self._lock_fd, 0)

    def _settle_leftover(self) -> None:
        note = os.pread(self._lock_fd, 64 * 1024, 0)
        if not note:
            return
        with contextlib.suppress(ValueError):  # died while writing the note: nothing else was begun
            key, blobs = json.loads(note)
            self._settle(key, blobs)
        os.ftruncate(self._lock_fd, 0)

    def _settle(self, key: str, blobs: list[str]) -> None:
        """Whatever was done: keeps the blob that the row names, drops the others, points the link at it."""
        row = self._lookup(key)
        for blob in blobs:
            if row is None or row.blob != blob:
                with contextlib.suppress(OSError):
                    self._blob_path(blob).unlink()
        with contextlib.suppress(OSError):  # the view is for people; `a` and `a/b` cannot both be shown
            self._show(key, row)

    def _show(self, key: str, row: Row | None) -> None:
        if not _is_plain(key):
            return
        visible = self.root / key
        if not visible.parent.resolve().is_relative_to(self.root.resolve()):
            return  # somebody put a link into the view that leads elsewhere
        if row is None:
            visible.unlink(missing_ok=True)
            for folder in visible.parents:
                if folder == self.root:
                    break
                folder.rmdir()  # raises where it is not empty, which ends the walk
            return
        visible.parent.mkdir(parents=True, exist_ok=True)
        link = self._hidden / "incoming" / uuid.uuid4().hex
        os.link(self._blob_path(row.blob), link)
        try:
            link.replace(visible)
        finally:
            link.unlink(missing_ok=True)

    # Parts

    def _lookup(self, key: str) -> Row | None:
        with self._using_db:
            columns = self._db.execute(_SELECT, (key.encode(),)).fetchone()
        return _row(columns) if columns else None

    def _replace_row(self, row: Row) -> None:
        info = row.info
        metadata = json.dumps(dict(info.metadata))
        values = (info.key.encode(), info.version, row.blob, info.size, info.crc32c, info.content_type, metadata)
        with self._using_db:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("UPDATE counter SET version = ?", (info.version,))
                self._db.execute(_REPLACE, (*values, info.updated))
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _next_version(self) -> int:
        """Microseconds like GCS's generations, and always above the last one: also after the directory was lost."""
        with self._using_db:
            (last,) = self._db.execute("SELECT version FROM counter").fetchone()
        return max(int(last) + 1, time.time_ns() // 1000)

    def _blob_path(self, blob: str) -> Path:
        return self._hidden / "blobs" / blob[:2] / blob

    def _move_in(self, source: Path, target: Path) -> None:
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
        if self.durable:
            for folder in (target.parent, target.parent.parent):
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


def _row(columns: tuple[bytes, int, str, int, str, str, str, float], as_of: float = 0.0) -> Row:
    key, version, blob, size, crc32c, content_type, metadata, updated = columns
    info = ObjectInfo(
        key=key.decode(),
        version=version,
        size=size,
        crc32c=crc32c,
        metadata=json.loads(metadata),
        content_type=content_type,
        updated=updated,
        as_of=as_of,
    )
    return Row(info, blob)


def _is_plain(key: str) -> bool:
    """Whether a key can be shown as a path inside the directory."""
    parts = key.split("/")
    return parts[0] != HIDDEN and all(
        part not in {"", ".", ".."} and "\0" not in part and len(part.encode()) <= _NAME_MAX for part in parts
    )
