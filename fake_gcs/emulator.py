"""The gateway with the real fake-gcs-server behind it, in one process that can be stopped."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from fake_gcs.blobs import BUCKET, Blobs
from fake_gcs.catalogue import Catalogue
from fake_gcs.errors import DataInUse, PortTaken
from fake_gcs.gateway import Gateway
from fake_gcs.rules.write_limit import DEFAULT_BURST
from fake_gcs.server import FakeGcsServer, check_port
from fake_gcs.state import State
from fake_gcs.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_MAX_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Options:
    """What an emulator is started with.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 picks a free one.
        data: Directory that keeps everything; None keeps nothing.
        location: Location of buckets that name none.
        binary: fake-gcs-server to run; see find_binary.
        latency: Name of a latency profile.
        burst: Writes to one name that may follow one another at once.
    """

    host: str = "127.0.0.1"
    port: int = 0
    data: Path | None = None
    location: str = "US-CENTRAL1"
    binary: str | None = None
    latency: str = "none"
    burst: float = DEFAULT_BURST


@dataclass(frozen=True)
class Running:
    url: str
    backend: FakeGcsServer
    state: State


@contextlib.asynccontextmanager
async def emulator(options: Options) -> AsyncIterator[Running]:
    """Runs an emulator for as long as the context lasts.

    Raises:
        PortTaken, DataInUse, StartFailed, BinaryNotFound: it cannot be started.
    """
    if options.port:
        check_port(options.host, options.port)
    with _folder(options.data) as folder:
        remove = folder if options.data is None else None
        root = folder / "objects"
        backend = FakeGcsServer(root=root, remove=remove, location=options.location, binary=options.binary)
        catalogue = Catalogue(folder / "catalogue.sqlite")
        try:
            # In a thread, so that the loop can be cancelled by a signal meanwhile.
            await asyncio.to_thread(backend.start)
            backend.create_bucket(BUCKET)
            blobs = Blobs(backend.url, catalogue, root)
            state = State(
                catalogue,
                blobs,
                folder / "incoming",
                location=options.location,
                default_latency=options.latency,
                default_burst=options.burst,
            )
            await blobs.open()
            try:
                async with _listening(state, options) as url:
                    yield Running(url, backend, state)
            finally:
                state.sessions.close()
                await blobs.close()
        finally:
            backend.stop()
            catalogue.close()


@contextlib.asynccontextmanager
async def _listening(state: State, options: Options) -> AsyncIterator[str]:
    server = web.Server(
        Wire(Gateway(state)).serve,
        access_log=None,
        auto_decompress=False,  # what a client stores compressed stays so
        max_line_size=_MAX_HEAD_BYTES,
        max_field_size=_MAX_HEAD_BYTES,
    )
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, options.host, options.port).start()
        except OSError as error:
            raise PortTaken(options.host, options.port) from error
        yield f"http://{options.host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """Yields the data directory, locked against a second emulator; a temporary one if there is none.

    Raises:
        DataInUse: another emulator works on it.
    """
    folder = data or Path(tempfile.mkdtemp(prefix="fake-gcs-"))
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataInUse(f"another emulator works on {folder}: stop it, or name another --data directory") from None
        shutil.rmtree(folder / "incoming", ignore_errors=True)
        (folder / "incoming").mkdir()
        yield folder
    finally:
        os.close(lock)
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)
