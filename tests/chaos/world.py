"""Hosts over one bucket, each behind a wire of its own, and everything that a checker needs to know afterwards."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
import urllib.request
import uuid
from pathlib import Path
from urllib.parse import quote

import httpx

from tests.chaos.clients import Clients
from tests.chaos.wire import Wire
from tests.support.host_process import REPOSITORY, HostProcess
from tests.support.places import Place
from tests.support.waiting import until

AGENT = "tests.chaos.agents:make"
LEASE = 4
"""Seconds. HTTP dates have a resolution of one, so 3 is the least; a busy machine needs a little more."""


class World:
    """One bucket of its own, kept in every version; hosts by name; a log of what clients did.

    Args:
        gateway: A running emulator (`fake_gcs.process.FakeGcs`).
        directory: For logs and work directories.
        mutant: How every host is broken (`tests.chaos.mutations`).
        settings: Of every host, unless its own say otherwise.
    """

    def __init__(self, gateway, directory, *, lease=LEASE, mutant="", **settings):
        self.gateway = gateway
        self.directory = Path(directory)
        self.lease = lease
        self.mutant = mutant
        self.settings = {"lease_seconds": lease, "log_level": "info", **settings}
        self.bucket = _versioned_bucket(gateway.url)
        self.hosts = {}
        self.clients = Clients(self)
        self.events = []
        self.phase = "run"
        self.faults = []
        self.notes = {}

    async def __aenter__(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_):
        self.faultless()
        await self.clients.close()
        await asyncio.gather(*(host.gone() for host in self.hosts.values()))
        for host in self.hosts.values():
            await host.wire.close()

    async def host(self, name, *, clock=0.0, **settings):
        """Starts a host whose clock is wrong by so many hours, and returns it."""
        wire = await Wire(self.gateway.url).open()
        host = self.hosts[name] = Host(self, name, wire, clock, {**self.settings, **settings})
        await host.start()
        return host

    async def start(self, *names, **settings):
        """Starts hosts at the same time; those that are there are mended instead."""
        return list(await asyncio.gather(*(self._mended(name, settings) for name in names)))

    async def _mended(self, name, settings):
        host = self.hosts.get(name)
        if host is None:
            return await self.host(name, **settings)
        assert host.settings == {**self.settings, **settings}, f"host {name} is there, with other settings"
        host.wire.forget()
        if host.stopped:
            host.resume()
        host.heal()
        if not host.process.running:
            return await host.start()
        await host.ready()
        return host

    def fault(self, fault):
        """Puts a fault of the gateway in force for this bucket, until the end."""
        added = self.gateway.add_fault(fault)
        self.faults.append(added)
        return added

    def faultless(self):
        """Ends all faults of this bucket."""
        for fault in self.faults:
            fault.remove()
        self.faults.clear()

    def note(self, what, host=""):
        self.events.append({"at": time.time(), "what": what, "host": host})

    def agent_log(self):
        path = self.directory / "agents.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def writes(self):
        """The committed writes of the bucket, without their bodies."""
        return self.gateway.history(self.bucket)

    async def trace(self):
        """Everything that happened, as one JSON document: what `tests.chaos.checker.check` takes."""
        self.faultless()
        writes = self.writes()
        await _fetch_bodies(self.gateway.url, self.bucket, writes)
        return {
            "lease": self.lease,
            "writes": writes,
            "calls": self.clients.calls,
            "agents": self.agent_log(),
            "events": self.events,
            **self.notes,
        }

    # ------------------------------------------------------------------ looking into the bucket

    def body(self, key, generation=None):
        """What is stored, now or in a generation; None if there is nothing."""
        try:
            with urllib.request.urlopen(_media_url(self.gateway.url, self.bucket, key, generation)) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == httpx.codes.NOT_FOUND:
                    return None
                raise

    def record(self, context, task):
        """task.json's metadata as last written; None if there is none."""
        key = f"contexts/{context}/{task}/task.json"
        found = self.gateway.history(self.bucket, key)
        return found[-1]["metadata"] if found else None

    def tasks(self, context):
        """Every task.json of a context: task to metadata."""
        found = {}
        for write in self.gateway.history(self.bucket, f"contexts/{context}/"):
            if write["key"].endswith("/task.json"):
                found[write["key"].split("/")[2]] = write["metadata"]
        return found


class Host:
    """One `a2a-gcs serve`, and its wire to the bucket.

    Attributes:
        url: Where clients reach it; "" while it is not running.
    """

    def __init__(self, world, name, wire, clock, settings):
        self.world, self.name, self.wire, self.settings = world, name, wire, settings
        environment = {
            "STORAGE_EMULATOR_HOST": wire.url,
            "PYTHONPATH": f"{REPOSITORY / 'service'}:{REPOSITORY}",
            "CHAOS_LOG": str(world.directory / "agents.jsonl"),
            "CHAOS_HOST": name,
            "CHAOS_CLOCK": str(clock),
            "CHAOS_MUTANT": world.mutant,
        }
        self.process = HostProcess(
            Place(f"gs://{world.bucket}", environment),
            log=world.directory / f"{name}.log",
            agent=AGENT,
            work_dir=world.directory / f"work-{name}",
            **settings,
        )
        self.stopped = False
        self.url = ""

    @property
    def serves(self):
        return bool(self.url) and self.process.running and not self.stopped

    async def start(self):
        """Starts it; again where faults of the bucket have kept it from starting, as whoever runs hosts does."""
        for last in (False, False, False, True):
            try:
                await asyncio.to_thread(self.process.start)
                break
            except AssertionError:
                if last or not self.world.faults:
                    raise
        self.url = self.process.url
        self.world.note("start", self.name)
        return self

    async def ready(self):
        """Returns once the host says that it can work: it has renewed its lease."""
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as http:

            async def look():
                try:
                    return (await http.get(f"{self.url}/ready")).status_code == httpx.codes.OK
                except httpx.HTTPError:
                    return False

            await until(look, what=f"/ready of {self.name}")

    async def kill(self):
        self.world.note("kill", self.name)
        self.stopped = False
        await asyncio.to_thread(self.process.kill)

    async def terminate(self):
        """SIGTERM; returns seconds until its end and its exit status."""
        self.world.note("term", self.name)
        began = time.monotonic()
        status = await asyncio.to_thread(self.process.terminate)
        self.world.note("ended", self.name)
        return time.monotonic() - began, status

    def suspend(self):
        self.world.note("stop", self.name)
        self.stopped = True
        self.process.suspend()

    def resume(self):
        self.process.resume()
        self.stopped = False
        self.world.note("cont", self.name)

    def cut(self, *, silently=False):
        """Parts it from the bucket: connections break, or are silent."""
        self.world.note("cut", self.name)
        self.wire.swallow() if silently else self.wire.cut()

    def heal(self):
        self.wire.heal()
        self.world.note("heal", self.name)

    async def gone(self):
        if self.process.running:
            await asyncio.to_thread(self.process.kill)


def _versioned_bucket(url):
    """A bucket that keeps every version of every object, so that the history's bodies can be read afterwards.

    The hosts read by ifGenerationMatch alone, so they cannot tell.
    """
    name = f"chaos-{uuid.uuid4().hex[:16]}"
    body = json.dumps({"name": name, "versioning": {"enabled": True}}).encode()
    request = urllib.request.Request(
        f"{url}/storage/v1/b?project=chaos", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request):
        return name


def _media_url(url, bucket, key, generation):
    only = f"&generation={generation}" if generation is not None else ""
    return f"{url}/storage/v1/b/{bucket}/o/{quote(key, safe='')}?alt=media{only}"


async def _fetch_bodies(url, bucket, writes):
    """Adds `body` (text) to the JSON records and pointers, `archive` (base64) to the workspaces."""
    gate = asyncio.Semaphore(16)
    async with httpx.AsyncClient(timeout=60.0, trust_env=False) as http:

        async def fetch(write):
            async with gate:
                answer = await http.get(_media_url(url, bucket, write["key"], write["generation"]))
            answer.raise_for_status()
            if write["key"].endswith(".tar.gz"):
                write["archive"] = base64.b64encode(answer.content).decode()
            else:
                write["body"] = answer.text

        await asyncio.gather(*(fetch(w) for w in writes if not w["deleted"]))


@contextlib.contextmanager
def dumped(trace, path):
    """Leaves a trace behind for `python -m tests.chaos.checker` if the block fails."""
    try:
        yield
    except BaseException:
        Path(path).write_text(json.dumps(trace))
        raise
