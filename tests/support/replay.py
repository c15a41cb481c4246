"""Replays a trace of the protocol model on real hosts: the requests of its scenario, in the order of its steps.

The model takes the steps without one of its rules. The real code has the rule, so at some step it does
something else; until then it follows. Then everything runs to its end. As in `tests.support.adversary`
the invariants are checked after every write.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from contextvars import ContextVar
from dataclasses import dataclass

from a2a.server.cluster import ConcurrentTaskModificationError
from a2a.types.a2a_pb2 import Task, TaskArtifactUpdateEvent, TaskState

from a2a_gcs.claims import Claim, End
from a2a_gcs.errors import Conflict, NotFound, StoreError, Unavailable
from a2a_gcs.layout import (
    TaskRef,
    context_key,
    heartbeat_key,
    journal_key,
    parse_task,
    pointer_key,
    task_key,
    workspace_key,
)
from a2a_gcs.ledger.errors import ContextBusy, Fenced, Refused, Repeated
from a2a_gcs.objectstore import MemoryStore, RetryingStore
from a2a_gcs.objectstore.port import IF_ABSENT, IfVersion, Mode
from a2a_gcs.records import Owner, Pin
from tests.support.adversary import Budget, Op, SteppedStore, World
from tests.support.hosts import (
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    Clock,
    Host,
    artifact,
    makes,
    message,
    says,
    status,
)
from tests.support.invariants import CONTEXT, TERMINAL, Invariants, Violation, stored
from tests.support.model_traces import Trace

_THREAD: ContextVar[str] = ContextVar("thread", default="")
_READS = {"get", "head"}
_ENDS = {"COMPLETED": COMPLETED, "INPUT": INPUT_REQUIRED}
_PATIENCE = 2000  # operations that a thread may take for one step, or to its end


@dataclass(eq=False)
class ThreadOp(Op):
    """An operation of one request, which may share its host with others."""

    thread: str

    @property
    def what(self) -> tuple[str, str]:
        return ("get" if self.name in _READS else self.name), self.key


class _Store(SteppedStore):
    async def _step(self, name, key, call):
        if self._world.closed:
            raise asyncio.CancelledError
        answer = asyncio.get_running_loop().create_future()
        op = ThreadOp(self._host, name, key, call, answer, _THREAD.get())
        self._world.pending.append(op)
        self._world.giving_up.discard(op.thread)
        return await answer


# ---------------------------------------------------------------- the steps of a trace


@dataclass(frozen=True)
class Step:
    """One step of a trace.

    Attributes:
        text: As the model prints it.
        thread: Who takes it, such as `A0`; empty for what the adversary does.
        what: The operation and its key; None for a step that touches no storage.
        outcome: done, 412, lost or late.
        judged: The host whose heartbeat is looked at.
    """

    text: str
    thread: str = ""
    what: tuple[str, str] | None = None
    outcome: str = "done"
    judged: str = ""

    @classmethod
    def parse(cls, text: str, threads: list[list]) -> Step:
        thread, _, does = text.partition(": ")
        if thread not in {*(f"{host}{i}" for i, (host, _, _) in enumerate(threads))}:
            return cls(text, what=_operation(text.partition("lands: ")[2]))
        does = does.partition(";")[0]
        if does.startswith("unflushed"):  # what the model answers from memory costs the real code a look
            return cls(text, thread, ("get", task_key(TaskRef(CONTEXT, "t0"))))
        if re.search("looks (dead|alive)|does not list|older than", does):
            judged = does[0] if does[0].isupper() else threads[0][0]
            return cls(text, thread, ("get", heartbeat_key(judged)), judged=judged)
        ends = {"412": "412", "lost": "lost", "out": "late"}
        outcome = next((ends[word] for word in does.split(" [")[0].split()[-1:] if word in ends), "done")
        return cls(text, thread, _operation(does), outcome)


def _operation(does: str) -> tuple[str, str] | None:
    if does.startswith("('turn'"):  # a turn claimed on the ledger: here it is claimed on task.json
        return "put", task_key(TaskRef(CONTEXT, "t0"))
    if found := re.match(r"(\w+) \(?\('j', (\d), (\d)\)", does):
        turn, batch = int(found[2]) or 1, int(found[3])  # the model numbers by task where it leaves out *jturn*
        name = {"get": "get", "del": "delete"}.get(found[1], "put")
        return name, journal_key(TaskRef(CONTEXT, "t0"), turn, batch)
    if not (found := re.match(r"(\w+) \(?\(?'?(ctx|ptr|task|ws)'?(?:, (\d))?", does)):
        return None
    kind, where, number = found.groups()
    ref = TaskRef(CONTEXT, f"t{number}")
    keys = {"ctx": context_key(CONTEXT), "ptr": pointer_key(ref.task_id), "task": task_key(ref)}
    name = {"get": "get", "del": "delete"}.get(kind, "put")
    return name, keys.get(where) or workspace_key(ref)


# ---------------------------------------------------------------- requests


class Request:
    """A client's request, and the agent's turn that it starts; the agent does what the trace says."""

    def __init__(self, world: Replay, name: str, host: Host) -> None:
        self.world, self.name, self.host = world, name, host
        mine = [step for step in world.trace_of_model.steps if step.startswith(f"{name}: ")]
        self._script = [said for step in mine for said in re.findall(r"agent: (\w+(?: on)?)", step)]

    def choose(self, *options: str) -> str:
        """What the agent does next in the trace; the first of the options after its end."""
        while self._script:
            if (said := self._script.pop(0)) in options:
                return said
        return options[0]

    async def run(self, program: str, args: list) -> None:
        _THREAD.set(self.name)
        try:
            await getattr(self, program)(f"t{args[0]}", *args[1:])
        except (Refused, StoreError, Fenced, ConcurrentTaskModificationError):
            return

    async def new(self, task_id: str, message_id: str) -> None:
        try:
            claim = await self.host.ledger.claim(TaskRef(CONTEXT, task_id), message("hello", message_id))
        except Repeated as e:
            if e.ref.task_id not in self.world.law.tasks():
                raise Violation(f"I2: a repeat is told of {e.ref.task_id}, which does not exist") from e
            return
        await self._restore(claim)
        first = Task(id=task_id, context_id=CONTEXT, status=status(WORKING))
        if self.choose("task", "message") == "task":
            if await self.emit(claim, first):
                await self.work(claim, parks=True)
            return
        await self.host.ledger.release(claim)
        self.world.law.answer(self.host.name, task_id)
        if self.choose("return", "raise") == "raise":
            await self.emit(claim, first)

    async def answer(self, task_id: str) -> None:
        claim = await self.host.answer(task_id)
        await self._restore(claim)
        await self.work(claim, parks=False)

    async def cancel(self, task_id: str) -> None:
        if (record := await self.host.tasks.cancel(task_id)) is not None:
            self.world.law.tell(task_id, record.meta.state)

    async def read(self, task_id: str) -> None:
        before = self.world.law.told.get(task_id)
        record = await self.host.tasks.read(task_id)
        state = record.meta.state if record else None
        if before in TERMINAL and state != before:
            raise Violation(f"I2: a client was told {before}, then reads {state}")

    # ------------------------------------------------------------ journal and streams

    async def begin(self, task_id: str) -> None:
        """The turn that runs when a scenario about the journal begins."""
        self.world.begun = await self.host.start(CONTEXT, message(), task_id)

    async def jwriter(self, _task_id: str, *args) -> None:
        claim = self.world.begun
        assert claim is not None
        *_, events, end, goes_on = args
        await self._says_all(claim, events, end)
        if goes_on:
            await self.goes_on(claim)

    async def janswer(self, task_id: str, events: list, end: str) -> None:
        await self._says_all(await self.host.answer(task_id), events, end)

    async def _says_all(self, claim: Claim, events: list, end: str) -> None:
        """A batch per event, then the end of the turn."""
        for n, text in enumerate(events, 1):
            await self.emit(claim, makes(claim, text, text))
            while claim.held and self.host.tasks._writer(claim).batches < n:  # noqa: ASYNC110 - a look is cheap
                await asyncio.sleep(0.001)
            task = self.world.law.tasks()[claim.ref.task_id]
            if claim.end is End.FENCED and task.meta.owner == str(claim.owner) and task.meta.open:
                raise Violation("J: a batch that exists blocks the legitimate writer")
        event = says(claim, _ENDS[end])
        claim.park_with(event)
        await self.emit(claim, event)

    async def jreader(self, task_id: str) -> None:
        """A subscriber on another host."""
        wanted: list | None = None
        async for event in self.host.stream.follow(task_id):
            got = _told(event)
            state, stored_state = got[-1], self.world.law.tasks()[task_id].state
            if state in TERMINAL and state != stored_state:
                raise Violation(f"I2: a stream told {state}, stored is {stored_state}")
            if wanted is None:
                wanted = [due for due in self._everything() if due not in got]
                self.world.snapshots.add(self.name)
            elif got != [(due := wanted.pop(0))]:
                raise Violation(f"J: a stream got {got} where {due} was due")

    def _everything(self) -> list[str]:
        """What the turns of the scenario put out, in order."""
        everything = []
        for _, program, args in self.world.trace_of_model.threads:
            if program in {"jwriter", "janswer"}:
                events, end = args[4:6] if program == "jwriter" else args[1:3]
                everything += [*events, TaskState.Name(_ENDS[end])]
        return everything

    # ------------------------------------------------------------ the turn

    async def work(self, claim: Claim, *, parks: bool) -> None:
        seen, made = claim.workspace_generation, bool(claim.record.task.artifacts)
        while True:
            does = self.choose("complete", *(["park"] if parks else []), *([] if made else ["artifact"]))
            if does == "artifact":
                await self.host.save(claim, WORKING, artifact())
                self.world.law.acknowledge(claim.ref.task_id, "content")
                made = True
                continue
            state = COMPLETED if does == "complete" else INPUT_REQUIRED
            try:
                info = await self.host.bucket.put(workspace_key(claim.ref), b"tar", self.mode(seen))
                seen, claim.pin = info.version, Pin(generation=info.version, crc32c=info.crc32c)
            except Conflict:
                self.host.table.finish(claim, End.FENCED)
                return
            except StoreError:
                state = FAILED
            event = says(claim, state)
            claim.park_with(event)
            if not await self.emit(claim, event) or does == "complete" or self.choose("stop", "go on") == "stop":
                return
            if not await self.goes_on(claim):
                return
            parks = False

    def mode(self, seen: int) -> Mode:
        """On what condition the workspace is stored (rule *wscas*)."""
        return IfVersion(seen) if seen else IF_ABSENT

    async def goes_on(self, claim: Claim) -> bool:
        """Whether the agent may do more after it has parked the task (rule *unpark*)."""
        return await self.emit(claim, says(claim, WORKING))

    async def emit(self, claim: Claim, event) -> bool:
        """One event through the SDK's task manager, which applies it once more after a conflict."""
        sdk, told = self.host.sdk(claim), self.world.law.tell
        try:
            await sdk.process(event)
        except ConcurrentTaskModificationError:
            sdk.invalidate()
            task = await sdk.get_task()
            if task is not None and TaskState.Name(task.status.state) in TERMINAL:
                told(claim.ref.task_id, TaskState.Name(task.status.state))
                return False
            await sdk.process(event)
        if isinstance(event, TaskArtifactUpdateEvent):
            self.world.law.acknowledge(claim.ref.task_id, event.artifact.parts[0].text)
        else:
            told(claim.ref.task_id, TaskState.Name(event.status.state))
        return True

    async def _restore(self, claim: Claim) -> None:
        """The workspace to start from has to be there, unless the claim has been lost meanwhile."""
        if claim.base is None or claim.base_ref is None:
            return
        try:
            await self.host.bucket.get(workspace_key(claim.base_ref), version=claim.base.generation)
        except NotFound as e:
            task, record = self.world.law.tasks().get(claim.ref.task_id), self.world.law.context()
            owner = task.meta.owner if task else record.active.owner if record and record.active else ""
            if owner == str(claim.owner) and not (task and task.terminal):
                raise Violation(f"I4, I5: the archive that {claim.ref.task_id} starts from is gone") from e


def _told(event) -> list[str]:
    """What an event of a stream says: the text of an artifact, a state, or all that a Task holds."""
    if isinstance(event, TaskArtifactUpdateEvent):
        return [event.artifact.parts[0].text]
    made = [part.text for x in event.artifacts for part in x.parts] if isinstance(event, Task) else []
    return [*made, TaskState.Name(event.status.state)]


# ---------------------------------------------------------------- the scheduler


class Replay(World):
    """One trace on real hosts.

    Attributes:
        trace_of_model: What is replayed.
        followed: The steps that the real code took, with the same outcome.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(0, Budget(0, 0.0, 0, 0))
        self.clock = Clock()
        self.bucket = MemoryStore(now=self.clock)
        self.law = Invariants(self.bucket, self.suspected, self.trace)
        self.trace_of_model = trace
        self.followed: list[str] = []
        self.giving_up: set[str] = set()
        self.begun: Claim | None = None
        self.snapshots: set[str] = set()
        self._running: dict[str, asyncio.Task] = {}
        self._ahead: list[Step] = []

    async def host(self, name: str) -> Host:
        ids = itertools.count()

        async def at_once(_seconds: float) -> None:
            await asyncio.sleep(0)

        store = RetryingStore(
            _Store(self, name),
            throttled_wait=0.0,
            sleep=at_once,
            clock=lambda: math.inf if _THREAD.get() in self.giving_up else 0.0,
            jitter=lambda: 0.0,
            new_id=lambda: f"{name}:{next(ids)}",
        )
        host = self.hosts[name] = Host(store, name, keep_batches=60.0)
        await self.beat(name)
        return host

    async def replay(self) -> None:
        """Takes the steps, then runs everything to its end. Raises Violation."""
        for name in sorted({host for host, _, _ in self.trace_of_model.threads}):
            await self.host(name)
        try:
            await self._take_steps()
            for i, (host, _, _) in enumerate(self.trace_of_model.threads):
                await self._finish(f"{host}{i}")
            while self.late:
                await self._perform(self.late.pop(0))
        finally:
            self.closed = True
            for op in self.pending:
                op.answer.cancel()
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
        if self.begun is None:
            await self._probe()
        for host in self.hosts.values():
            await host.tasks.aclose()

    async def _take_steps(self) -> None:
        if self.trace_of_model.scenario.startswith("journal"):
            await self._begin()
        steps = [Step.parse(text, self.trace_of_model.threads) for text in self.trace_of_model.steps]
        for i, step in enumerate(steps):
            self._ahead = [later for later in steps[i + 1 :] if later.thread == step.thread]
            if await (self._take(step) if step.thread else self._disturb_by(step)):
                self.followed.append(step.text)

    # ------------------------------------------------------------ steps of a request

    async def _take(self, step: Step) -> bool:
        """Lets a request go on until it has done what the step says, or is about to do a later one's."""
        self._start(step.thread)
        if step.what is None:
            return True
        if step.judged and "older" in step.text:
            self.clock.now += 31
        if step.judged == step.thread[0]:  # a host knows its own claims
            return True
        for _ in range(_PATIENCE):
            choices = await self._choices(step.thread)
            if "snapshot" in step.text and step.thread in self.snapshots:
                return True
            op = next((op for op in choices if op.what == step.what and "snapshot" not in step.text), None)
            if op is not None:
                as_told = await self._answer_as(op, step) == step.outcome
                if as_told and step.text.endswith("]"):  # the model's request ends here; the real one may tidy up
                    await self._finish(step.thread)
                return as_told
            ahead = {later.what for later in self._ahead if later.what and later.what[0] != "get"}
            op = next((op for op in choices if op.what not in ahead), None)
            if op is None:
                return False
            await self._answer_as(op, None)
        raise Violation(f"{step.thread} goes on for ever")

    async def _answer_as(self, op: ThreadOp, step: Step | None) -> str:
        """Performs an operation and tells its request, or does to it what the step says. Its outcome."""
        self.pending.remove(op)
        wanted = step.outcome if step and op.writes else "done"
        if wanted in {"lost", "late"}:
            if "give up" in step.text:
                self.giving_up.add(op.thread)
            outcome = await self._perform(op) if wanted == "lost" else None
            if wanted == "late":
                self.late.append(op)
            op.answer.set_exception(Unavailable(op.key, ambiguous=True))
            return "412" if isinstance(outcome, Exception) else wanted
        result = await self._perform(op)
        if not isinstance(result, Exception):
            op.answer.set_result(result)
            return "done"
        op.answer.set_exception(result)
        return "412" if isinstance(result, Conflict) else "done"

    async def _perform(self, op: Op) -> object:
        """The operation's result or error; what it does to the bucket is checked."""
        for name in self.hosts:
            if op.key == heartbeat_key(name) and name not in {*self.crashed, *self.suspected}:
                await self.beat(name)
        runs = self._healthy_run(op)
        try:
            result = await op.call()
        except StoreError as e:
            self._note(f"{op.host}: {op.name} {op.key}: {type(e).__name__}")
            return e
        self._note(f"{op.host}: {op.name} {op.key}")
        if runs and stored(op.key, self.bucket._objects[op.key]).state == "TASK_STATE_FAILED":
            raise Violation(f"N: {op.host} killed a run of a healthy host: {op.key}")
        return result

    def _healthy_run(self, op: Op) -> bool:
        """Whether a write by this host would end a run of another, which lives."""
        ref = parse_task(op.key) if op.writes else None
        others = [host for name, host in self.hosts.items() if name not in {op.host, *self.crashed, *self.suspected}]
        record, tasks = self.law.context(), self.law.tasks()
        if ref is None or record is None:
            return False
        text = tasks[ref.task_id].meta.owner if ref.task_id in tasks else record.active.owner if record.active else ""
        owner = Owner.from_text(text)
        return any(owner and owner.host == host.name and owner.n in host.table.snapshot()[1] for host in others)

    async def _begin(self) -> None:
        """Starts the task that a scenario about the journal begins with."""
        request = Request(self, "begin", self.hosts["A"])
        self._running["begin"] = asyncio.create_task(request.run("begin", [0]))
        while await self._choices("begin"):
            for op in await self._choices("begin"):
                await self._answer_as(op, None)

    def _start(self, thread: str) -> None:
        if thread not in self._running:
            host, program, args = self.trace_of_model.threads[int(thread[1:])]
            request = Request(self, thread, self.hosts[host])
            self._running[thread] = asyncio.create_task(request.run(program, args), name=thread)

    async def _choices(self, thread: str) -> list[ThreadOp]:
        """What a request waits for; also after a pause of its own, such as a reader's between two looks."""
        for pause in (0.0, *[0.005] * 20):
            await asyncio.sleep(pause)
            await self._settle()
            for task in self._running.values():
                if task.done():
                    task.result()
            found = [op for op in self.pending if op.thread == thread and op.host not in self.crashed]
            if found or self._running[thread].done():
                return found
        return []

    # ------------------------------------------------------------ what the adversary does, and the end

    async def _disturb_by(self, step: Step) -> bool:
        name = step.text[0]
        if step.what is not None:
            found = [op for op in self.late if op.what == step.what]
            if found:
                self.late.remove(found[0])
                refused = isinstance(await self._perform(found[0]), Conflict)
                return refused == step.text.endswith("412")
            return False
        if "CRASHES" in step.text:
            self.crashed.append(name)
            await self.lose_heartbeat(name)
        elif "looks dead" in step.text:
            self.suspected.append(name)
            await self.lose_heartbeat(name)
        return True

    async def _finish(self, thread: str) -> None:
        """Runs a request to its end, and with it whatever it waits for."""
        if thread[0] in self.crashed:
            return
        self._start(thread)
        for _ in range(_PATIENCE):
            choices = await self._choices(thread)
            if self._running[thread].done():
                return
            choices = choices or [op for op in self.pending if op.host not in self.crashed]
            if not choices:
                break
            await self._answer_as(choices[0], None)
        raise Violation(f"{thread} goes on for ever")

    async def _probe(self) -> None:
        """I6: a new message goes on, or is told to answer a task that waits."""
        for name in self.hosts:
            if name in self.crashed:
                await self.lose_heartbeat(name)
            else:
                await self.beat(name)
        self.pending.clear()
        await self.host("P")

        async def claim(host: Host) -> None:
            try:
                await host.claim(CONTEXT)
            except ContextBusy as e:
                if not e.waits:
                    raise Violation(f"I6: blocked by {e.active.task_id}, which nobody runs") from e

        await self.run([("P", claim)])
