"""The servers that are measured: this product over its stores, and what people would use instead.

Each is started as a process of its own, as its users would, over a new place, and ended with the `with`.
"""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fake_gcs.process import FakeGcs
from tests.benchmark import environments
from tests.benchmark.load import Dialect10
from tests.support import postgres
from tests.support.host_process import CommandProcess, HostProcess
from tests.support.places import Place

HERE = Path(__file__).parent
AGENT = "tests.benchmark.agent:BenchmarkAgent"
_numbers = itertools.count(1)


@dataclass
class Server:
    """A server that runs.

    Attributes:
        url: Where it speaks A2A over JSON-RPC.
        dialect: Which A2A it speaks (`tests.benchmark.load`).
        pid: Its process.
        process: The command process, for who kills and starts again.
    """

    url: str
    dialect: object
    pid: int
    process: object


class Executed(HostProcess):
    """`a2a-gcs serve`, executed as its users do: what tests fork off has imported everything beforehand."""

    _begin = CommandProcess._begin


class Peer(CommandProcess):
    """A server of somebody else, with the interpreter of its own environment."""

    def __init__(self, environment, script, *arguments, log, **env):
        super().__init__(arguments, log=log, PYTHONPATH="", **env)
        self.program = (environments.python(environment), HERE / "peers" / script)


@contextlib.contextmanager
def running(process, dialect=Dialect10):
    process.start()
    try:
        yield Server(process.url, dialect, process.pid, process)
    finally:
        process.terminate()


def together(servers):
    """Starts servers side by side, and ends them so; yields them in their order."""
    return _together(list(servers))


@contextlib.contextmanager
def _together(servers):
    with ThreadPoolExecutor(len(servers)) as pool:
        starts = [pool.submit(one.__enter__) for one in servers]
        try:
            yield [start.result() for start in starts]
        finally:
            started = [one for one, start in zip(servers, starts, strict=True) if start.exception() is None]
            for end in [pool.submit(one.__exit__, None, None, None) for one in started]:
                end.result()


def host(place, directory, *, agent=AGENT, **settings):
    """The product over a place that others may share."""
    number = next(_numbers)
    settings.setdefault("work_dir", directory / f"work-{number}")
    return running(Executed(place, log=directory / f"host-{number}.log", agent=agent, **settings))


@contextlib.contextmanager
def gateway(*options):
    """The emulator with its gateway, and further options of its command line; yields it and a place in a new bucket."""
    with FakeGcs.start(options=["--log-level=error", *options]) as emulator:
        yield emulator, Place(f"gs://{emulator.create_bucket()}", {"STORAGE_EMULATOR_HOST": emulator.url})


def ours_in_memory(directory):
    return host(Place("memory"), directory)


def ours_on_disk(directory):
    """Over a directory, each write durable, as it is by default."""
    return host(Place(f"file:{directory / f'store-{next(_numbers)}'}"), directory)


@contextlib.contextmanager
def ours_on_the_emulator(directory):
    with gateway() as (_, place), host(place, directory) as server:
        yield server


def sdk_in_memory(directory):
    return running(Peer("a2a-sdk", "sdk_server.py", "memory", log=directory / "sdk-memory.log"))


def sdk_on_sqlite(directory):
    url = f"sqlite+aiosqlite:///{directory / f'tasks-{next(_numbers)}.db'}"
    return running(Peer("a2a-sdk", "sdk_server.py", url, log=directory / "sdk-sqlite.log"))


@contextlib.contextmanager
def sdk_on_postgresql(directory):
    """PostgreSQL with its own defaults: what it has acknowledged is on the disk."""
    with sdk_servers(directory, 1) as servers:
        yield servers[0]


@contextlib.contextmanager
def sdk_servers(directory, count):
    """So many servers on one database of PostgreSQL."""
    with contextlib.ExitStack() as stack:
        url = f"postgresql+asyncpg{stack.enter_context(postgres.serving(durable=True))('tasks')}"
        logs = [directory / f"sdk-postgresql-{next(_numbers)}.log" for _ in range(count)]
        peers = [running(Peer("a2a-sdk", "sdk_server.py", url, log=log)) for log in logs]
        yield stack.enter_context(together(peers))


OURS = {
    "a2a-gcs, memory": ours_in_memory,
    "a2a-gcs, directory": ours_on_disk,
    "a2a-gcs, emulator": ours_on_the_emulator,
}
SDK = {
    "a2a-sdk, in memory": sdk_in_memory,
    "a2a-sdk, SQLite": sdk_on_sqlite,
    "a2a-sdk, PostgreSQL": sdk_on_postgresql,
}
