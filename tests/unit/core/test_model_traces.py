"""The protocol model's traces on the real ledger and store.

Each trace is what the model does without one rule until an invariant breaks. The real code has the rule:
it follows the trace up to where the rule forbids a step, and breaks nothing. Without the rule it breaks too.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from a2a.server.cluster import ConcurrentTaskModificationError
from a2a.types.a2a_pb2 import TaskStatusUpdateEvent
from structlog.testing import capture_logs

from a2a_gcs.claims import End
from a2a_gcs.errors import Conflict
from a2a_gcs.journal import Journal, Journaled
from a2a_gcs.layout import TaskRef, journal_key
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.ledger.ledger import Ledger
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.ledger.state import Free, Runs, standing
from a2a_gcs.objectstore import RetryingStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import Owner, TaskMeta
from a2a_gcs.task_records import TaskRecord, TaskRecords
from a2a_gcs.tasks.store import BucketTaskStore
from a2a_gcs.tasks.stream import _Reader
from a2a_gcs.tasks.turn_writer import TurnWriter
from tests.support.hosts import INPUT_REQUIRED
from tests.support.invariants import Violation
from tests.support.model_traces import committed, generated
from tests.support.replay import Replay, Request

MODEL = Path(__file__).parents[4] / "shared" / "model" / "protocol_model.py"
TRACES = {trace.rule: trace for trace in committed()}
FOLLOWED = {  # rule: the steps of its trace that the real code takes, before it does something else for the first time
    "tombstone": 12,
    "no_age": 6,  # of 9: the host lives, whatever the age of its claim
    "openlist": 5,
    "recheck": 7,  # of 9: the claim has been released meanwhile
    "turncas": 7,  # of 10: an answer does not look at the ledger, and whoever lost the turn saves nothing more
    "turnflag": 9,  # of 10: the turn is open, though the state is still input-required
    "fence": 4,  # of 5: nothing is saved after a release
    "wscas": 7,  # of 8: the archive in flight is refused
    "unpark": 6,  # of 10: the agent uploads nothing after it has parked
    "keep_parked": 9,  # of 10: what is parked is not settled
    "ptr_first": 3,
    "keep_ptr": 14,  # of 15: the pointer stays
    "rebase": 9,
    "overlay": 8,
    "release": 5,
    "readback": 3,
    "idem": 4,
    "jturn": 6,  # of 10: the batches of a further turn have numbers of their own
    "jterm": 2,  # of 7: the end of a turn is in task.json alone
    "jkeep": 4,  # of 8: the batches stay
    "jpos": 6,
}


def replayed(rule):
    """The steps that were followed. Raises Violation."""

    async def run():
        replay = Replay(TRACES[rule])
        await replay.replay()
        return replay.followed

    with capture_logs():
        return asyncio.run(run())


@pytest.mark.parametrize("rule", FOLLOWED)
def test_a_trace_that_breaks_the_model_without_a_rule_breaks_nothing_here(rule):
    """The steps are followed until the rule forbids one, and the invariants hold to the end of everything."""
    first = FOLLOWED[rule]
    assert replayed(rule)[:first] == TRACES[rule].steps[:first]


def test_the_traces_are_those_of_the_model():
    """Every trace is replayed; and the model, where it lies beside this repository, still finds exactly them."""
    assert set(TRACES) == set(FOLLOWED)
    if MODEL.exists():
        assert generated(MODEL) == committed()


# ---------------------------------------------------------------- the real components without a rule


def _without_tombstone(patch):
    free = Ledger._free

    async def goes_on(self, record, active):
        now = standing(record, active.meta if active else None, self._resume_from)
        if active is None and isinstance(now, Runs) and await self._settler.is_dead(now.owner):
            return Free(record.last_completed)
        return await free(self, record, active)

    patch.setattr(Ledger, "_free", goes_on)


def _without_recheck(patch):
    free = Ledger._free

    async def trusts(self, record, active):
        now = standing(record, active.meta if active else None, self._resume_from)
        if active is None and isinstance(now, Runs) and await self._settler.is_dead(now.owner):
            await self._settler.tombstone(TaskRef(record.context_id, record.active.task_id), now.owner)
            return None
        return await free(self, record, active)

    patch.setattr(Ledger, "_free", trusts)


def _without_no_age(patch):
    async def by_age(self, owner):
        return Owner.from_text(owner).host != self._table.host

    patch.setattr(Liveness, "is_dead", by_age)


def _without_openlist(patch):
    async def by_heartbeat(self, owner):
        return False

    patch.setattr(Liveness, "is_dead", by_heartbeat)


def _without_turnflag(patch):
    settled = Settler.settled

    async def by_state(self, record):
        record = await settled(self, record)
        waits = record.task.status.state == INPUT_REQUIRED
        return replace(record, meta=record.meta.with_(open=False)) if waits else record

    patch.setattr(Settler, "settled", by_state)


def _without_fence(patch):
    save = BucketTaskStore.save

    async def unfenced(self, task, **options):
        try:
            return await save(self, task, **options)
        except ConcurrentTaskModificationError:
            meta = TaskMeta(owner=f"{self._table.host}/1", turn=1)
            return await self._records.write(
                TaskRecord(TaskRef(task.context_id, task.id), task, meta, 0, {}), task, meta
            )

    patch.setattr(BucketTaskStore, "save", unfenced)


def _without_wscas(patch):
    patch.setattr(Request, "mode", lambda _self, _seen: OVERWRITE)


def _without_unpark(patch):
    async def at_once(self, claim):
        return True

    patch.setattr(Request, "goes_on", at_once)


def _without_keep_parked(patch):
    async def abandoned(self, record):
        return not record.terminal and await self._liveness.is_dead(record.meta.owner)

    patch.setattr(Settler, "_abandoned", abandoned)


def _without_ptr_first(patch):
    async def later(self, ref):
        return None

    patch.setattr(TaskRecords, "point", later)


def _without_keep_ptr(patch):
    async def forgets(self, attempt):
        if attempt.pointer:
            await self._records._store.delete(attempt.pointer.key)

    patch.setattr(Ledger, "_unpoint", forgets)


def _without_rebase(patch):
    put = TaskRecords.write

    async def over_anything(self, seen, task, meta):
        try:
            return await put(self, seen, task, meta)
        except Conflict:
            found = await self.load(seen.ref)
            return await put(self, found, task, meta.with_(seq=found.meta.foreign_seq()))

    patch.setattr(TaskRecords, "write", over_anything)


def _without_overlay(patch):
    async def always(self, claim):
        return True

    patch.setattr(BucketTaskStore, "still_ours", always)


def _without_release(patch):
    async def forgets(self, claim):
        self._table.finish(claim, End.RELEASED)

    patch.setattr(Ledger, "release", forgets)


def _without_idem(patch):
    async def believed(self, ref):
        return True

    patch.setattr(Ledger, "_exists", believed)


def _without_readback(patch):
    async def nothing(self, *_where):
        return None

    patch.setattr(RetryingStore, "_own", nothing)
    patch.setattr(Journal, "read", nothing)


def _without_jturn(patch):
    patch.setattr("a2a_gcs.journal.journal_key", lambda ref, _turn, batch: journal_key(ref, 1, batch))


def _without_jterm(patch):
    through = TurnWriter._write_through

    async def journaled(self, task, *, ends, event):
        if ends:
            update = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
            self._pending.append(Journaled(self._seq + 1, update))
        return await through(self, task, ends=ends, event=event)

    patch.setattr(TurnWriter, "_write_through", journaled)


def _without_jpos(patch):
    async def looks_once(self):
        if (found := await self._next_batch()) is not None:
            return found
        _, meta = await self._records.peek(self._ref)
        self.ended = not meta.open
        return await self._end(meta) if self.ended else []

    patch.setattr(_Reader, "next", looks_once)


BROKEN = {
    "tombstone": (_without_tombstone, "I5"),
    "no_age": (_without_no_age, "N: B killed"),
    "openlist": (_without_openlist, "I6"),
    "recheck": (_without_recheck, "a Message answer left"),
    "turnflag": (_without_turnflag, "I7"),
    "fence": (_without_fence, "a Message answer left"),
    "wscas": (_without_wscas, "I4, I7"),
    "unpark": (_without_unpark, "I4, I5"),
    "keep_parked": (_without_keep_parked, "was parked, and A failed it"),
    "ptr_first": (_without_ptr_first, "I3"),
    "keep_ptr": (_without_keep_ptr, "I3"),
    "rebase": (_without_rebase, "artifacts of t0 were lost"),
    "overlay": (_without_overlay, "I2: a client was told TASK_STATE_CANCELED"),
    "release": (_without_release, "a Message answer left"),
    "readback": (_without_readback, "J: a batch that exists blocks"),
    "idem": (_without_idem, "which does not exist"),
    "jturn": (_without_jturn, "J: a batch that exists blocks"),
    "jterm": (_without_jterm, "I2: a stream told TASK_STATE_COMPLETED"),
    "jpos": (_without_jpos, "J: a stream got"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_the_same_trace_breaks_a_component_without_the_rule(rule, monkeypatch):
    """The replay sees what each rule is for: without it, the real code breaks the invariant that the model broke."""
    without, broken = BROKEN[rule]
    without(monkeypatch)
    with pytest.raises(Violation, match=broken):
        replayed(rule)
