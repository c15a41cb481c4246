"""Copies one workspace.tar.gz: fetched to a temporary file, read through, written if absent, compared."""

from __future__ import annotations

import asyncio
import contextlib
import tarfile
import tempfile
from collections.abc import AsyncIterator
from typing import IO

from isal import igzip

from a2a_gcs.errors import Conflict, NotFound, Throttled, Unavailable
from a2a_gcs.migration.source import Entry, Source
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import IF_ABSENT, ObjectInfo, ObjectStore
from a2a_gcs.objectstore.rules import Crc32c
from a2a_gcs.workspaces.archive import UNDECODABLE

CONTENT_TYPE = "application/gzip"
_WHOLE = 8 << 20
_CHUNK = 1 << 20
_TRIES = 4
_UNREADABLE: tuple[type[Exception], ...] = (tarfile.TarError, OSError, *UNDECODABLE)


class ArchiveUnreadable(Exception):
    """It is no tar.gz, and is not copied; the message says why."""


class ArchiveTaken(Exception):
    """There is another object in its place; the message says so."""


async def copied(source: Source, entry: Entry, store: ObjectStore, key: str, pause: float = 1.0) -> ObjectInfo:
    """Copies the workspace of an entry to a key where there is nothing yet.

    Raises:
        ArchiveUnreadable: It is no archive.
        ArchiveTaken: There is another object at `key`.
        A2AGcsError: Source or store failed; nothing was published, or the whole archive was.
    """
    with tempfile.TemporaryFile() as file:
        size, checksum = await _fetched(source, entry, file)
        if (problem := await asyncio.to_thread(_unreadable, file)) is not None:
            raise ArchiveUnreadable(problem)
        written = await _written(file, size, store, key, pause)
    if (written.size, written.crc32c) != (size, checksum):
        raise ArchiveTaken(f"the target has another object at {key}; it is not overwritten")
    return written


async def _fetched(source: Source, entry: Entry, file: IO[bytes]) -> tuple[int, str]:
    digest, size = Crc32c(), 0
    async with closing(source.archive(entry)) as chunks:
        async for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            await asyncio.to_thread(file.write, chunk)
    return size, digest.encoded()


def _unreadable(file: IO[bytes]) -> str | None:
    """What is wrong with an archive; None if all of it can be read as a tar.gz."""
    file.seek(0)
    try:
        with igzip.IGzipFile(fileobj=file, mode="rb") as plain:  # type: ignore[no-untyped-call]
            with tarfile.open(fileobj=plain, mode="r|") as archive:
                for _ in archive:
                    pass
            while plain.read(_CHUNK):  # up to the checksum at the end
                pass
    except _UNREADABLE as e:
        return f"it is no tar.gz that can be read to its end: {e}"
    return None


async def _written(file: IO[bytes], size: int, store: ObjectStore, key: str, pause: float) -> ObjectInfo:
    for attempt in range(_TRIES):
        file.seek(0)
        try:
            if size <= _WHOLE:
                return await store.put(key, file.read(), IF_ABSENT, content_type=CONTENT_TYPE)
            return await store.put_stream(key, _chunks(file), IF_ABSENT, content_type=CONTENT_TYPE)
        except (Conflict, Throttled, Unavailable) as e:
            # A stream is retried by nobody else, so an answer may have been lost: what is there is the judge.
            if (there := await _there(store, key)) is not None:
                return there
            if attempt == _TRIES - 1 or isinstance(e, Conflict):
                raise
        await asyncio.sleep(pause * 2**attempt)
    raise AssertionError


async def _there(store: ObjectStore, key: str) -> ObjectInfo | None:
    with contextlib.suppress(NotFound):
        return await store.head(key)
    return None


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, _CHUNK):
        yield chunk
