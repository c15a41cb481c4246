"""Runs the real fake-gcs-server on loopback, under a watchdog so that it never outlives its parent."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fake_gcs import watchdog
from fake_gcs.binary import find_binary
from fake_gcs.errors import PortTaken, StartFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 30.0
STOP_SECONDS = watchdog.GRACE_SECONDS + 25.0  # removing a temporary directory of many files takes its time
_TRIES = 5
_LOOK_SECONDS = 0.02
_HTTP_CONFLICT = 409

log = logging.getLogger(__name__)


class FakeGcsServer:
    """One fake-gcs-server process, as it is: no rules added.

    Attributes:
        host: The loopback address that it listens on.
        port: The port that it listens on; known after start().
        url: `http://HOST:PORT`, the value for STORAGE_EMULATOR_HOST.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        root: Path | None = None,
        memory: bool = False,
        remove: Path | None = None,
        location: str = "US-CENTRAL1",
        binary: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepares a server; nothing runs before start().

        Args:
            host: Loopback address to listen on.
            port: Port to listen on; 0 picks a free one.
            root: Directory of the filesystem backend; it survives a restart. None takes a
                temporary directory that is removed when the server ends, however it ends.
            memory: Use the memory backend instead. It slows down with every object it
                holds (measured: 249 puts a second at 10,000 objects, 45 at 30,000), and keeps nothing.
            remove: Directory that goes when the server ends, however it ends.
            location: What buckets answer as their location.
            binary: The program to run; see find_binary.
        """
        self.host = host
        self.port = port
        self._root = root
        self._memory = memory
        self._remove = remove
        self._temporary: Path | None = None
        self._location = location
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self._log: collections.deque[str] = collections.deque(maxlen=20)
        self._started = threading.Event()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """False once the program has ended, whoever ended it."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts the program and returns when it answers.

        Raises:
            BinaryNotFound: there is no program to run.
            PortTaken: something else listens on the port.
            StartFailed: it ended, or did not answer within START_SECONDS; or an earlier one still has the root.
        """
        binary = find_binary(self._binary)
        chosen = self.port
        for attempt in range(_TRIES):
            self.port = chosen or free_port(self.host)
            if chosen:
                check_port(self.host, chosen)
            try:
                self._start_once(binary)
            except StartFailed:
                # Somebody took the free port between choosing and using it: choose again.
                if chosen or attempt == _TRIES - 1 or port_is_free(self.host, self.port):
                    raise
            else:
                break
        return self

    def stop(self) -> None:
        """Ends the program, by its own process id, and waits for it; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)  # what a watchdog that was killed has left

    def create_bucket(self, name: str) -> None:
        """Creates a bucket; one that exists already is left as it is."""
        create_bucket(self.url, name)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_once(self, binary: Path) -> None:
        self._log.clear()
        self._started.clear()
        if self._root is None and not self._memory:
            self._temporary = Path(tempfile.mkdtemp(prefix="fake-gcs-"))
        with _alone_in(self._root) as lock:
            self._process = subprocess.Popen(  # noqa: S603 - our own watchdog and the binary that was asked for
                [
                    *_watchdog(self._temporary or self._remove),
                    str(binary),
                    *self._arguments(self._temporary or self._root),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=lock,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then stops this in order
            )
        threading.Thread(target=self._read_log, args=(self._process,), daemon=True).start()
        if not self._started.wait(START_SECONDS) or not self.running:
            self.stop()
            raise StartFailed("fake-gcs-server did not start; its log ends with:\n" + "\n".join(self._log))

    def _arguments(self, root: Path | None) -> list[str]:
        backend = ["-backend", "memory"] if root is None else ["-backend", "filesystem", "-filesystem-root", str(root)]
        return [
            *backend,
            *("-scheme", "http", "-host", self.host, "-port", str(self.port)),
            *("-external-url", self.url, "-public-host", f"{self.host}:{self.port}"),
            *("-location", self._location, "-log-level", "info"),
        ]

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        """Passes the program's log on, and notices that it listens.

        The line "server started" is written after listen() has succeeded, by this very
        process; asking the port instead could be answered by somebody else's server.
        """
        assert process.stderr is not None
        with process.stderr as stderr:
            for raw in stderr:
                line = raw.decode(errors="replace").rstrip()
                self._log.append(line)
                log.debug("%s", line)
                if "server started" in line:
                    self._started.set()
        process.wait()
        self._started.set()


def _watchdog(temporary: Path | None) -> list[str]:
    remove = [] if temporary is None else ["--remove", str(temporary)]
    return [sys.executable, "-I", "-S", watchdog.__file__, *remove]


@contextlib.contextmanager
def _alone_in(root: Path | None) -> Iterator[tuple[int, ...]]:
    """Yields the lock on a root for a watchdog to inherit, which holds it until its program has ended.

    Where a parent was killed its program goes on for a moment, and what it still writes would come behind the back of
    the next one.

    Raises:
        StartFailed: it has not ended within START_SECONDS.
    """
    if root is None:
        yield ()
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(root.with_name(f"{root.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _locked(lock):
            if time.monotonic() > deadline:
                raise StartFailed(f"an earlier fake-gcs-server has not ended, and writes to {root}")
            time.sleep(_LOOK_SECONDS)
        yield (lock,)
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def free_port(host: str) -> int:
    """Answers a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def check_port(host: str, port: int) -> None:
    """Raises PortTaken when something listens on the port."""
    if not port_is_free(host, port):
        raise PortTaken(host, port)


def create_bucket(url: str, name: str) -> None:
    """Creates a bucket on the emulator at url; one that exists already is left as it is."""
    request = urllib.request.Request(  # noqa: S310 - the address is the emulator's own
        f"{url}/storage/v1/b?project=fake-gcs",
        data=json.dumps({"name": name}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=START_SECONDS):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        with error:
            if error.code != _HTTP_CONFLICT:
                raise StartFailed(
                    f"bucket {name!r} was not created: {error.read().decode(errors='replace')}"
                ) from error
