"""Runs one program and ends it when standard input ends: `watchdog.py [--remove DIR] PROGRAM ARGS...`.

The parent keeps the other end of the pipe. However the parent goes, also by
kill -9, the kernel closes that end, and the program is killed; this works on
Linux and macOS alike. Only the standard library is used, so that it starts fast
as a script of its own (`python -I -S watchdog.py`).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Runs the program to its end and answers its exit status.

    SIGTERM is passed on, followed by SIGKILL after GRACE_SECONDS. `--remove DIR`
    deletes DIR afterwards, whichever way the program ended.
    """
    remove = None
    if arguments[0] == "--remove":
        remove, arguments = arguments[1], arguments[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = subprocess.Popen(  # noqa: S603 - runs what the parent names
        arguments,
        stdin=subprocess.DEVNULL,
        preexec_fn=_unblock_and_die_with_this_process(),  # noqa: PLW1509 - no thread exists yet
    )
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=_end, args=(child,), daemon=True).start())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_kill_at_eof, args=(child,), daemon=True).start()
    try:
        return child.wait()
    finally:
        if remove is not None:
            shutil.rmtree(remove, ignore_errors=True)


def _kill_at_eof(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    child.kill()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def _unblock_and_die_with_this_process() -> Callable[[], None]:
    """On Linux the program also dies when this watchdog itself is killed (prctl PR_SET_PDEATHSIG).

    preexec_fn is safe here: the program is started before any thread of this process.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
