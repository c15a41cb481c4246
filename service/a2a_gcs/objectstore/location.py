"""From a store URI to a store: the one place where the stack of decorators is put together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from a2a_gcs.errors import ConfigError
from a2a_gcs.objectstore.instrument import InstrumentedStore, StoreStats
from a2a_gcs.objectstore.local import LocalStore
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.objectstore.retry import RetryingStore

ACCEPTED = '"memory", "file:<dir>", "gs://bucket[/prefix]", or an ObjectStore object'
_GS = re.compile(r"gs://(?P<bucket>[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)


def open_store(
    where: str | ObjectStore | None,
    *,
    stats: StoreStats | None = None,
    budget: float = 20.0,
    pattern: Callable[[str], str] | None = None,
) -> ObjectStore:
    """Opens the store that a setting names. Connects only with the first call.

    Args:
        where: None or "memory"; "file:<dir>"; "gs://bucket[/prefix]"; or an object, which is used as it is.
        stats: Counts the tries against a directory or bucket, as the metrics do.
        budget: Seconds for the retries of one call (`RetryingStore`).
        pattern: A key without its ids, for spans.

    Raises:
        ConfigError: Anything else; the message names the accepted forms.
    """
    if isinstance(where, ObjectStore):
        return where
    if where is None or where == "memory":
        return MemoryStore()
    if not isinstance(where, str):
        raise ConfigError(f"a store is {ACCEPTED}, not {where!r}")
    if (directory := _directory(where)) is not None:
        return _stack(LocalStore(directory), stats, budget, pattern)
    if match := _GS.fullmatch(where):
        from a2a_gcs.objectstore.gcs import GCSStore  # noqa: PLC0415 - half a second that only a bucket pays

        store = _stack(GCSStore(match["bucket"]), stats, budget, pattern)
        prefix = match["prefix"]
        try:
            return PrefixStore(store, prefix) if prefix else store
        except ValueError as error:
            raise ConfigError(f"the store {where!r} has no usable prefix: {error}; a store is {ACCEPTED}") from error
    raise ConfigError(f"a store is {ACCEPTED}, not {where!r}")


def open_existing(where: str) -> ObjectStore:
    """Opens a store for what only looks at it or takes from it, and so must not make one where there is none.

    Raises:
        ConfigError: As `open_store`; it is one in memory, which is its host's alone, or a directory that is not there,
            or in which nobody has kept anything.
    """
    if where == "memory":
        raise ConfigError("a store in memory is its host's alone; name another one with --store")
    directory = _directory(where)
    if directory is not None and not LocalStore.is_at(directory):
        what = "has nothing of ours in it" if directory.is_dir() else "is no directory yet"
        raise ConfigError(f"the store {where!r} {what}: no host has kept anything there")
    return open_store(where)


def open_unchanged(where: str) -> ObjectStore:
    """Opens a store for what only asks what it would write: a directory that is no store yet is an empty one, and
    stays as it is.

    Raises:
        ConfigError: As `open_store`.
    """
    directory = _directory(where)
    return open_store(where) if directory is None or LocalStore.is_at(directory) else MemoryStore()


def _directory(where: str) -> Path | None:
    """The directory that a store is in; None for what is no `file:<dir>`."""
    name = where.removeprefix("file:")
    return None if name in {"", where} else Path(name).expanduser()


def bucket_of(where: str) -> tuple[str, str]:
    """Bucket and prefix of a `gs://` store. Raises ConfigError for any other."""
    if match := _GS.fullmatch(where):
        return match["bucket"], (match["prefix"] or "").strip("/")
    raise ConfigError(f"the store {where!r} is no bucket; name one as gs://bucket[/prefix]")


def _stack(
    adapter: ObjectStore, stats: StoreStats | None, budget: float, pattern: Callable[[str], str] | None
) -> ObjectStore:
    return RetryingStore(InstrumentedStore(adapter, stats, pattern=pattern), budget=budget)
