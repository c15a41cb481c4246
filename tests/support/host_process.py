"""`a2a-gcs serve` and other commands as real processes: started, killed, suspended, started again."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.support.preloaded import REPOSITORY, fork

COMMAND = Path(sys.executable).with_name("a2a-gcs")
READY = "listening on "
START_SECONDS = 60.0
END_SECONDS = 30.0


def environment(**more):
    """This process's environment without the settings that it may hold, and with the tests importable."""
    settings = ("A2A_GCS_", "STORAGE_EMULATOR_HOST", "PORT")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(settings)}
    return {
        **inherited,
        "PYTHONPATH": f"{REPOSITORY / 'service'}{os.pathsep}{REPOSITORY}",
        "PYTHONUNBUFFERED": "1",
        **more,
    }


class CommandProcess:
    """One `a2a-gcs` command line in a session of its own, which never outlives the test.

    Attributes:
        url: What it said that it listens on.
        log: File with everything it wrote to stderr, over all its starts.
    """

    program = (COMMAND,)

    def __init__(self, arguments, *, log, cwd=REPOSITORY, **env):
        self.arguments = list(arguments)
        self.env = env
        self.cwd = cwd
        self.log = Path(log)
        self.url = ""
        self._process = None
        self._lines = queue.Queue()

    def start(self):
        """Starts the command and returns when it listens."""
        self.launch()
        try:
            return self.ready()
        except KeyboardInterrupt:  # reaches nobody but us, as it has a session of its own
            self.kill()
            raise

    def launch(self):
        reading, writing = os.pipe()
        with self.log.open("ab") as log, os.fdopen(writing, "wb") as stdout:
            self._process = self._begin(stdout, log)
        self._lines = queue.Queue()
        threading.Thread(target=_follow, args=(os.fdopen(reading), self._lines), daemon=True).start()

    def _begin(self, stdout, log):
        env = environment(**self.env)
        command = [*self.program, *self.arguments]
        return subprocess.Popen(command, stdout=stdout, stderr=log, cwd=self.cwd, env=env, start_new_session=True)

    def ready(self):
        try:
            line = self._lines.get(timeout=START_SECONDS)
        except queue.Empty:
            line = ""
        if not line.startswith(READY):
            self.kill()
            raise AssertionError(f"{self.arguments} did not start:\n{self.errors()[-4000:]}")
        self.url = line.removeprefix(READY).strip()
        return self

    @property
    def grpc_target(self):
        """Where the last start serves gRPC, from its log."""
        lines = [json.loads(line) for line in self.errors().splitlines() if line.startswith("{")]
        return next(f"{line['host']}:{line['port']}" for line in reversed(lines) if line["message"] == "grpc.listening")

    @property
    def pid(self):
        return self._process.pid

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    def errors(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self):
        """SIGKILL to this process alone."""
        return self._end(signal.SIGKILL)

    def kill_group(self):
        """SIGKILL to this process and every child that stayed in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait(END_SECONDS)

    def terminate(self):
        """SIGTERM; returns the exit status."""
        return self._end(signal.SIGTERM)

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self, seconds=END_SECONDS):
        return self._process.wait(seconds)

    def suspend(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def restart(self):
        """Starts the same command again, once it has ended."""
        assert not self.running
        return self.start()

    def _end(self, number):
        if self.running:
            self._process.send_signal(number)
            if number == signal.SIGKILL:
                self._process.send_signal(signal.SIGCONT)
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


class HostProcess(CommandProcess):
    """`a2a-gcs serve` on a free port over one place (`tests.support.places`)."""

    def __init__(self, place, *, log, agent="demo", work_dir=None, **settings):
        arguments = ["serve", "--store", place.uri, "--agent", agent, "--port", "0"]
        if work_dir:
            arguments += ["--work-dir", str(work_dir)]
        env = {f"A2A_GCS_{name.upper()}": str(value) for name, value in settings.items()}
        super().__init__(arguments, log=log, **place.env, **env)
        self.place = place

    def _begin(self, stdout, log):
        if os.environ.get("A2A_GCS_TEST_EXEC"):
            return super()._begin(stdout, log)
        env = environment(**self.env)
        return fork(self.arguments, stdout=stdout.fileno(), stderr=log.fileno(), cwd=self.cwd, env=env)

    def suspend(self):
        """Stops it, but not while it holds the lock of a store in a directory: all others would wait with it."""
        super().suspend()
        while self.place.uri.startswith("file:") and not _free(Path(self.place.uri.removeprefix("file:"))):
            self.resume()
            super().suspend()


def _follow(stdout, lines):
    with stdout:
        for line in stdout:
            lines.put(line)
    lines.put("")


def _free(directory):
    """Whether the lock of the store can be had within a second, now that one of its writers does not run."""
    with (directory / ".objectstore" / "lock").open("rb") as lock:
        for _ in range(100):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(0.01)
    return False
