"""The ledger and the store against an adversary: no interleaving of faults, crashes and requests breaks an invariant.

A failure names its seed and the steps that led there. `A2A_GCS_PROTOCOL_SEEDS` trades time for depth.
"""

import asyncio
import itertools
import os

import pytest
from a2a.server.cluster import ConcurrentTaskModificationError
from a2a.types.a2a_pb2 import Task, TaskState
from structlog.testing import capture_logs

from a2a_gcs.claims import End
from a2a_gcs.errors import Conflict, StoreError
from a2a_gcs.layout import parse_pointer, workspace_key
from a2a_gcs.ledger.errors import ContextBusy, Fenced, Refused, Repeated
from a2a_gcs.objectstore.port import IF_ABSENT, IfVersion
from a2a_gcs.records import Pin
from tests.support.adversary import Budget, World
from tests.support.hosts import COMPLETED, FAILED, INPUT_REQUIRED, WORKING, makes, message, ref, says, status
from tests.support.invariants import CONTEXT, TERMINAL, Violation

SEEDS = int(os.environ.get("A2A_GCS_PROTOCOL_SEEDS", "120"))
CASES = 8


class Requests:
    """What clients do, as programs that run on one host each."""

    def __init__(self, world):
        self.world = world
        self.random = world.random
        self._parts = itertools.count()
        self._tasks = itertools.count()

        self._kinds = [self.new, self.answer, self.cancel, self.read, self.new_or_message]
        self._weights = [self.random.choice([0, 1, 3]) for _ in self._kinds]  # every seed has a mix of its own
        self._weights[0] += 1

    def choose(self, count):
        kinds = self.random.choices(self._kinds, self._weights, k=count)
        return [(self.random.choice("ab"), kind) for kind in kinds]

    async def new(self, host):
        await self._new(host, "task")

    async def new_or_message(self, host):
        await self._new(host, self.random.choice(["message", "surrender"]))

    async def _new(self, host, kind):
        try:
            claim = await host.ledger.claim(ref(CONTEXT, f"t{next(self._tasks)}"), message())
            if kind == "message":
                await host.ledger.release(claim)
                self.world.law.answer(host.name, claim.ref.task_id)
            elif kind == "surrender":
                await host.ledger.surrender(claim)
        except (Refused, Repeated, StoreError, Fenced):
            return
        if kind == "task":
            first = Task(id=claim.ref.task_id, context_id=CONTEXT, status=status(WORKING))
            await self._turn(host, claim, first)

    async def answer(self, host):
        if (task_id := self._some_task()) is None:
            return
        try:
            claim = await host.answer(task_id)
        except (Refused, StoreError):
            return
        await self._turn(host, claim, None)

    async def cancel(self, host):
        if (task_id := self._some_task()) is None:
            return
        try:
            record = await host.tasks.cancel(task_id)
        except StoreError:
            return
        if record is not None:
            self.world.law.tell(task_id, record.meta.state)

    async def read(self, host):
        if (task_id := self._some_task()) is None:
            return
        before = self.world.law.told.get(task_id)
        try:
            record = await host.tasks.read(task_id)
        except StoreError:
            return
        state = record.meta.state if record else None
        if before in TERMINAL and state != before:
            raise Violation(f"I2: a client was told {before}, then reads {state}")

    def _some_task(self):
        pointers = [task_id for key in self.world.bucket._objects if (task_id := parse_pointer(key)) is not None]
        return self.random.choice(pointers) if pointers else None

    # ------------------------------------------------------------------ an agent's turn, as executor and SDK run it

    async def _turn(self, host, claim, first):
        sdk = host.sdk(claim)
        events = [] if first is None else [first]
        events += [makes(claim, f"x{next(self._parts)}", f"p{i}") for i in range(self.random.randrange(3))]
        if self.random.random() < 0.3:
            events.append(says(claim, TaskState.TASK_STATE_AUTH_REQUIRED))
        for event in events:
            await self.world.pause(host.name)
            if not await self._emit(host, claim, sdk, event):
                return
        await self._end(host, claim, sdk, self.random.choice([COMPLETED, COMPLETED, INPUT_REQUIRED, FAILED]))

    async def _end(self, host, claim, sdk, state):
        seen = claim.workspace_generation
        mode = IfVersion(seen) if seen else IF_ABSENT
        try:
            info = await host.bucket.put(workspace_key(claim.ref), b"tar", mode)
            claim.pin = Pin(generation=info.version, crc32c=info.crc32c)
        except Conflict:
            host.table.finish(claim, End.FENCED)
        except StoreError:
            state = FAILED
        if claim.held:
            event = says(claim, state)
            claim.park_with(event)
            await self._emit(host, claim, sdk, event)

    async def _emit(self, host, claim, sdk, event):
        """One event through the SDK's task manager: applied once more after a conflict, FAILED after a failure."""
        try:
            await sdk.process(event)
        except ConcurrentTaskModificationError:
            return await self._again(host, claim, sdk, event)
        except StoreError:
            await self._fail(claim, sdk)
            return False
        self._acknowledged(claim, event)
        return True

    async def _again(self, host, claim, sdk, event):
        sdk.invalidate()
        try:
            task = await sdk.get_task()
            if task is not None and TaskState.Name(task.status.state) in TERMINAL:
                self.world.law.tell(claim.ref.task_id, TaskState.Name(task.status.state))
                return False
            await sdk.process(event)
        except (ConcurrentTaskModificationError, StoreError):
            return False
        self._acknowledged(claim, event)
        return True

    async def _fail(self, claim, sdk):
        try:
            if await sdk.get_task() is not None:
                await sdk.process(says(claim, FAILED))
                self.world.law.tell(claim.ref.task_id, "TASK_STATE_FAILED")
        except (ConcurrentTaskModificationError, StoreError):
            return

    def _acknowledged(self, claim, event):
        if hasattr(event, "artifact"):
            self.world.law.acknowledge(claim.ref.task_id, event.artifact.parts[0].text)
        elif hasattr(event, "status"):
            self.world.law.tell(claim.ref.task_id, TaskState.Name(event.status.state))


async def probe(world):
    """I6: whatever became of the hosts, a new message goes on, or is told to answer a task that waits."""
    for name in world.hosts:
        if name in world.crashed:
            await world.lose_heartbeat(name)
        else:
            await world.beat(name)
    world.budget.faults = world.budget.crashes = world.budget.suspicions = 0
    world.late.clear()
    world.pending.clear()
    await world.host("p")

    async def claim(host):
        try:
            await host.claim(CONTEXT)
        except ContextBusy as e:
            if not e.waits:
                raise Violation(f"I6: blocked by {e.active.task_id}, which nobody runs") from e

    await world.run([("p", claim)])


@pytest.mark.parametrize("case", range(CASES))
def test_no_schedule_breaks_an_invariant(case):
    """I1 to I7 hold after every write, over two hosts with faults, crashes and false suspicions, in one context."""
    for seed in range(case * SEEDS, (case + 1) * SEEDS):
        with capture_logs():
            found = asyncio.run(_outcome(seed))
        assert found is None, found


async def _outcome(seed):
    world = World(seed)
    try:
        world.budget = Budget(
            faults=world.random.randrange(8),
            rate=world.random.choice([0.1, 0.25, 0.5]),
            crashes=world.random.randrange(2),
            suspicions=world.random.randrange(3),
        )
        for name in ("a", "b"):
            await world.host(name)
        await world.run(Requests(world).choose(world.random.randrange(2, 9)))
        await probe(world)
    except Exception as e:  # noqa: BLE001 - told with the steps that led to it
        steps = "\n  ".join(world.trace)
        return f"seed {seed}: {type(e).__name__}: {e}\n  {steps}"
    return None
