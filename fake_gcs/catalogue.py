"""What exists: buckets, objects and their versions, in one SQLite file.

The catalogue decides; bodies lie in fake-gcs-server under names that are never used twice (see
blobs). An object is stored once its row is committed, so that neither kill -9 nor a failed upload
can damage what was acknowledged. Calls are short, synchronous, and made from the event loop alone:
what happens between two awaits is atomic.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fake_gcs.rules.preconditions import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Json = dict[str, Any]

_RESERVE_MICROSECONDS = 5_000_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS numbers (last INTEGER NOT NULL);
INSERT INTO numbers SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM numbers);
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, resource TEXT NOT NULL, policy TEXT);
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, live INTEGER NOT NULL,
    blob TEXT NOT NULL, resource TEXT NOT NULL, PRIMARY KEY (bucket, name, generation)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS garbage (blob TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Stored:
    """One version of an object: its resource, and the blob that holds its body."""

    resource: Json
    blob: str

    @property
    def version(self) -> Version:
        return Version(int(self.resource["generation"]), int(self.resource["metageneration"]))


class Catalogue:
    _last: int

    def __init__(self, path: Path) -> None:
        """Opens, or creates, the catalogue in a file. A killed process loses nothing; a power cut may."""
        self._db = sqlite3.connect(path, isolation_level=None, cached_statements=64)
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")  # nobody else reads it; saves a lock for every statement
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")  # survives kill -9: the pages are with the kernel
        self._db.executescript(_SCHEMA)
        (self._last,) = self._db.execute("SELECT last FROM numbers").fetchone()
        self._reserved = self._last

    def close(self) -> None:
        self._db.close()

    def next_number(self) -> int:
        """Answers a number that is larger than every one before, also across restarts: microseconds by the clock.

        Numbers are reserved ahead in the file, so that most calls do not write.
        """
        self._last = max(self._last + 1, time.time_ns() // 1000)
        if self._last > self._reserved:
            self._reserved = self._last + _RESERVE_MICROSECONDS
            self._db.execute("UPDATE numbers SET last = ?", (self._reserved,))
        return self._last

    # Buckets

    def bucket(self, name: str) -> Json | None:
        row = self._db.execute("SELECT resource FROM buckets WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def has_bucket(self, name: str) -> bool:
        return self._db.execute("SELECT 1 FROM buckets WHERE name = ?", (name,)).fetchone() is not None

    def buckets(self, prefix: str = "") -> list[Json]:
        rows = self._db.execute("SELECT resource FROM buckets ORDER BY name").fetchall()
        return [bucket for (row,) in rows if (bucket := json.loads(row))["name"].startswith(prefix)]

    def put_bucket(self, resource: Json) -> None:
        self._db.execute(
            "INSERT INTO buckets (name, resource) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET resource = excluded.resource",
            (resource["name"], json.dumps(resource)),
        )

    def delete_bucket(self, name: str) -> None:
        self._db.execute("DELETE FROM buckets WHERE name = ?", (name,))

    def is_empty(self, bucket: str) -> bool:
        return self._db.execute("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", (bucket,)).fetchone() is None

    def policy(self, bucket: str) -> Json | None:
        """Answers the bucket's IAM policy, None where none was set."""
        row = self._db.execute("SELECT policy FROM buckets WHERE name = ?", (bucket,)).fetchone()
        return json.loads(row[0]) if row and row[0] else None

    def put_policy(self, bucket: str, policy: Json) -> None:
        self._db.execute("UPDATE buckets SET policy = ? WHERE name = ?", (json.dumps(policy), bucket))

    # Objects

    def live(self, bucket: str, name: str) -> Stored | None:
        return self._one("bucket = ? AND name = ? AND live = 1", (bucket, name))

    def generation(self, bucket: str, name: str, generation: int) -> Stored | None:
        """Answers one version, live or not."""
        return self._one("bucket = ? AND name = ? AND generation = ?", (bucket, name, generation))

    def scan(self, bucket: str, start: str, *, versions: bool = False) -> Iterator[tuple[str, Stored]]:
        """Yields (name, version) from the name start on, in order of the names' UTF-8 bytes."""
        rows = self._db.execute(
            "SELECT name, resource, blob FROM objects WHERE bucket = ? AND name >= ? AND (live = 1 OR ?)"
            " ORDER BY name, generation",
            (bucket, start, versions),
        )
        for name, resource, blob in rows:
            yield name, Stored(json.loads(resource), blob)

    def put_object(self, new: Stored, *, replaces: Stored | None = None, noncurrent: bool = False) -> None:
        """Makes a version the live one. The replaced one is kept if noncurrent, else its body becomes garbage."""
        with self._transaction():
            self._retire(replaces, noncurrent=noncurrent, keep=new.blob)
            self._db.execute(
                "INSERT INTO objects VALUES (?, ?, ?, 1, ?, ?)",
                (
                    new.resource["bucket"],
                    new.resource["name"],
                    int(new.resource["generation"]),
                    new.blob,
                    json.dumps(new.resource),
                ),
            )
            self._db.execute("DELETE FROM garbage WHERE blob = ?", (new.blob,))

    def put_resource(self, resource: Json) -> None:
        """Replaces the resource of a version that exists; its body stays."""
        self._db.execute(
            "UPDATE objects SET resource = ? WHERE bucket = ? AND name = ? AND generation = ?",
            (json.dumps(resource), resource["bucket"], resource["name"], int(resource["generation"])),
        )

    def delete_object(self, old: Stored, *, noncurrent: bool = False, keep_blob: bool = False) -> None:
        """Ends a version: kept if noncurrent, else gone, and its body is garbage unless it lives on elsewhere."""
        with self._transaction():
            self._retire(old, noncurrent=noncurrent, keep=old.blob if keep_blob else "")

    # Bodies that belong to no object: uploads under way, and what is to be removed

    def expect_blob(self, blob: str) -> None:
        """Notes a body before it is uploaded, so that it is garbage unless an object takes it."""
        self._db.execute("INSERT OR IGNORE INTO garbage VALUES (?)", (blob,))

    def garbage(self) -> list[str]:
        return [blob for (blob,) in self._db.execute("SELECT blob FROM garbage")]

    def is_garbage(self, blob: str) -> bool:
        return self._db.execute("SELECT 1 FROM garbage WHERE blob = ?", (blob,)).fetchone() is not None

    def forget_garbage(self, blobs: Iterable[str]) -> None:
        self._db.executemany("DELETE FROM garbage WHERE blob = ?", [(blob,) for blob in blobs])

    def _one(self, where: str, values: tuple[str | int, ...]) -> Stored | None:
        row = self._db.execute(f"SELECT resource, blob FROM objects WHERE {where}", values).fetchone()  # noqa: S608
        return None if row is None else Stored(json.loads(row[0]), row[1])

    def _retire(self, old: Stored | None, *, noncurrent: bool, keep: str) -> None:
        if old is None:
            return
        key = (old.resource["bucket"], old.resource["name"], old.version.generation)
        where = "WHERE bucket = ? AND name = ? AND generation = ?"
        if noncurrent:
            self._db.execute(f"UPDATE objects SET live = 0, resource = ? {where}", (json.dumps(old.resource), *key))  # noqa: S608
            return
        self._db.execute(f"DELETE FROM objects {where}", key)  # noqa: S608
        if old.blob != keep:
            self.expect_blob(old.blob)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
