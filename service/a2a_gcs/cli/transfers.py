"""What a command moves from the store: streams and temporary files, with a bar on stderr where somebody watches."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import IO, TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from a2a_gcs.cli.roots import root_of_option
from a2a_gcs.host.logging import configure_logging
from a2a_gcs.objectstore import InstrumentedStore, PrefixStore, StoreStats, open_existing
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.workspaces.finding import Archive
from a2a_gcs.workspaces.reading import TarGz, members

if TYPE_CHECKING:
    from a2a_gcs.objectstore import ObjectStore

_LOOK_SECONDS = 0.1
_READ = 1 << 20


class Transfers:
    """An open store, and how much has come from it."""

    def __init__(self, where: str, root: str = "") -> None:
        """Raises ConfigError where there is nothing to read, as `open_existing`, and for what is no root."""
        below = root_of_option("--root", root) if root else ""
        configure_logging("warning")
        self._stats = StoreStats()
        counted = InstrumentedStore(open_existing(where), self._stats)
        self.store: ObjectStore = PrefixStore(counted, below) if below else counted
        self._console = Console(stderr=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()

    @contextlib.asynccontextmanager
    async def bar(self, doing: str, size: int) -> AsyncIterator[None]:
        """Shows how far `size` bytes have come, until the end of the `async with`."""
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        progress = Progress(
            *columns,
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        with progress:
            row, before = progress.add_task(doing, total=size), self._stats.bytes_out

            async def watch() -> None:
                while True:
                    progress.update(row, completed=self._stats.bytes_out - before)
                    await asyncio.sleep(_LOOK_SECONDS)

            watching = asyncio.create_task(watch())
            try:
                yield
            finally:
                watching.cancel()

    def members(self, archive: Archive) -> AbstractAsyncContextManager[TarGz]:
        """The members of an archive as they come; leaving early reads no further."""
        return members(self.store, archive)

    async def fetched(self, archive: Archive) -> IO[bytes]:
        """A temporary file with the whole archive, verified by its checksum; it goes when it is closed."""
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            async with (
                self.bar(archive.ref.task_id, archive.size),
                closing(self.store.stream(archive.key, version=archive.pin.generation)) as chunks,
            ):
                async for chunk in chunks:
                    file.write(chunk)
        except BaseException:
            file.close()
            raise
        return file


def nothing() -> IO[bytes]:
    """An archive without members."""
    return io.BytesIO(gzip.compress(bytes(1024)))


def members_of(file: IO[bytes]) -> TarGz:
    """The members of an archive that was fetched, from its beginning."""

    async def chunks() -> AsyncIterator[bytes]:
        file.seek(0)
        while chunk := file.read(_READ):
            yield chunk

    return TarGz(chunks())
