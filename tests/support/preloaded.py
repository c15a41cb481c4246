"""Host processes that start in a moment: forked off a process that has imported everything, and done nothing else.

Importing takes a second of CPU, and the tests start hundreds of hosts. A forked host runs the entry point of the
distribution in a process, session, environment and directory of its own, like one that was executed. With
A2A_GCS_TEST_EXEC=1 every host is executed instead.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
MODULES = (
    "a2a_gcs.cli.main",
    "a2a_gcs.cli.hosting",
    "a2a_gcs.executors.command",
    "a2a_gcs.executors.demo",
    "a2a_gcs.host.app",
    "a2a_gcs.host.grpc.server",
    "a2a_gcs.objectstore.gcs",
    "a2a_gcs.objectstore.local",
    "gcsfs",
    "opentelemetry.exporter.prometheus",
    "opentelemetry.sdk.metrics.export",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
START_SECONDS = 120.0


class Forked:
    """What `subprocess.Popen` is for an executed host: the part of its interface that tests use."""

    def __init__(self, connection):
        self._answers = connection.makefile("r")
        self._connection = connection
        self._lock = threading.Lock()
        self.pid = int(self._answers.readline())
        self.returncode = None

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        with self._lock:
            if self.returncode is None:
                if not select.select([self._connection], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(f"host {self.pid}", timeout)
                self.returncode = int(self._answers.readline())
                self._answers.close()
                self._connection.close()
            return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def fork(arguments, *, stdout, stderr, cwd, env):
    """Starts `a2a-gcs` with these arguments; stdout and stderr are file descriptors."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_server())
    wanted = json.dumps({"argv": ["a2a-gcs", *map(str, arguments)], "cwd": str(cwd), "env": env}).encode()
    socket.send_fds(connection, [len(wanted).to_bytes(4, "big")], [stdout, stderr])
    connection.sendall(wanted)
    return Forked(connection)


@functools.cache
def _server():
    """Path of the socket of this process's own server, which ends with this process."""
    path = f"{tempfile.mkdtemp(prefix='a2a-gcs-hosts-')}/s"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("A2A_GCS_", "STORAGE_EMULATOR_HOST", "PORT"))}
    env |= {"PYTHONPATH": f"{REPOSITORY / 'service'}{os.pathsep}{REPOSITORY}", "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.preloaded", path],
        stdin=subprocess.PIPE,  # its end tells the server that nobody is left to serve
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env=env,
        start_new_session=True,
    )
    _KEPT.append(server)
    assert select.select([server.stdout], [], [], START_SECONDS)[0], "the server of host processes did not start"
    assert server.stdout.readline() == b"ready\n"
    return path


_KEPT: list[subprocess.Popen[bytes]] = []


def _serve(path):
    """Forks a host a request, until stdin ends. Returns in each forked process, with what was asked of it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    alarm, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup)
    children = {}
    os.write(1, b"ready\n")
    while True:
        ready = select.select([listener, alarm, 0], [], [])[0]
        if 0 in ready:
            _end(children, path)
        if alarm in ready:
            os.read(alarm, 4096)
            _reap(children)
        if listener in ready:
            connection, _ = listener.accept()
            wanted, files = _request(connection)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for opened in (listener, connection, *children.values()):
                    opened.close()
                os.close(alarm)
                os.close(wakeup)
                return wanted, files
            for number in files:
                os.close(number)
            children[pid] = connection
            connection.sendall(b"%d\n" % pid)


def _request(connection):
    size, files, _, _ = socket.recv_fds(connection, 4, 2)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(int.from_bytes(size, "big"))), files


def _reap(children):
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            with children.pop(pid) as connection, contextlib.suppress(BrokenPipeError):
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _end(children, path):
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(Path(path).parent)
    os._exit(0)


def _become(wanted, files):
    """Makes this forked process what an executed one would be."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in zip((null, *files), (0, 1, 2), strict=True):
        os.dup2(source, target)
        os.close(source)
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    time.tzset()
    sys.argv = wanted["argv"]


if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"
    gc.freeze()
    _become(*_serve(sys.argv[1]))
    sys.modules["a2a_gcs.cli.main"].main()
