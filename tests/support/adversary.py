"""An adversarial scheduler: hosts over one bucket whose every storage operation it delays, fails, or lands late.

Each operation of a host waits in `World.pending` until the scheduler lets it go on. It may let it
pass, refuse it, commit it and lose its answer, or report a failure and commit it later. It crashes
hosts, makes living ones look dead, and starts requests when it likes. All of it follows from a seed.
After every committed write the invariants (ARCHITECTURE, *Invariants*) are checked against what is in the bucket.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from a2a_gcs.errors import Throttled, Unavailable
from a2a_gcs.layout import heartbeat_key
from a2a_gcs.objectstore import MemoryStore, RetryingStore
from a2a_gcs.objectstore.port import ObjectStore
from tests.support.hosts import Host
from tests.support.invariants import Invariants, Violation


@dataclass(eq=False)
class Op:
    """An operation of a host that has not been answered."""

    host: str
    name: str
    key: str
    call: Callable[[], Awaitable[object]]
    answer: asyncio.Future

    @property
    def writes(self) -> bool:
        return self.name == "put"


class SteppedStore(ObjectStore):
    """What one host sees of the bucket: nothing happens before the scheduler says so."""

    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self._host = host

    async def _step(self, name: str, key: str, call: Callable[[], Awaitable[object]]) -> object:
        if self._world.closed:
            raise asyncio.CancelledError
        op = Op(self._host, name, key, call, asyncio.get_running_loop().create_future())
        self._world.pending.append(op)
        return await op.answer

    async def get(self, key, *, version=None, with_metadata=False):
        bucket = self._world.bucket
        return await self._step("get", key, lambda: bucket.get(key, version=version, with_metadata=with_metadata))

    async def head(self, key):
        return await self._step("head", key, lambda: self._world.bucket.head(key))

    async def put(self, key, body, mode, *, metadata=None, content_type="application/octet-stream"):
        async def write():
            before = self._world.bucket._objects.get(key)
            info = await self._world.bucket.put(key, body, mode, metadata=metadata, content_type=content_type)
            self._world.law.check(self._host, key, before)
            return info

        return await self._step("put", key, write)

    async def delete(self, key, *, version=None):
        async def remove():
            await self._world.bucket.delete(key, version=version)
            self._world.law.check(self._host, key, None)

        return await self._step("delete", key, remove)

    async def list(self, prefix, *, start="", page=None, limit=1000):
        return await self._step("list", prefix, lambda: self._world.bucket.list(prefix, start=start, page=page))

    async def put_stream(self, key, chunks, mode, *, metadata=None, content_type=""):
        raise NotImplementedError

    def stream(self, key, *, version=None):
        raise NotImplementedError

    async def compose(self, key, sources, mode, *, metadata=None, content_type=""):
        raise NotImplementedError

    async def close(self):
        return


@dataclass
class Budget:
    """How often the adversary may do what.

    Attributes:
        faults: Operations that fail, lose their answer or land late.
        rate: How likely a write is to be one of them.
        crashes: Hosts that end in the middle of everything.
        suspicions: Living hosts that look dead for a while.
    """

    faults: int = 3
    rate: float = 0.25
    crashes: int = 1
    suspicions: int = 1


@dataclass
class World:
    """The bucket, the hosts on it, and what goes on between them."""

    seed: int
    budget: Budget = field(default_factory=Budget)
    trace: list[str] = field(default_factory=list)
    pending: list[Op] = field(default_factory=list)
    late: list[Op] = field(default_factory=list)
    hosts: dict[str, Host] = field(default_factory=dict)
    crashed: list[str] = field(default_factory=list)
    suspected: list[str] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.bucket = MemoryStore()
        self.law = Invariants(self.bucket, self.suspected, self.trace)

    # ------------------------------------------------------------------ hosts

    async def host(self, name: str) -> Host:
        ticks, ids = itertools.count(), itertools.count()

        async def at_once(_seconds: float) -> None:
            await asyncio.sleep(0)

        store = RetryingStore(
            SteppedStore(self, name),
            budget=self.random.randrange(1, 5),
            throttled_wait=0.0,
            sleep=at_once,
            clock=lambda: next(ticks),
            jitter=lambda: 0.0,
            new_id=lambda: f"{name}:{next(ids)}",
        )
        host = self.hosts[name] = Host(store, name)
        await self.beat(name)
        return host

    async def beat(self, name: str) -> None:
        host = self.hosts[name]
        mine, host.bucket = host.bucket, self.bucket
        await host.beat()
        host.bucket = mine

    async def lose_heartbeat(self, name: str) -> None:
        if heartbeat_key(name) in self.bucket._objects:
            await self.bucket.delete(heartbeat_key(name))

    async def pause(self, name: str) -> None:
        """A point in a request at which the scheduler may let others go first."""

        async def nothing() -> None:
            return None

        op = Op(name, "go on", "", nothing, asyncio.get_running_loop().create_future())
        self.pending.append(op)
        await op.answer

    # ------------------------------------------------------------------ the scheduler

    async def run(self, requests: list[tuple[str, Callable[[Host], Awaitable[None]]]]) -> None:
        """Runs requests, each on its host, to the end of all of them."""
        self._errors: list[BaseException] = []
        self.closed = False
        running: list[asyncio.Task] = []
        waiting = list(requests)
        try:
            while True:
                await self._settle()
                if self._errors:
                    raise self._errors[0]
                busy = any(not task.done() for task in running if task.get_name() not in self.crashed)
                choices = [op for op in self.pending if op.host not in self.crashed]
                if not waiting and not choices and not busy:
                    return
                if not choices and not waiting and not self.late:
                    raise Violation("a request waits for ever for nothing")
                await self._act(choices, waiting, running)
        finally:
            self.closed = True
            for op in self.pending:
                op.answer.cancel()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for host in self.hosts.values():
                await host.tasks.aclose()

    async def _act(self, choices, waiting, running) -> None:
        roll = self.random.random()
        if waiting and (roll < 0.15 or not choices):
            name, program = waiting.pop(self.random.randrange(len(waiting)))
            if name not in self.crashed:
                running.append(asyncio.create_task(self._guarded(name, program), name=name))
        elif self.late and (roll < 0.25 or not choices):
            await self._land(self.late.pop(self.random.randrange(len(self.late))))
        elif roll < 0.28:
            await self._disturb()
        elif roll < 0.33:
            name = self.random.choice([h for h in self.hosts if h not in self.crashed])
            self._note(f"{name} renews")
            await self.beat(name)
        elif choices:
            op = self.random.choice(choices)
            self.pending.remove(op)
            await self._answer(op)

    async def _guarded(self, name, program) -> None:
        try:
            await program(self.hosts[name])
        except Exception as e:  # noqa: BLE001 - of whatever kind, it ends the schedule
            self._errors.append(e)

    async def _disturb(self) -> None:
        living = [name for name in self.hosts if name not in self.crashed]
        name = self.random.choice(living)
        if self.budget.crashes and len(living) > 1 and self.random.random() < 0.5:
            self.budget.crashes -= 1
            self.crashed.append(name)
            self._note(f"{name} CRASHES")
            for op in [op for op in self.pending if op.host == name]:
                self.pending.remove(op)
                if op.writes and self.random.random() < 0.5:
                    self.late.append(op)
            await self.lose_heartbeat(name)
        elif self.budget.suspicions:
            self.budget.suspicions -= 1
            self.suspected.append(name)
            self._note(f"{name} looks dead")
            await self.lose_heartbeat(name)

    async def _answer(self, op: Op) -> None:
        if op.writes and self.budget.faults and self.random.random() < self.budget.rate:
            self.budget.faults -= 1
            effect = self.random.choice(["refused", "lost", "late"])
            self._note(f"{op.host}: {op.name} {op.key}: {effect}")
            if effect == "lost":
                await self._land(op)
            elif effect == "late":
                self.late.append(op)
            error = Throttled(op.key) if effect == "refused" else Unavailable(op.key, ambiguous=True)
            op.answer.set_exception(error)
            return
        try:
            result = await op.call()
        except Violation as e:
            self._errors.append(e)
            op.answer.cancel()
        except Exception as e:  # noqa: BLE001 - the host's to deal with
            self._note(f"{op.host}: {op.name} {op.key}: {type(e).__name__}")
            op.answer.set_exception(e)
        else:
            self._note(f"{op.host}: {op.name} {op.key}")
            op.answer.set_result(result)

    async def _land(self, op: Op) -> None:
        try:
            await op.call()
        except Violation as e:
            self._errors.append(e)
        except Exception as e:  # noqa: BLE001 - nobody waits for it
            self._note(f"{op.host}: {op.name} {op.key} lands: {type(e).__name__}")
        else:
            self._note(f"{op.host}: {op.name} {op.key} lands")

    async def _settle(self) -> None:
        """Lets every request go on to its next operation."""
        for _ in range(12):
            await asyncio.sleep(0)

    def _note(self, text: str) -> None:
        self.trace.append(text)
