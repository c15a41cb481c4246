"""`python -m fake_gcs` as a child process, from Python: started, asked, stopped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Self

import fake_gcs
from fake_gcs.errors import StartFailed
from fake_gcs.remote import Control
from fake_gcs.server import STOP_SECONDS, create_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

_READY = "listening on "


class FakeGcs(Control):
    """A running emulator in a process of its own, which never outlives this one.

    Attributes:
        url: `http://HOST:PORT`, the value for STORAGE_EMULATOR_HOST.
        endpoint: The same, under the name that gcsfs uses.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        super().__init__(url)
        self._process = process
        self.endpoint = url

    @classmethod
    def start(
        cls,
        *,
        port: int = 0,
        data: Path | None = None,
        buckets: Iterable[str] = (),
        plain: bool = False,
        options: Iterable[str] = (),
    ) -> Self:
        """Starts `python -m fake_gcs` and returns when it answers.

        Args:
            port: Port to listen on; 0 picks a free one.
            data: Directory that keeps buckets and objects; None keeps nothing.
            buckets: Buckets to create.
            plain: fake-gcs-server as it is, without the rules.
            options: Further command line options.

        Raises:
            StartFailed: it ended before it answered; its reason is on stderr.
        """
        command = [sys.executable, "-m", "fake_gcs", "--stop-on-eof", f"--port={port}", *options]
        if data is not None:
            command.append(f"--data={data}")
        command += [f"--bucket={name}" for name in buckets]
        if plain:
            command.append("--plain")
        process = subprocess.Popen(  # noqa: S603 - this package, with the caller's options
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(_READY):
            status = _end(process)
            raise StartFailed(f"python -m fake_gcs ended with status {status}; it says why on stderr")
        return cls(process, line.removeprefix(_READY).strip())

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://").rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def create_bucket(self, name: str | None = None) -> str:
        """Creates a bucket and answers its name: the given one, or one that was never used before."""
        name = name or f"test-{uuid.uuid4().hex[:20]}"
        create_bucket(self.url, name)
        return name

    def stop(self) -> int:
        """Stops the emulator and answers its exit status, 0 when all went well; may be repeated."""
        return _end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _end(process: subprocess.Popen[str]) -> int:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_SECONDS + 5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    return process.returncode


def _environment() -> dict[str, str]:
    """The parent's environment, with this package importable whatever the working directory."""
    home = str(Path(fake_gcs.__file__).parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{path}" if path else home}
