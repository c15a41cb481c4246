"""Where the old layout lies: in a bucket, or in a directory that it was copied to."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from a2a_gcs.errors import NotFound, StoreError, Unavailable
from a2a_gcs.objectstore.port import ObjectStore

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class File:
    """A file or object.

    Attributes:
        key: Its name with `/` between the segments.
        size: Bytes.
        millis: When it was written, in Unix milliseconds.
        crc32c: Its checksum, where it is known without reading.
    """

    key: str
    size: int
    millis: int
    crc32c: str = ""


class Files(ABC):
    """Files to read, by key. Errors are StoreErrors."""

    @abstractmethod
    def below(self, prefix: str) -> AsyncIterator[File]:
        """Yields all files whose keys begin with `prefix`, a key's neighbours together."""

    @abstractmethod
    async def read(self, key: str) -> bytes: ...

    @abstractmethod
    def stream(self, key: str) -> AsyncIterator[bytes]: ...

    @abstractmethod
    async def close(self) -> None: ...


class BucketFiles(Files):
    """The objects of a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def below(self, prefix: str) -> AsyncIterator[File]:
        page: str | None = None
        while True:
            listing = await self._store.list(prefix, page=page)
            for info in listing.objects:
                yield File(info.key, info.size, int(info.updated * 1000), info.crc32c)
            if (page := listing.next) is None:
                return

    async def read(self, key: str) -> bytes:
        return (await self._store.get(key)).body

    def stream(self, key: str) -> AsyncIterator[bytes]:
        return self._store.stream(key)

    async def close(self) -> None:
        await self._store.close()


class DirectoryFiles(Files):
    """The files of a directory, such as `gcloud storage cp -r` leaves; links are not followed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def below(self, prefix: str) -> AsyncIterator[File]:
        for file in await asyncio.to_thread(lambda: list(self._walk(self._directory / prefix))):
            yield file

    async def read(self, key: str) -> bytes:
        try:
            return await asyncio.to_thread((self._directory / key).read_bytes)
        except OSError as e:
            raise self._error(key, e) from e

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        try:
            with (self._directory / key).open("rb") as file:
                while chunk := await asyncio.to_thread(file.read, _CHUNK):
                    yield chunk
        except OSError as e:
            raise self._error(key, e) from e

    async def close(self) -> None:
        pass

    def _walk(self, start: Path) -> Iterator[File]:
        for directory, names, files in os.walk(start):
            names.sort()
            for name in sorted(files):
                path = Path(directory) / name
                stat = path.lstat()
                key = path.relative_to(self._directory).as_posix()
                yield File(key, stat.st_size, stat.st_mtime_ns // 1_000_000)

    @staticmethod
    def _error(key: str, cause: OSError) -> StoreError:
        return NotFound(key, cause) if isinstance(cause, FileNotFoundError) else Unavailable(key, cause)
