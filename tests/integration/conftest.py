"""Hosts to test against: shared ones, one for each kind of store, and others that a test may kill.

Shared hosts live as long as the session; tests keep apart by context ids of
their own, and leave no task running.
"""

from __future__ import annotations

import itertools
import uuid

import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from fake_gcs.process import FakeGcs
from tests.support.a2a_grpc import GRPC_BINDINGS, GrpcClient
from tests.support.a2a_http import A2AClient
from tests.support.host_process import HostProcess
from tests.support.host_thread import serve_in_thread
from tests.support.places import Place

SCRIPTED = "tests.support.agents:Scripted"
LEASE = 4
"""Seconds of a short lease. HTTP dates have a resolution of one second, so none can be shorter than three; and a host
that a busy machine holds up for two thirds of it stops its tasks."""


@pytest.fixture(scope="session")
def emulator():
    """The emulator with all its rules; the limit of writes to one object is 20 a second instead of one, as leases
    are seconds instead of half a minute. Chaos, benchmarks and `dev` have the real one."""
    with FakeGcs.start() as server, server.settings(write_limit_refill=20.0):
        yield server


@pytest.fixture(scope="session")
def make_place(emulator, tmp_path_factory):
    """A new and empty place: `gcs`, or `file`."""

    def make(kind="gcs"):
        if kind == "file":
            return Place(f"file:{tmp_path_factory.mktemp('objects')}")
        return Place(f"gs://{emulator.create_bucket()}", {"STORAGE_EMULATOR_HOST": emulator.url})

    return make


def _starting(directory):
    """A function that starts hosts over one place, all at a time, and the list that they are entered in."""
    hosts, numbers = [], itertools.count(1)

    def start(place, *, count=1, **settings):
        new = []
        for _ in range(count):
            n = next(numbers)
            new.append(HostProcess(place, log=directory / f"{n}.log", work_dir=directory / f"work-{n}", **settings))
        hosts.extend(new)
        for host in new:
            host.launch()
        ready = [host.ready() for host in new]
        return ready[0] if count == 1 else ready

    return start, hosts


@pytest.fixture(scope="session")
def start_host(tmp_path_factory):
    """Starts hosts for the session and ends them with it; `count=2`: a list of two."""
    start, started = _starting(tmp_path_factory.mktemp("hosts"))
    yield start
    for host in started:
        host.kill()


@pytest.fixture(scope="session")
def gcs_host(start_host, make_place):
    """The demo agent over the emulator."""
    return start_host(make_place("gcs"), grpc_port=0)


@pytest.fixture(scope="session")
def file_host(start_host, make_place):
    """The demo agent over a directory."""
    return start_host(make_place("file"), grpc_port=0)


@pytest.fixture(scope="session")
def memory_host(tmp_path_factory):
    """The demo agent over a store in memory, in this process."""
    with serve_in_thread(MemoryStore(), work_dir=tmp_path_factory.mktemp("work"), grpc_port=0) as host:
        yield host


@pytest.fixture(scope="session")
def two_hosts(start_host, make_place):
    """The scripted agent on two hosts over one bucket."""
    return start_host(make_place("gcs"), count=2, agent=SCRIPTED, grpc_port=0)


@pytest.fixture(params=["gcs", "file", "memory"])
def shared(request):
    """A shared host with the demo agent, over each kind of store."""
    return request.getfixturevalue(f"{request.param}_host")


@pytest.fixture
def hosts(tmp_path):
    """Starts hosts that the test may kill; they end with it. `count=2`: a list of two."""
    start, started = _starting(tmp_path)
    yield start
    for host in started:
        host.kill()


@pytest.fixture
async def connect():
    """Clients, by host (or origin) and binding; closed with the test."""
    clients = []

    def connect(host, binding="jsonrpc-1.0"):
        if binding in GRPC_BINDINGS:
            client = GrpcClient(getattr(host, "grpc_target", host), binding)
        else:
            client = A2AClient(getattr(host, "url", host), binding)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        await client.aclose()


@pytest.fixture
def fresh():
    """A context id that no other test uses."""
    return f"c-{uuid.uuid4().hex[:12]}"
