"""Processes that a program under test starts, seen from outside."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

TREE = """
import os, signal, sys, time
mode, marks = sys.argv[1], sys.argv[2]

def mark(name):
    with open(os.path.join(marks, f"{name}.tmp"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, os.path.join(marks, name))

def live(name):
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif mode == "polite":
        signal.signal(signal.SIGTERM, lambda *_: (mark(f"{name}-heard"), os._exit(0)))
    mark(name)
    while True:
        time.sleep(60)

if os.fork() == 0:
    os.setsid()                      # leaves session and group
    if os.fork() == 0:
        live("daemon")               # an orphan, as its parent ends at once
    os._exit(0)
if os.fork() == 0:
    live("child")
if mode == "leaves":
    while not all(os.path.exists(os.path.join(marks, name)) for name in ("daemon", "child")):
        time.sleep(0.01)
    sys.exit(0)
live("main")
"""
"""A program that forks, and forks again after setsid; each process writes its number to a file of its name.

Modes: `plain` dies of TERM, `deaf` ignores it, `polite` says in `<name>-heard` that it got it, `leaves` ends and leaves
the others behind.
"""

NAMES = ("daemon", "child", "main")


def tree(mode, marks):
    """The command line of such a program."""
    return [sys.executable, "-I", "-S", "-c", TREE, mode, str(marks)]


def write_tree(directory):
    """TREE as a file, for command lines that are written as text."""
    path = Path(directory) / "tree.py"
    path.write_text(TREE)
    return path


def started(marks, names=NAMES):
    """The numbers of its processes, once all have started."""
    paths = [Path(marks) / name for name in names]
    return [int(path.read_text()) for path in paths] if all(path.exists() for path in paths) else None


def alive(pid):
    """A process that exists and has not ended; one that nobody has reaped yet has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except FileNotFoundError:
        return False
    except NotADirectoryError:  # no /proc here
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state not in {b"Z", b"X"}


def of_task(task_id):
    """Every living process that was started for a task, by its environment: the supervisor too."""
    marker = f"A2A_TASK_ID={task_id}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if marker in path.read_bytes() and alive(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found
