"""The servers that are measured: this product over its stores, and what people would use instead.

Each is started as a process of its own, as its users would, over a new place, and ended with the `with`.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from fake_gcs.process import FakeGcs
from tests.benchmark import environments
from tests.benchmark.load import Dialect03, Dialect10
from tests.support import postgres
from tests.support.host_process import CommandProcess, HostProcess
from tests.support.places import Place
from tests.support.preloaded import REPOSITORY

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
        emulator: Where it keeps its objects, if that is an emulator; else None.
        bucket: In which bucket of it.
    """

    url: str
    dialect: object
    pid: int
    process: object
    emulator: object = None
    bucket: str = ""


class Executed(HostProcess):
    """`a2a-gcs serve`, executed as its users do: what tests fork off has imported everything beforehand."""

    _begin = CommandProcess._begin


class Peer(CommandProcess):
    """A server of somebody else, with the interpreter of its own environment."""

    def __init__(self, environment, script, *arguments, log, **env):
        super().__init__(arguments, log=log, PYTHONPATH=str(REPOSITORY), **env)
        self.program = (environments.python(environment), HERE / "peers" / script)


class OwnPeer(CommandProcess):
    """A server of the benchmarks' own that needs this project's packages."""

    def __init__(self, script, *arguments, log, **env):
        super().__init__(arguments, log=log, **env)
        self.program = (sys.executable, HERE / "peers" / script)


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
    """Over a directory, as by default: what was acknowledged survives the end of the process, not a loss of power."""
    return host(Place(f"file:{directory / f'store-{next(_numbers)}'}"), directory)


@contextlib.contextmanager
def ours_on_the_emulator(directory):
    with gateway() as (emulator, place), host(place, directory) as server:
        yield replace(server, emulator=emulator, bucket=place.uri.removeprefix("gs://"))


def sdk_in_memory(directory):
    return running(Peer("a2a-sdk", "sdk_server.py", "memory", log=directory / "sdk-memory.log"))


def sdk_on_sqlite(directory):
    """SQLite with its own defaults, but for its patience: of 16 writers some wait longer than 5 s, and would fail."""
    url = f"sqlite+aiosqlite:///{directory / f'tasks-{next(_numbers)}.db'}?timeout=120"
    return running(Peer("a2a-sdk", "sdk_server.py", url, log=directory / "sdk-sqlite.log"))


@contextlib.contextmanager
def sdk_on_postgresql(directory):
    """PostgreSQL with its own defaults: what it has acknowledged is on the disk."""
    with sdk_servers(directory, 1) as servers:
        yield servers[0]


@contextlib.contextmanager
def sdk_on_postgresql_without_fsync(directory):
    """What was acknowledged survives the end of the server, not a loss of power: as in our directories."""
    with sdk_servers(directory, 1, durable=False) as servers:
        yield servers[0]


@contextlib.contextmanager
def sdk_servers(directory, count, *, durable=True):
    """So many servers on one database of PostgreSQL."""
    with contextlib.ExitStack() as stack:
        url = f"postgresql+asyncpg{stack.enter_context(postgres.serving(durable=durable))('tasks')}"
        logs = [directory / f"sdk-postgresql-{next(_numbers)}.log" for _ in range(count)]
        peers = [running(Peer("a2a-sdk", "sdk_server.py", url, log=log)) for log in logs]
        first = stack.enter_context(peers[0])  # makes the table, which two of them at once would both try
        yield [first, *(stack.enter_context(peer) for peer in peers[1:])]


def a2akit_in_memory(directory):
    return running(_a2akit("memory", directory / "a2akit-memory.log"), Dialect03)


@contextlib.contextmanager
def a2akit_on_postgresql(directory):
    with postgres.serving(durable=True) as database:
        process = _a2akit(f"postgresql+asyncpg{database('tasks')}", directory / "a2akit-postgresql.log")
        with running(process, Dialect03) as server:
            yield server


def _a2akit(storage, log):
    """With room for all events of a stream: by default it drops, untold, what a client has not read 200 later."""
    return Peer("a2akit", "a2akit_server.py", storage, log=log, A2AKIT_EVENT_BUFFER="4096")


def fasta2a_in_memory(directory):
    return running(Peer("fasta2a", "fasta2a_server.py", log=directory / "fasta2a.log"))


TWO_PUTS = (
    "Two puts is a small store with the design of gemini-cli's, on a2a-sdk's request handler and this project's client "
    "of cloud storage: with each event it writes the whole task and the whole workspace, here one small file, over "
    "what is there. The emulator takes any number of writes to an object from it, cloud storage one a second"
)
"""For readers, to be ended with what the limit would do."""


@contextlib.contextmanager
def two_puts_on_the_emulator(directory, *options, write_limit=False):
    """The design of `peers/two_puts_store.py`.

    It writes to the same two objects with each event, and cloud storage takes one write a second to an object
    (service/docs/limits.md): the emulator holds it to that only with `write_limit`, as otherwise nothing else could
    be seen.
    """
    workspace = directory / f"two-puts-{next(_numbers)}"
    workspace.mkdir()
    with gateway(*options) as (emulator, place), emulator.rules(write_limit=write_limit):
        process = OwnPeer("two_puts_store.py", place.uri, str(workspace), log=directory / "two-puts.log", **place.env)
        with running(process) as server:
            yield replace(server, emulator=emulator, bucket=place.uri.removeprefix("gs://"))


@contextlib.contextmanager
def serving(subjects, directory):
    """Starts subjects side by side, and ends them so; yields the servers by name, in the same order."""
    with together(start(directory) for start in subjects.values()) as servers:
        yield dict(zip(subjects, servers, strict=True))


def compared(bench, *groups):
    """The subjects of these groups; in a smoke run without those that differ from another by their database alone."""
    found = {name: start for group in groups for name, start in group.items()}
    return {name: start for name, start in found.items() if not (bench.smoke and name in ANOTHER_DATABASE)}


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
PEERS = {
    "a2akit, in memory": a2akit_in_memory,
    "a2akit, PostgreSQL": a2akit_on_postgresql,
    "fasta2a, in memory": fasta2a_in_memory,
    "two puts, emulator": two_puts_on_the_emulator,
}
WITHOUT_FSYNC = {"a2a-sdk, PostgreSQL without fsync": sdk_on_postgresql_without_fsync}
ANOTHER_DATABASE = {"a2a-sdk, SQLite", "a2akit, PostgreSQL", *WITHOUT_FSYNC}
