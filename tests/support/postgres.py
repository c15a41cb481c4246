"""A PostgreSQL server of the tests' own: a directory, a free port of loopback, a user that is not root."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from tests.support.ports import free_port

START_SECONDS = 60
USER = "postgres"


def programs():
    """The directory with initdb and postgres, or a skip: Debian keeps it off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = shutil.which("initdb") or (str(found[-1]) if found else None)
    if path is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    return Path(path).resolve().parent


def _as_nobody_special():
    """Arguments of Popen that give up root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    for name in (USER, "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
    return None


@contextlib.contextmanager
def serving(*, durable=False):
    """Runs a server; yields a function that makes a database, and tells its URL from `://` on.

    With `durable` it is what people run: its default settings, each commit on the disk.
    """
    binaries, user = programs(), _as_nobody_special()
    directory = Path(tempfile.mkdtemp(prefix="a2a-gcs-postgres-"))
    try:
        if user:
            os.chown(directory, user["user"], user["group"])
        options = ["--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C"]
        data = directory / "data"
        subprocess.run([binaries / "initdb", *options, data], check=True, capture_output=True, cwd="/", **user)
        port = free_port()
        fast = [] if durable else ["-c", "fsync=off", "-c", "shared_buffers=16MB"]
        command = [binaries / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), *fast]
        command += ["-c", f"unix_socket_directories={directory}"]
        with (directory / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **user)
        try:
            ready = [binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-t", str(START_SECONDS)]
            _until_ready(server, ready, directory / "log")
            yield functools.partial(_database, f"://{USER}@127.0.0.1:{port}")
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(START_SECONDS)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _database(server, name):
    with psycopg.connect(f"postgresql{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{server}/{name}"


def _until_ready(server, command, log):
    while server.poll() is None:
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
    raise AssertionError(f"PostgreSQL did not start:\n{log.read_text()}")
