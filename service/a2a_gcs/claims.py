"""The claims that this process holds: the table task -> (owner, turn) by which its saves are fenced (invariant I7).

The table decides nothing that is durable: safety rests on compare-and-swap.
It tells the store whose saves to accept, the heartbeat which claims are open,
and the host whose agent to stop. All of it is used from one event loop; the
heartbeat's thread takes its snapshot under a lock.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import structlog
from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import Message, TaskState

from a2a_gcs import telemetry
from a2a_gcs.cas import Versioned
from a2a_gcs.clock import boottime
from a2a_gcs.errors import Unavailable
from a2a_gcs.layout import TaskRef, heartbeat_key
from a2a_gcs.objectstore.port import ObjectInfo
from a2a_gcs.records import Base, ContextRecord, Owner, Pin, TaskMeta
from a2a_gcs.task_json import state_name
from a2a_gcs.task_records import TaskRecord

log = structlog.get_logger(__name__)

_REMEMBERED_ENDS = 10_000
_REASON_CHARACTERS = 500


class End(enum.Enum):
    """Why a claim is no longer held."""

    TERMINAL = "terminal"
    PARKED = "parked"
    RELEASED = "released"
    SURRENDERED = "surrendered"
    CANCELED = "canceled"
    FENCED = "fenced"
    LAPSED = "lapsed"


_STORED = frozenset({End.TERMINAL, End.PARKED, End.CANCELED})
"""Ends after which `Claim.record` is the task as it is stored."""


class Stop(enum.Enum):
    """Why a run is to come to its end though its claim is held."""

    DRAIN = "the host is being restarted"
    DEADLINE = "the task ran too long"


@dataclass(eq=False, slots=True)
class Claim:
    """One turn of one task, held by this process.

    Attributes:
        ref: The task.
        owner: This process, and the number of the claim.
        turn: The turn of the task that was claimed, from 1.
        base: The snapshot to start from; None for an empty workspace.
        base_ref: Whose snapshot that is.
        workspace_generation: Generation of the task's own workspace.tar.gz at the claim, 0 if none (rule *wscas*).
        ledger: context.json as this claim wrote it; None for the claim of a further turn.
        pointer: The pointer that came with a new task's claim.
        entered: The message that the turn answers, as the history has it: large parts beside the task.
        record: task.json as this process wrote or read it last; version 0 until the first save.
        pin: The snapshot that the next final state goes with.
        parks_with: The very event that ends the turn in an interrupted state; None before the workspace is stored.
            Saves of earlier events may still be under way then, and the state may have been interrupted all along.
        patience: Seconds that the task may then wait for its answer; 0 for any time.
        quiet: Nobody is told of the task before its turn ends, so its beginning need not be stored at once.
        started: The agent runs, or is about to.
        reason: Why the turn ends in FAILED, in words that a log may hold; None while nobody knows.
        began: When it was claimed, by `boottime`.
        stop: Why its agent is to stop; None while it may go on.
        end: Why it ended; None while it is held.
    """

    ref: TaskRef
    owner: Owner
    turn: int
    record: TaskRecord
    entered: Message | None = None
    base: Pin | None = None
    base_ref: TaskRef | None = None
    workspace_generation: int = 0
    ledger: Versioned[ContextRecord] | None = None
    pointer: ObjectInfo | None = None
    pin: Pin | None = None
    parks_with: Event | None = None
    patience: int = 0
    quiet: bool = False
    started: bool = False
    reason: str | None = None
    began: float = field(default_factory=boottime)
    stop: Stop | None = None
    end: End | None = None
    _calls: list[Callable[[], None]] = field(default_factory=list)
    _starts: list[Callable[[], None]] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return self.end is None

    @property
    def origin(self) -> Base | None:
        """What to record of where the task started from: in its first turn what this claim does, later what it did."""
        if self.turn > 1:
            return self.record.meta.base
        return Base(self.base_ref.task_id, self.base.crc32c) if self.base and self.base_ref else Base()

    def start(self) -> None:
        """Says that the agent runs."""
        self.started = True
        starts, self._starts = self._starts, []
        for call in starts:
            call()

    def on_start(self, call: Callable[[], None]) -> None:
        """Calls `call` once the agent runs. At once if it does, or did."""
        if self.started:
            call()
        else:
            self._starts.append(call)

    def on_stop(self, call: Callable[[], None]) -> None:
        """Calls `call` once the agent has to stop: asked to, or because the claim ended. At once if that has been."""
        if self.end is None and self.stop is None:
            self._calls.append(call)
        else:
            call()

    def ask_to_stop(self, why: Stop) -> None:
        """Stops the agent; its turn then ends as `why` demands. Only the first reason counts."""
        if self.stop is None:
            self.stop = why
            self._call()

    def park_with(self, event: Event, reason: str | None = None) -> None:
        """Names the event that ends the turn, now that its workspace is stored; and if that is FAILED, why."""
        self.parks_with = event
        self.reason = reason

    def finish(self, end: End) -> None:
        """Marks the claim as ended. Only the first end counts."""
        if self.end is None:
            self.end = end
            self._call()

    def _call(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()


class ClaimNumbers:
    """The claims of one process, of all roots, by number; used by the host's loop and the heartbeat's thread."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.lock = threading.Lock()
        self.lease_ends = math.inf
        self.next = 1
        self.open: dict[int, TaskRef] = {}
        self.roots: dict[int, str] = {}
        self.tables: list[ClaimTable] = []


class ClaimTable:
    """The open claims of this process below one root, by task id, and the numbers they were given.

    Args:
        host: Names this process.
        root: The root, as in `a2a_gcs.layout`; empty for the bucket's prefix itself.
        numbers: Those of another table of the same process: one heartbeat lists them all.
    """

    def __init__(self, host: str, *, root: str = "", numbers: ClaimNumbers | None = None) -> None:
        self.root = root
        self.numbers = numbers or ClaimNumbers(host)
        self.numbers.tables.append(self)
        self._by_task: dict[str, Claim] = {}
        self._ended: dict[str, TaskMeta] = {}

    @property
    def host(self) -> str:
        return self.numbers.host

    def allot(self, ref: TaskRef) -> Owner:
        """Gives the next number, open from now on: before its claim is sent, as one that is not open counts as dead.

        Raises:
            Unavailable: The lease has run out, so that everybody holds this process's claims for dead.
        """
        numbers = self.numbers
        with numbers.lock:
            if boottime() >= numbers.lease_ends:
                raise Unavailable(heartbeat_key(self.host), TimeoutError("the heartbeat was not renewed in time"))
            n, numbers.next = numbers.next, numbers.next + 1
            numbers.open[n] = ref
            if self.root:
                numbers.roots[n] = self.root
        return Owner(host=self.host, n=n)

    def close(self, owner: Owner) -> None:
        """Takes a number off the open list; its outcome is durable, or its claim was never made."""
        with self.numbers.lock:
            self.numbers.open.pop(owner.n, None)
            self.numbers.roots.pop(owner.n, None)

    def snapshot(self) -> tuple[int, dict[int, TaskRef]]:
        """The process's next number and its open ones, of one instant; for the heartbeat, from any thread."""
        with self.numbers.lock:
            return self.numbers.next, dict(sorted(self.numbers.open.items()))

    def roots(self) -> dict[int, str]:
        """The roots of the open numbers that are not below the bucket's prefix itself."""
        with self.numbers.lock:
            return dict(self.numbers.roots)

    def hold(self, claim: Claim) -> bool:
        """Enters a claim that was won; not if the lease lapsed while it was on its way."""
        with self.numbers.lock:
            lapsed = claim.owner.n not in self.numbers.open
        if lapsed:
            claim.finish(End.LAPSED)
        else:
            self._by_task[claim.ref.task_id] = claim
        return not lapsed

    def get(self, task_id: str) -> Claim | None:
        """The open claim on a task, if this process holds it."""
        return self._by_task.get(task_id)

    def finish(self, claim: Claim, end: End) -> None:
        """Ends a claim; its number leaves the open list."""
        if self._by_task.get(claim.ref.task_id) is claim:
            del self._by_task[claim.ref.task_id]
        self.close(claim.owner)
        if claim.end is None:
            telemetry.turns_ended.add(1, {"end": end.value})
            _log_end(claim, end)
        if claim.end is None and end in {End.TERMINAL, End.CANCELED}:
            self._ended[claim.ref.task_id] = claim.record.meta
            if len(self._ended) > _REMEMBERED_ENDS:
                self._ended.pop(next(iter(self._ended)))
        claim.finish(end)

    def ended(self, task_id: str) -> TaskMeta | None:
        """What is stored of a task that came to its end here: the first terminal state is the last."""
        return self._ended.get(task_id)

    def lease_until(self, moment: float) -> None:
        """The process may make claims until then, by `boottime`; from any thread. For ever, if nobody says."""
        with self.numbers.lock:
            self.numbers.lease_ends = moment

    def disown(self) -> None:
        """Takes all numbers of the process off the open list, from any thread: their claims are about to lapse."""
        with self.numbers.lock:
            self.numbers.open.clear()
            self.numbers.roots.clear()

    def lapse(self) -> None:
        """Ends every claim of the process: the lease ran out, so others may already have taken over."""
        for table, claim in self.all_claims():
            table.finish(claim, End.LAPSED)

    def leave(self) -> None:
        """Takes this table out of the process's list: its root is forgotten, and nothing runs below it."""
        self.numbers.tables.remove(self)

    def all_claims(self) -> list[tuple[ClaimTable, Claim]]:
        """The open claims of the process, of all roots, each with its table."""
        return [(table, claim) for table in self.numbers.tables for claim in table]

    @property
    def running(self) -> int:
        """How many claims the process holds, of all roots; may be asked from any thread."""
        return sum(len(table) for table in list(self.numbers.tables))

    def __iter__(self) -> Iterator[Claim]:
        return iter(list(self._by_task.values()))

    def __len__(self) -> int:
        return len(self._by_task)


def _log_end(claim: Claim, end: End) -> None:
    """The one line that every turn leaves."""
    told = {"state": state_name(claim.record.task)} if end in _STORED else {}
    if end in _STORED and claim.record.task.status.state == TaskState.TASK_STATE_FAILED:
        told["reason"] = (claim.reason or "the run broke off")[:_REASON_CHARACTERS]
    log.info(
        "turn.ended",
        task_id=claim.ref.task_id,
        context_id=claim.ref.context_id,
        turn=claim.turn,
        end=end.value,
        **told,
        seconds=round(boottime() - claim.began, 3),
    )
