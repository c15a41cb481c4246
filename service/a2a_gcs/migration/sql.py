"""a2a-sdk's SQL stores: the table that DatabaseTaskStore and VersionedDatabaseTaskStore write, of any release."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from a2a.types.a2a_pb2 import Task
from sqlalchemy import URL, Engine, MetaData, Row, Table, create_engine, make_url, select
from sqlalchemy.exc import ArgumentError, NoSuchTableError, SQLAlchemyError

from a2a_gcs.errors import A2AGcsError, ConfigError, CorruptRecord, InvalidId
from a2a_gcs.layout import encode_segment
from a2a_gcs.migration.old_json import as_task, names_context, time_of
from a2a_gcs.migration.source import Entry, Problem, Source

_NEEDED = {"id", "status"}
_BATCH = 100
_MEMBERS = {
    "context_id": "contextId",
    "status": "status",
    "artifacts": "artifacts",
    "history": "history",
    "metadata": "metadata",
}


class DatabaseFailed(A2AGcsError):
    """The database could not be read; the message is the driver's."""


class SqlTasks(Source):
    """The tasks of one table.

    The rows are read, never written: SQLite is opened read-only, and on PostgreSQL each pass is one transaction that
    is rolled back.

    Args:
        where: `sqlite:///<path>` or `postgresql://...`; the driver that it may name is not used.
        table: Name of the table.

    Raises:
        ConfigError: It is no such URL, there is no such file or table, or the table is another one.
    """

    def __init__(self, where: str, table: str = "tasks") -> None:
        try:
            url = make_url(where)
        except ArgumentError as e:
            raise ConfigError(
                "--from is no database URL; it is sqlite:///<path> or postgresql://user@host/database"
            ) from e
        self.name = url.render_as_string(hide_password=True)
        self._engine = _engine(url)
        try:
            self._table = Table(table, MetaData(), autoload_with=self._engine)
        except NoSuchTableError as e:
            raise ConfigError(f"there is no table {table!r} in {self.name}; name it with --table") from e
        except SQLAlchemyError as e:
            raise DatabaseFailed(f"{self.name}: {_first_line(e)}") from e
        if _NEEDED - set(self._table.columns.keys()):
            raise ConfigError(f"the table {table!r} in {self.name} is not one of a2a-sdk's task stores")

    async def entries(self) -> AsyncIterator[Entry | Problem]:
        rows = self._rows()
        while batch := await self._run(lambda: list(itertools.islice(rows, _BATCH))):
            for row in batch:
                yield _entry(self._key(row), row)

    async def task(self, entry: Entry) -> tuple[Task, Mapping[str, Any]]:
        def one() -> Row[Any] | None:
            with self._engine.connect() as connection:
                return connection.execute(select(self._table).where(self._table.c.id == entry.task_id)).one_or_none()

        row = await self._run(one)
        if row is None:
            raise CorruptRecord(f"{self._table.name} {entry.task_id}", "its row is gone")
        return as_task(self._key(row), _raw(row), entry.task_id, entry.millis)

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.dispose)

    def _rows(self) -> Iterator[Row[Any]]:
        with self._engine.connect().execution_options(yield_per=_BATCH) as connection:
            yield from connection.execute(select(self._table))

    async def _run(self, act: Any) -> Any:
        try:
            return await asyncio.to_thread(act)
        except SQLAlchemyError as e:
            raise DatabaseFailed(f"{self.name}: {_first_line(e)}") from e

    def _key(self, row: Row[Any]) -> str:
        return f"row {row.id!r} of {self._table.name}"


def _engine(url: URL) -> Engine:
    match url.get_backend_name():
        case "sqlite":
            path = Path(url.database or "")
            if not path.is_file():
                raise ConfigError(f"there is no SQLite database {str(path)!r}")
            where = f"file:{quote(str(path.absolute()))}?mode=ro"
            # Batches are read in whichever thread is free, one at a time.
            return create_engine(
                "sqlite://",
                creator=lambda: sqlite3.connect(where, uri=True, check_same_thread=False),
                json_deserializer=_as_text,
            )
        case "postgresql":
            url = url.set(drivername="postgresql+psycopg")
            return create_engine(url, isolation_level="REPEATABLE READ", json_deserializer=_as_text)
    raise ConfigError(f"--from takes SQLite and PostgreSQL, not {url.get_backend_name()}")


def _as_text(value: str | bytes) -> str:
    """Leaves JSON as it is stored, so that one row with none does not end the pass; psycopg has bytes of it."""
    return value.decode() if isinstance(value, bytes) else value


def _entry(key: str, row: Row[Any]) -> Entry | Problem:
    try:
        raw = _raw(row)
        told = time_of(raw)
        millis = _updated(row) if told is None else told
        task, _ = as_task(key, raw, str(row.id), millis)
        for value in (task.id, task.context_id):
            encode_segment(value)
    except (CorruptRecord, InvalidId, ValueError) as e:
        return Problem(key, str(e.cause if isinstance(e, CorruptRecord) else e))
    return Entry(
        task_id=task.id,
        context_id=task.context_id,
        owner=row._mapping.get("owner") or "",  # noqa: SLF001 - its public name for this
        state=task.status.state,
        millis=millis,
        minted=not names_context(raw),
    )


def _raw(row: Row[Any]) -> dict[str, Any]:
    """The row as the JSON of a Task; earlier releases have fewer columns."""
    values = {member: row._mapping.get(column) for column, member in _MEMBERS.items()}  # noqa: SLF001
    plain = {name: json.loads(v) if isinstance(v, str) and name != "contextId" else v for name, v in values.items()}
    return {"id": str(row.id)} | {name: value for name, value in plain.items() if value is not None}


def _updated(row: Row[Any]) -> int:
    """Column last_updated, which the SDK writes in UTC without saying so."""
    moment = row._mapping.get("last_updated")  # noqa: SLF001
    return int(moment.replace(tzinfo=UTC).timestamp() * 1000) if isinstance(moment, datetime) else 0


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
