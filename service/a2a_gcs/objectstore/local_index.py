"""The index of the local store: what objects there are, and the bodies of the small ones, in SQLite.

One connection writes, while its process holds the tree's lock; another one reads, and waits for nobody (WAL).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from a2a_gcs.objectstore.port import ObjectInfo

_COLUMNS = "key, version, blob, size, crc32c, content_type, metadata, updated"
_SELECT = f"SELECT {_COLUMNS} FROM objects WHERE key = ?"  # noqa: S608 - of constants
_READ = f"SELECT {_COLUMNS}, (SELECT body FROM bodies b WHERE b.version = o.version) FROM objects o WHERE key = ?"  # noqa: S608
_PAGE = f"SELECT {_COLUMNS} FROM objects WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"  # noqa: S608
_REPLACE = f"INSERT OR REPLACE INTO objects ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    key BLOB PRIMARY KEY, version INTEGER NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL,
    crc32c TEXT NOT NULL, content_type TEXT NOT NULL, metadata TEXT NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bodies (version INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (1, 0);
"""


@dataclass(frozen=True, slots=True)
class Row:
    """An object, and the name of the blob that holds its body; empty if the index itself does."""

    info: ObjectInfo
    blob: str


class Index:
    """The rows. Made while the tree's lock is held.

    Args:
        path: The database; made when it is missing.
        durable: A transaction that has ended is on the disk.
    """

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._writer = _connected(path)
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._writer.executescript(_SCHEMA)
        self._last = 0
        self._reading = threading.Lock()
        self._reader = _connected(path)

    def close(self) -> None:
        with self._reading:
            self._reader.close()
        self._writer.close()

    # What is committed; any thread may ask

    def find(self, key: str) -> Row | None:
        with self._reading:
            columns = self._reader.execute(_SELECT, (key.encode(),)).fetchone()
        return _row(columns) if columns else None

    def read(self, key: str) -> tuple[Row, bytes | None] | None:
        """An object with its body, if that is in the index; both of one version."""
        with self._reading:
            columns = self._reader.execute(_READ, (key.encode(),)).fetchone()
        return (_row(columns[:-1]), columns[-1]) if columns else None

    def page(self, prefix: str, start: str, after: str | None, limit: int, as_of: float) -> list[ObjectInfo]:
        """Up to `limit` objects in key order, as of a moment; memcmp order of blobs is UTF-8 byte order."""
        following = after.encode() + b"\0" if after is not None else b""  # one bound: of two, SQLite seeks but one
        lower = max(prefix.encode(), start.encode(), following)
        raw = prefix.encode()
        upper = raw[:-1] + bytes([raw[-1] + 1]) if raw else b"\xff"  # no UTF-8 byte is 0xff
        with self._reading:
            rows = self._reader.execute(_PAGE, (lower, upper, limit)).fetchall()
        return [_row(columns, as_of).info for columns in rows]

    # For the holder of the tree's lock

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes in the body are committed at its end, or none."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            (before,) = self._writer.execute("SELECT version FROM counter").fetchone()
            self._last = int(before)
            yield
            if self._last != before:
                self._writer.execute("UPDATE counter SET version = ?", (self._last,))
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def current(self, key: str) -> Row | None:
        """The object as the transaction sees it."""
        columns = self._writer.execute(_SELECT, (key.encode(),)).fetchone()
        return _row(columns) if columns else None

    def body(self, row: Row) -> bytes:
        """The body that the index holds."""
        (body,) = self._writer.execute("SELECT body FROM bodies WHERE version = ?", (row.info.version,)).fetchone()
        return bytes(body)

    def next_version(self) -> int:
        """Microseconds like GCS's generations, and always above the last one: also after the directory was lost."""
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last

    def put(self, row: Row, body: bytes | None, replaced: Row | None) -> None:
        if replaced is not None:
            self._forget(replaced)
        info, metadata = row.info, json.dumps(dict(row.info.metadata))
        values = (info.key.encode(), info.version, row.blob, info.size, info.crc32c, info.content_type, metadata)
        self._writer.execute(_REPLACE, (*values, info.updated))
        if body is not None:
            self._writer.execute("INSERT INTO bodies VALUES (?, ?)", (info.version, body))

    def remove(self, row: Row) -> None:
        self._writer.execute("DELETE FROM objects WHERE key = ?", (row.info.key.encode(),))
        self._forget(row)

    def _forget(self, row: Row) -> None:
        if not row.blob:
            self._writer.execute("DELETE FROM bodies WHERE version = ?", (row.info.version,))


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)


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
