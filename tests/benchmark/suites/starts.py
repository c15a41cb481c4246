"""How long a server takes to begin: importing what it needs; and from its execution to the answer of its first task.

Imports are those of a fresh interpreter, with byte code in place: seconds by the clock, and of the processor, which
tell more on a machine that is busy. A cold start is from the moment that the command is executed to the answer of a
task of five chunks, sent as soon as the server says that it listens. SQLAlchemy, which a2a-sdk imports wherever it is
installed, is hidden from the servers that do not use it: `pip install a2a-gcs` does not install it. A store in a
directory begins empty, as a database of SQLite does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time

from tests.benchmark import environments
from tests.benchmark.load import Client, Dialect10
from tests.benchmark.subjects import AGENT, Executed, Peer, gateway
from tests.support.host_process import environment
from tests.support.places import Place
from tests.support.preloaded import REPOSITORY

TITLE = "Imports and cold starts"
SHORT = "5 64"
IMPORT, PROCESSOR, START = "imports", "imports: processor", "cold start to the first answer"
WITH_GS, WITHOUT_GS, SDK, SDK_SQL = "a2a-gcs, gs://", "a2a-gcs, local stores", "a2a-sdk, in memory", "a2a-sdk, SQLite"

HIDDEN = "import sys; sys.modules['sqlalchemy'] = None; "
HOST = (
    "import a2a_gcs.cli.main, a2a_gcs.cli.hosting, a2a_gcs.host.settings; "
    "a2a_gcs.cli.hosting.import_sdk(); import a2a_gcs.host.app, a2a_gcs.objectstore.location"
)
"""As `serve` does, in its order."""
IMPORTS = {
    WITHOUT_GS: HIDDEN + HOST,
    WITH_GS: f"{HIDDEN}{HOST}, a2a_gcs.objectstore.gcs",
    SDK: HIDDEN + "import tests.benchmark.peers.sdk_server",
    SDK_SQL: "import tests.benchmark.peers.sdk_server, sqlalchemy.ext.asyncio, aiosqlite",
}
COMMAND = HIDDEN + "from a2a_gcs.cli.main import main; sys.argv[0] = 'a2a-gcs'; main()"
SCRIPT = HIDDEN + "import runpy; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
_GOOGLE = "gs:// takes gcsfs and the Google clients that it imports, a third of all; the rest is a2a-sdk and FastAPI."
REASONS = {
    "imports": _GOOGLE,
    "imports: processor": _GOOGLE,
    "cold start to the first answer": _GOOGLE,
    "Imports of a host over gs://": _GOOGLE,
    "Imports of a host over a local store": "Most of it is a2a-sdk, which its own server imports as well; FastAPI, "
    "pydantic and metrics come on top.",
}


def run(bench):
    if not bench.smoke:
        for name in IMPORTS:
            _import(name)
    for name in bench.alternate(IMPORTS, "imports"):
        seconds, cpu = _import(name)
        bench.record(IMPORT, name, seconds, "s")
        bench.record(PROCESSOR, name, cpu, "s")
    with gateway() as (_, place):
        starts = _starts(bench.directory, place)
        if not bench.smoke:
            for start in starts.values():
                asyncio.run(_first_answer(start))
        for name in bench.alternate(starts, "cold starts"):
            bench.record(START, name, asyncio.run(_first_answer(starts[name])), "s")
    bench.aim("Imports of a host over gs://", bench.median(IMPORT, WITH_GS), at_most=1.2, unit="s")
    bench.aim("Imports of a host over a local store", bench.median(IMPORT, WITHOUT_GS), at_most=0.8, unit="s")
    for name in (name for name in starts if name.startswith("a2a-gcs")):
        bench.aim(f"Cold start to the first answer ({name})", bench.median(START, name), at_most=2.5, unit="s")


def _import(name):
    """Seconds of a fresh interpreter by the clock, and of the processor."""
    if name.startswith("a2a-gcs"):
        command, env = [sys.executable, "-c", IMPORTS[name]], environment()
    else:
        command, env = [environments.python("a2a-sdk"), "-c", IMPORTS[name]], environment(PYTHONPATH=str(REPOSITORY))
    began = time.perf_counter()
    process = subprocess.Popen(command, env=env)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, name
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


# ------------------------------------------------------------------ cold starts


class WithoutSql(Executed):
    """`a2a-gcs serve` as where it was installed without the extra `sql`."""

    program = (sys.executable, "-c", COMMAND)


class SdkWithoutSql(Peer):
    """The server of a2a-sdk as where it was installed without databases."""

    def __init__(self, *arguments, log):
        super().__init__("a2a-sdk", "sdk_server.py", *arguments, log=log)
        python, script = self.program
        self.program = (python, "-c", SCRIPT, script)


def _starts(directory, bucket):
    """What makes each server, over a place that was not used before, but for the bucket."""
    numbers = iter(range(1_000_000))

    def host(place):
        return WithoutSql(place, log=directory / "host.log", agent=AGENT, work_dir=directory / "work")

    def sqlite():
        url = f"sqlite+aiosqlite:///{directory / f'tasks-{next(numbers)}.db'}"
        return Peer("a2a-sdk", "sdk_server.py", url, log=directory / "sdk.log")

    return {
        "a2a-gcs, memory": lambda: host(Place("memory")),
        "a2a-gcs, directory": lambda: host(Place(f"file:{directory / f'store-{next(numbers)}'}")),
        "a2a-gcs, emulator": lambda: host(bucket),
        SDK: lambda: SdkWithoutSql("memory", log=directory / "sdk.log"),
        SDK_SQL: sqlite,
    }


async def _first_answer(make):
    """Seconds from the execution of a server to the end of its first task."""
    process = make()
    with contextlib.ExitStack() as stack:
        stack.callback(process.terminate)
        began = time.perf_counter()
        await asyncio.to_thread(process.start)
        async with Client(process.url, Dialect10) as client:
            task = await client.send(SHORT)
            seconds = time.perf_counter() - began
    assert Dialect10.state(task) == "completed"
    return seconds
