"""From what `--from` names to a source."""

from __future__ import annotations

from pathlib import Path

from a2a_gcs.errors import ConfigError
from a2a_gcs.migration.files import BucketFiles, DirectoryFiles
from a2a_gcs.migration.old_layout import OldLayout
from a2a_gcs.migration.source import Source
from a2a_gcs.objectstore import open_store

ACCEPTED = "gs://bucket[/prefix], file:<dir>, sqlite:///<path> or postgresql://user@host/database"


def open_source(where: str, *, table: str = "tasks") -> Source:
    """Opens a source.

    Args:
        where: The old layout in a bucket or directory, or a database of a2a-sdk's SQL stores.
        table: The table, in a database.

    Raises:
        ConfigError: Anything else, or there is nothing of that name; the message tells the accepted forms.
        A2AGcsError: The database cannot be read.
    """
    if where.startswith("gs://"):
        return OldLayout(BucketFiles(open_store(where)), where)
    if where.startswith("file:") and where != "file:":
        directory = Path(where.removeprefix("file:")).expanduser()
        if not directory.is_dir():
            raise ConfigError(f"--from: there is no directory {str(directory)!r}")
        return OldLayout(DirectoryFiles(directory), where)
    if where.startswith(("sqlite", "postgres")):
        try:
            from a2a_gcs.migration.sql import SqlTasks  # noqa: PLC0415 - an extra
        except ImportError as e:
            raise ConfigError("reading a database needs an extra: pip install 'a2a-gcs[sql]'") from e
        return SqlTasks(where.replace("postgres://", "postgresql://", 1), table)
    raise ConfigError(f"--from takes {ACCEPTED}, not {where!r}")
