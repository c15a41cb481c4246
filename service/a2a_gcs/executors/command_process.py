"""One program under its supervisor, as the host sees it (`command_supervisor` is the other side)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.executors import command_supervisor

STREAM_LIMIT = 128 << 10
"""Half of the bytes of output that are read ahead; a program that is faster waits."""

_SHELL_SIGNALS = 128  # a shell says 128 + n of a child that signal n ended


class NotStarted(A2AGcsError):
    """The program could not be started; the text says why."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program came to its end.

    Attributes:
        code: Its exit status; None if a signal ended it.
        signal: The signal, or 0.
        left: Processes that could not be ended.
    """

    code: int | None
    signal: int = 0
    left: int = 0

    def __str__(self) -> str:
        """Half a sentence that follows the program's name."""
        if self.code is None:
            return f"was killed by {_name(self.signal)}"
        inner = _name(self.code - _SHELL_SIGNALS) if self.code > _SHELL_SIGNALS else ""
        hint = f", as a shell does whose command was killed by {inner}" if inner.startswith("SIG") else ""
        return f"ended with status {self.code}{hint}"


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a program may run without hearing of its host.

    Attributes:
        until: When the host has to have stopped, in seconds of its boot clock; called in a thread.
        every: Seconds between two beats.
    """

    until: Callable[[], float]
    every: float


class Program:
    """A running program; made by `running`.

    Attributes:
        stdout: What it writes.
        stderr: Likewise.
    """

    def __init__(
        self, supervisor: subprocess.Popen[bytes], stdout: asyncio.StreamReader, stderr: asyncio.StreamReader
    ) -> None:
        self.stdout, self.stderr = stdout, stderr
        self._supervisor = supervisor
        self._orders: IO[bytes] | None = None
        self._stopping = False
        self._end: asyncio.Task[Ended] | None = None

    async def ended(self) -> Ended:
        """Waits until the program and everything that it started has ended. Raises NotStarted."""
        assert self._end is not None
        return await asyncio.shield(self._end)

    def stop(self) -> None:
        """TERM to everything, KILL after the grace; when this is repeated, KILL at once."""
        self._order(b"kill\n" if self._stopping else b"stop\n")
        self._stopping = True

    @contextlib.asynccontextmanager
    async def ordered(self, orders: IO[bytes], reports: asyncio.StreamReader, lease: Lease) -> AsyncIterator[None]:
        """Beats until the end of the `async with`, which kills what still runs."""
        self._orders = orders
        self._end = asyncio.create_task(self._outcome(reports), name="command-end")
        try:
            with _beating(lambda: self._order(f"until {lease.until():.3f}\n".encode()), lease.every):
                yield
        finally:
            self._stopping = True
            self._order(b"kill\n")
            await _outlast(self._end)
            self._orders = None

    async def _outcome(self, reports: asyncio.StreamReader) -> Ended:
        report = await reports.read()
        outcome = json.loads(report or "{}")
        left = outcome.get("left", 0)
        if left:  # the supervisor ends when these have
            threading.Thread(target=self._supervisor.wait, name="command-left", daemon=True).start()
        else:
            await asyncio.to_thread(self._supervisor.wait)
        if not report:  # somebody killed the supervisor, and the kernel the program with it
            return Ended(None, signal.SIGKILL)
        if "error" in outcome:
            raise NotStarted(str(outcome["error"]))
        return Ended(outcome.get("code"), outcome.get("signal", 0), left)

    def _order(self, line: bytes) -> None:
        if self._orders is not None:
            with contextlib.suppress(OSError):  # it has ended, or does not read: then silence will do
                self._orders.write(line)


@contextlib.asynccontextmanager
async def running(
    argv: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    stdin: Path | None,
    grace: float,
    lease: Lease,
    keeps: int | None = None,
) -> AsyncIterator[Program]:
    """Starts a program. Whatever happens in the `async with`, nothing of the program runs afterwards.

    Args:
        argv: The program and its arguments.
        directory: Where it works.
        environment: All of its environment.
        stdin: File that it reads as its standard input; None for an empty one.
        grace: Seconds between TERM and KILL.
        lease: When it has to end by itself, as its host has fallen silent.
        keeps: Descriptor that stays open, whatever becomes of the host, until nothing of the program runs.

    Raises:
        NotStarted: The operating system refuses the arguments. What is wrong with the program itself, `ended` tells.
    """
    with _Pipe() as orders, _Pipe() as report, (stdin or Path(os.devnull)).open("rb") as given:
        passed = [orders.out.fileno(), report.into.fileno()]
        try:
            supervisor = subprocess.Popen(  # noqa: ASYNC220, S603 - what the host's operator named; it does not wait
                [sys.executable, "-I", "-S", command_supervisor.__file__, *map(str, passed), str(grace), *argv],
                cwd=directory,
                env=environment,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=passed if keeps is None else [*passed, keeps],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotStarted(_reason(error)) from error
        orders.out.close()
        report.into.close()
        async with (
            _reading(supervisor.stdout) as stdout,
            _reading(supervisor.stderr) as stderr,
            _reading(report.out) as reports,
        ):
            program = Program(supervisor, stdout, stderr)
            async with program.ordered(orders.into, reports, lease):
                yield program


class _Pipe:
    """A pipe with its two ends as files without buffers."""

    def __init__(self) -> None:
        out, into = os.pipe()
        os.set_blocking(into, False)
        self.out, self.into = open(out, "rb", buffering=0), open(into, "wb", buffering=0)  # noqa: PTH123, SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.out.close()
        self.into.close()


def _reason(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError) or not error.errno:
        return str(error)
    hint = "; a long message needs {message_file} or standard input" if error.errno == errno.E2BIG else ""
    return f"{os.strerror(error.errno)}{hint}"


@contextlib.asynccontextmanager
async def _reading(pipe: IO[bytes] | None) -> AsyncIterator[asyncio.StreamReader]:
    assert pipe is not None
    reader = asyncio.StreamReader(limit=STREAM_LIMIT)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        yield reader
    finally:
        transport.close()


@contextlib.contextmanager
def _beating(beat: Callable[[], None], every: float) -> Iterator[None]:
    """Beats from a thread: a host whose event loop is blocked has not fallen silent."""
    over = threading.Event()

    def go_on() -> None:
        beat()
        while not over.wait(every):
            beat()

    thread = threading.Thread(target=go_on, name="command-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _outlast(task: asyncio.Task[Ended]) -> None:
    """Waits for the end through every cancellation, which is passed on afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # whoever wanted it has it; asyncio need not warn
    if cancelled is not None:
        raise cancelled


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
