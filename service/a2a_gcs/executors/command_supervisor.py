"""Stands between the host and one program: ends it, with everything that it started, when the host says so or is gone.

    python -I -S command_supervisor.py ORDERS REPORT GRACE PROGRAM ARGUMENT...

Run as a script of its own, so it imports the standard library alone. ORDERS and
REPORT are descriptors of two pipes whose other ends only the host holds. Orders:

    until <seconds>   the host may work until then, by this machine's boot clock; later the program is killed
    stop              TERM to everything, KILL after GRACE seconds
    kill              KILL to everything

The end of the orders means that the host is dead, however it died: KILL. A host
that falls silent, as it is suspended, ends by its last `until`. The report is
one line of JSON, written when nothing that the program started is left, or
after 20 s in which KILL did not end it; then the supervisor goes on trying:

    {"code": 3}  {"signal": 9}  {"error": "...", "errno": 2}      with "left": n if n processes could not be ended

On Linux the supervisor is the subreaper of its descendants: a process that
forks, calls setsid and loses its parent becomes its child, and is found.
Elsewhere it ends the program's process group; a process that leaves that
group escapes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

LINUX = sys.platform == "linux"
LOOK_EVERY_SECONDS = 0.02
GIVE_UP_SECONDS = 20.0
"""How long KILL may take to work: processes in uninterruptible sleep, or of another user, do not end."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def now() -> float:
    """The clock of the host's lease: it goes on while the machine sleeps."""
    return time.clock_gettime(_BOOTTIME)


class Family:
    """The program and everything that it started."""

    def __init__(self, program: Sequence[str]) -> None:
        """Starts the program in a session of its own, with this process's standard streams. Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True) if LINUX else None
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def in_child() -> None:
            if libc is not None:  # should somebody kill this process, the program itself goes with it
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        self._process = subprocess.Popen(program, start_new_session=True, preexec_fn=in_child)  # noqa: S603, PLW1509
        self.pid = self._process.pid
        self.status: int | None = None
        self.empty = False

    @property
    def ended(self) -> bool:
        """The program itself has ended; what it started may go on."""
        return self.status is not None

    def reap(self) -> None:
        """Takes note of every child that has ended, adopted ones included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.empty = LINUX or not self._group_exists()
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status = status
                self._process.returncode = os.waitstatus_to_exitcode(status)

    def terminate(self) -> None:
        """Asks every process to end; a stopped one has to be woken to hear it."""
        for pid in self.members():
            _send(pid, signal.SIGTERM)
            _send(pid, signal.SIGCONT)
        if not LINUX:
            self._to_group(signal.SIGTERM)

    def kill(self) -> None:
        """Kills every process. They are stopped first, so that none forks while the others are being killed."""
        stopped: set[int] = set()
        while True:
            # The own children first, at once: one that forks and ends is long gone when all of /proc has been read.
            found = _stop(set(_own_children()) - stopped)
            found |= _stop(set(self.members()) - stopped - found)
            if not found:
                break
            stopped |= found
        for pid in stopped:
            _send(pid, signal.SIGKILL)
        self._to_group(signal.SIGKILL)

    def members(self) -> list[int]:
        """Every living descendant of this process. Without /proc, the program alone."""
        if not LINUX:
            return [] if self.ended else [self.pid]
        children: dict[int, list[int]] = {}
        for pid, parent in _living():
            children.setdefault(parent, []).append(pid)
        found, front = [], [os.getpid()]
        while front:
            below = children.get(front.pop(), [])
            found += below
            front += below
        return found

    def _to_group(self, number: signal.Signals) -> None:
        """For what /proc does not show. On Linux only while the number cannot have become another's."""
        if not self.ended or not LINUX:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _group_exists(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def _own_children() -> list[int]:
    """The children of this process, adopted ones and zombies included; none where the kernel does not list them."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _stop(pids: set[int]) -> set[int]:
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    return pids


def _living() -> Iterator[tuple[int, int]]:
    """Process and parent of everything that /proc shows and that is no zombie."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - asked again and again while a tree is being killed
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:  # it has ended meanwhile
            continue
        if state not in {b"Z", b"X"}:
            yield int(name), int(parent)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class Supervisor:
    """Follows the host's lines and the children's ends until nothing is left."""

    def __init__(self, orders: int, grace: float) -> None:
        self._orders: int | None = orders
        self._grace = grace
        self._unread = b""
        self._until = float("inf")
        self._kill_at = float("inf")
        self._give_up_at = float("inf")
        self._stopping = False

    def run(self, family: Family, wake: int) -> dict[str, int]:
        """Returns the report; `wake` is readable when a child has ended."""
        while True:
            family.reap()
            if family.empty or now() >= self._give_up_at:
                break
            if family.ended and not self._stopping:
                self._stop(family)
            elif now() >= min(self._until, self._kill_at):
                self._kill(family)
            self._wait(wake, family)
        code = os.waitstatus_to_exitcode(family.status) if family.status is not None else -signal.SIGKILL
        outcome = {"code": code} if code >= 0 else {"signal": -code}
        return outcome if family.empty else {**outcome, "left": len(family.members())}

    def persist(self, family: Family, wake: int) -> None:
        """Goes on after the report, until nothing is left: once this process has ended, nobody finds the rest."""
        pause = LOOK_EVERY_SECONDS
        while not family.empty:
            family.kill()
            if select.select([wake], [], [], pause)[0]:
                os.read(wake, 4096)
            pause = min(pause * 1.2, 1.0)
            family.reap()

    def _wait(self, wake: int, family: Family) -> None:
        looks = self._give_up_at < float("inf") or (self._stopping and not LINUX)
        seconds = LOOK_EVERY_SECONDS if looks else max(0.0, min(self._until, self._kill_at, now() + 60.0) - now())
        ready, _, _ = select.select([wake, *([] if self._orders is None else [self._orders])], [], [], seconds)
        if wake in ready:
            os.read(wake, 4096)
        if self._orders in ready:
            self._listen(self._orders, family)

    def _listen(self, orders: int, family: Family) -> None:
        data = os.read(orders, 4096)
        if not data:
            self._orders = None
            self._kill(family)
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"until":
                self._until = float(rest)
            elif word == b"stop" and not self._stopping:
                self._stop(family)
            elif word == b"kill":
                self._kill(family)

    def _stop(self, family: Family) -> None:
        self._stopping = True
        self._kill_at = now() + self._grace
        family.terminate()

    def _kill(self, family: Family) -> None:
        """May be called again and again: what was forked meanwhile is killed too."""
        self._stopping = True
        self._until = float("inf")
        self._kill_at = now()
        self._give_up_at = min(self._give_up_at, now() + GIVE_UP_SECONDS)
        family.kill()


def main(arguments: Sequence[str]) -> None:
    """Runs one program to its end; this process ends after everything that the program started."""
    orders, report, grace, *program = arguments
    for deaf in _DEAF_TO:
        signal.signal(deaf, lambda *_: None)  # a handler, as an ignored signal would stay ignored in the program
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        family = Family(program)
    except OSError as error:
        _report(int(report), {"error": error.strerror or str(error), "errno": error.errno or 0})
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the program's own ends alone keep its pipes open
        os.dup2(nothing, stream)
    supervisor = Supervisor(int(orders), float(grace))
    _report(int(report), supervisor.run(family, read_end))
    supervisor.persist(family, read_end)


def _report(report: int, outcome: object) -> None:
    """The end of the report tells the host that nothing follows."""
    with contextlib.suppress(OSError):  # the host is gone
        os.write(report, json.dumps(outcome).encode() + b"\n")
    os.close(report)


if __name__ == "__main__":
    main(sys.argv[1:])
