"""The invariants I1 to I7 over what is in a bucket, checked after every write and whenever a client is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from a2a_gcs.layout import TaskRef, context_key, parse_task, pointer_key, workspace_key
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.objectstore.port import Blob
from a2a_gcs.records import TURN_STRIDE, ContextRecord, TaskMeta
from a2a_gcs.task_json import parse_task_json

CONTEXT = "ctx"
TERMINAL = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}
COMPLETED, FAILED, CANCELED = (f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED"))


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Stored:
    """A task.json as it is in the bucket."""

    state: str
    meta: TaskMeta
    parts: tuple[str, ...]

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def parked(self) -> bool:
        return not self.terminal and not self.meta.open


@dataclass
class Invariants:
    """What must hold in one bucket with one context.

    Attributes:
        bucket: Where everything is.
        suspected: Hosts that looked dead at some time: for their requests less is promised.
        trace: Where is noted what clients are told.
    """

    bucket: MemoryStore
    suspected: list[str]
    trace: list[str]
    told: dict[str, str] = field(default_factory=dict)
    acknowledged: dict[str, list[str]] = field(default_factory=dict)
    answered: list[str] = field(default_factory=list)
    claims: list[tuple[str, str | None]] = field(default_factory=list)

    # ------------------------------------------------------------------ what clients are told

    def tell(self, task_id: str, state: str) -> None:
        """A client is told this state of a task."""
        before = self.told.get(task_id)
        if before in TERMINAL and state != before:
            raise Violation(f"I2: a client was told {before}, then {state}")
        self.told[task_id] = state
        self.trace.append(f"told: {task_id} {state}")
        self._check_told()

    def answer(self, name: str, task_id: str) -> None:
        """A client has a Message for its answer, from a host that nobody had reason to hold for dead."""
        if name not in self.suspected:
            self.answered.append(task_id)
            self.check(name, "", None)

    def acknowledge(self, task_id: str, part: str) -> None:
        self.acknowledged.setdefault(task_id, []).append(part)

    # ------------------------------------------------------------------ invariants

    def tasks(self) -> dict[str, Stored]:
        found = {}
        for key, blob in self.bucket._objects.items():
            if (ref := parse_task(key)) is not None:
                found[ref.task_id] = stored(key, blob)
        return found

    def context(self) -> ContextRecord | None:
        blob = self.bucket._objects.get(context_key(CONTEXT))
        return ContextRecord.parse("", blob.body) if blob else None

    def check(self, host: str, key: str, before: Blob | None) -> None:
        """What must hold after a write. Raises Violation."""
        tasks = self.tasks()
        if key == context_key(CONTEXT):
            self._check_claim(tasks, before)
        if (ref := parse_task(key)) is not None:
            self._check_task(host, ref, stored(key, before) if before else None, tasks[ref.task_id])
        alive = [task_id for task_id, task in tasks.items() if not task.terminal]
        if len(alive) > 1:
            raise Violation(f"I1: {alive} are not terminal")
        if left := [task_id for task_id in self.answered if task_id in tasks]:
            raise Violation(f"a Message answer left {left} behind")
        for task_id, task in tasks.items():
            if pointer_key(task_id) not in self.bucket._objects:
                raise Violation(f"I3: {task_id} has no pointer")
            archive = self.bucket._objects.get(workspace_key(TaskRef(CONTEXT, task_id)))
            if (
                task.state == COMPLETED
                and task.meta.pin
                and (archive is None or archive.info.version != task.meta.pin.generation)
            ):
                raise Violation(f"I4, I7: the archive that {task_id} pins is not there")
        self._check_told()

    def _check_told(self) -> None:
        tasks = self.tasks()
        for task_id, state in self.told.items():
            if state in TERMINAL and (task_id not in tasks or tasks[task_id].state != state):
                raise Violation(f"I2: told {task_id} {state}, stored is {tasks.get(task_id)}")

    def _check_claim(self, tasks: dict[str, Stored], before: Blob | None) -> None:
        """I5: a claim starts from the newest COMPLETED of the claims before it."""
        old = ContextRecord.parse("", before.body) if before else None
        record = self.context()
        assert record is not None
        if old is not None and record.epoch <= old.epoch:
            raise Violation("the epoch did not grow")
        if record.active is None or (old and old.active == record.active):
            return
        done = [t for t, _ in self.claims if t in tasks and tasks[t].state == COMPLETED]
        base = record.last_completed.task_id if record.last_completed else None
        if base != (done[-1] if done else None):
            raise Violation(f"I5: {record.active.task_id} starts from {base}, but {done} had completed")
        self.claims.append((record.active.task_id, base))

    def _check_task(self, host: str, ref: TaskRef, old: Stored | None, new: Stored) -> None:
        if old is None:
            return
        if old.terminal:
            raise Violation(f"I2, I7: {host} wrote {new.state} over {old.state} of {ref.task_id}")
        if new.parts[: len(old.parts)] != old.parts:
            raise Violation(f"I2: artifacts of {ref.task_id} were lost: {old.parts} became {new.parts}")
        if old.parked and new.state == FAILED:
            raise Violation(f"I2: {ref.task_id} was parked, and {host} failed it")
        if new.meta.seq <= old.meta.seq:
            raise Violation(f"the version of {ref.task_id} did not grow")
        same = (new.meta.owner, new.meta.turn) == (old.meta.owner, old.meta.turn)
        if not same and not (old.parked and new.meta.turn == old.meta.turn + 1 and new.meta.open):
            raise Violation(f"I7: {new.meta.owner} wrote {ref.task_id}, whose turn is {old.meta.owner}'s")
        ours = new.meta.owner.startswith(f"{host}/") and new.meta.seq < (new.meta.turn + 1) * TURN_STRIDE
        missing = [part for part in self.acknowledged.get(ref.task_id, ()) if part not in new.parts]
        if new.terminal and ours and missing:
            raise Violation(f"I2: {missing} of {ref.task_id} were acknowledged, and are not in its end")


def stored(key: str, blob: Blob) -> Stored:
    task, _ = parse_task_json(key, blob.body)
    meta = TaskMeta.from_metadata(key, blob.info.metadata)
    return Stored(meta.state, meta, tuple(part.text for x in task.artifacts for part in x.parts))
