"""Ways to break the protocol, each by leaving out one of its rules. For tests alone.

A host whose CHAOS_MUTANT names one breaks itself when it loads `tests.chaos.agents`. The names in
*italics* in the docstrings are those of rules, which the code names likewise: (rule *fence*). A patch of
something that is not there any more raises, so that a mutant never goes on unbroken in silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import shutil

from a2a.server.cluster import TaskVersion
from a2a.types.a2a_pb2 import Task, TaskState, TaskStatusUpdateEvent

from a2a_gcs import cas, claims, journal, layout
from a2a_gcs.claims import End
from a2a_gcs.errors import Conflict, NotFound, StoreError
from a2a_gcs.executors import workspaced
from a2a_gcs.host import drain
from a2a_gcs.journal import Journal, Journaled
from a2a_gcs.layout import context_key
from a2a_gcs.ledger import heartbeat, ledger, settle, state, sweep
from a2a_gcs.ledger.errors import Repeated
from a2a_gcs.objectstore import retry
from a2a_gcs.objectstore.port import OVERWRITE, WRITE_ID, IfVersion, ObjectInfo
from a2a_gcs.records import ContextRecord, HeartbeatRecord
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.tasks import store, stream, turn_writer, watch
from a2a_gcs.workspaces import upload

MUTATIONS = {}


def apply(name):
    """Breaks this process as `name` says; does nothing for ""."""
    if name:
        MUTATIONS[name]()


def mutation(function):
    MUTATIONS[function.__name__] = function
    return function


def patch(owner, name, value):
    assert hasattr(owner, name), f"{owner} has no {name} any more: mend the mutation"
    setattr(owner, name, value)


def unconditional_writes(store_of_keys):
    """Makes `TaskRecords.write` an unconditional put where `store_of_keys(seen, meta)` says so."""

    def decorate(original):
        @functools.wraps(original)
        async def write(self, seen, task, meta):
            if not store_of_keys(seen, meta):
                return await original(self, seen, task, meta)
            before, self._store = self._store, _Overwriting(self._store)
            try:
                return await original(self, seen, task, meta)
            finally:
                self._store = before

        return write

    patch(TaskRecords, "write", decorate(TaskRecords.write))


class _Overwriting:
    """A store whose puts have no condition."""

    def __init__(self, below):
        self._below = below

    def __getattr__(self, name):
        return getattr(self._below, name)

    async def put(self, key, body, _mode, **options):
        return await self._below.put(key, body, OVERWRITE, **options)


# ---------------------------------------------------------------------- claims and turns


@mutation
def claim_without_cas():
    """context.json is written over whatever is there."""
    original = cas.VersionedObject.replace

    async def replace(self, seen, value):
        if not self._key.endswith("/context.json"):
            return await original(self, seen, value)
        info = await self._store.put(self._key, value.to_bytes(), OVERWRITE)
        return cas.Versioned(value, info.version)

    patch(cas.VersionedObject, "replace", replace)


@mutation
def turn_without_cas():
    """*turncas*: a turn is claimed over whatever task.json says by then."""
    unconditional_writes(lambda seen, meta: meta.open and meta.turn > seen.meta.turn)


@mutation
def turn_while_open():
    """*turnflag*: that a turn is running is inferred from the state, which stays input-required for a while."""
    original = ledger.Ledger.take_turn

    async def take_turn(self, task_id, context_id, message, *entering):
        record = await self._find(task_id)
        if record.task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED and record.meta.open:
            claim = await self._try_turn(record, message)
            if claim is not None:
                return claim
        return await original(self, task_id, context_id, message, *entering)

    patch(ledger.Ledger, "take_turn", take_turn)


@mutation
def no_openlist():
    """*openlist*: a claim of a live host counts as live, also when the host does not list it."""
    patch(HeartbeatRecord, "lists", lambda _self, _n: True)


@mutation
def impatient():
    """*no_age*: a claim without a task.json is dead at once, whatever the heartbeat says."""

    async def is_dead(_self, _owner):
        return True

    patch(settle.Settler, "is_dead", is_dead)


@mutation
def no_recheck():
    """*recheck*: heartbeat and record are taken for one moment's."""
    free, of = ledger.Ledger._free, ledger.Ledger._ledger
    as_read = contextvars.ContextVar("as_read", default=None)

    async def free_as_read(self, record, active):
        token = as_read.set(record)
        try:
            return await free(self, record, active)
        finally:
            as_read.reset(token)

    def unchanged(self, context_id):
        versioned, record = of(self, context_id), as_read.get()
        if record is not None:
            versioned.load = functools.partial(asyncio.sleep, 0, cas.Versioned(record, 1))
        return versioned

    patch(ledger.Ledger, "_free", free_as_read)
    patch(ledger.Ledger, "_ledger", unchanged)


@mutation
def no_release():
    """*release*: a Message answer leaves its claim in context.json."""

    async def release(self, claim):
        self._table.finish(claim, End.RELEASED)

    patch(ledger.Ledger, "release", release)


@mutation
def no_idem():
    """*idem*: a repeated message is answered with its task before there is one."""
    original = state.seen_before

    def seen_before(record, message):
        found = original(record, message)
        if found is not None:
            raise Repeated(found)

    patch(ledger, "seen_before", seen_before)


@mutation
def no_dedup():
    """A repeated message starts a further task."""
    patch(ledger, "seen_before", lambda _record, _message: None)


@mutation
def resume_from_any():
    """The resume rule is that of `resume_from = terminal`."""
    original = state._last_completed
    patch(state, "_last_completed", lambda r, t, ended, _from: original(r, t, ended, "terminal"))


# ---------------------------------------------------------------------- pointers


@mutation
def pointer_late():
    """*ptr_first*: the pointer is written when it suits."""
    original = TaskRecords.point

    async def point(self, ref):
        asyncio.get_running_loop().call_later(1.0, asyncio.ensure_future, original(self, ref))
        return ObjectInfo(f"tasks/{ref.task_id}/contextId.txt", 1, 0, "")

    patch(TaskRecords, "point", point)


@mutation
def pointer_taken_back():
    """*keep_ptr*: the pointer of a claim that was given up goes, though the claim may have been made; and settlers
    leave it as it is."""

    async def unpoint(self, attempt):
        with contextlib.suppress(StoreError):
            await self._records._store.delete(layout.pointer_key(attempt.ref.task_id))

    async def take_over_pointer(self, ref):
        with contextlib.suppress(Conflict):
            await self.point(ref)

    patch(ledger.Ledger, "_unpoint", unpoint)
    patch(TaskRecords, "take_over_pointer", take_over_pointer)


# ---------------------------------------------------------------------- settlement


@mutation
def no_settlement():
    """What a dead host left stays as it is."""

    async def settled(_self, record):
        return record

    async def tombstone(_self, _ref, _owner):
        await asyncio.sleep(0.1)

    patch(settle.Settler, "settled", settled)
    patch(settle.Settler, "tombstone", tombstone)


@mutation
def no_sweep():
    """What a dead host left is settled only where somebody touches it."""

    async def run(_self):
        await asyncio.Event().wait()

    patch(sweep.Sweep, "run", run)


@mutation
def no_tombstone():
    """*tombstone*: a dead claim without a task.json is only forgotten."""

    async def tombstone(self, ref, _owner):
        versioned = cas.VersionedObject(
            self._records._store, context_key(ref.context_id), ContextRecord(context_id=ref.context_id)
        )
        seen = await versioned.load()
        with contextlib.suppress(Conflict):
            await versioned.replace(seen, seen.value.released())

    patch(settle.Settler, "tombstone", tombstone)


@mutation
def parked_settled():
    """*keep_parked*: a parked task of a dead host fails."""

    async def abandoned(self, record):
        return not record.terminal and bool(record.version) and await self._liveness.is_dead(record.meta.owner)

    patch(settle.Settler, "_abandoned", abandoned)


@mutation
def settled_without_journal():
    """Settling and canceling keep what task.json holds, and forget the journal."""

    async def current(_self, record):
        return record

    patch(Journal, "current", current)


# ---------------------------------------------------------------------- fencing


@mutation
def no_fence():
    """*fence*: a save that meets a foreign record is repeated over it, as the SDK does by itself."""

    async def write(self, task, meta):
        while True:
            try:
                self.claim.record = await self._records.write(self.claim.record, task, meta)
            except Conflict:
                self.claim.record = await self._records.load(self.claim.ref)
            else:
                return

    patch(turn_writer.TurnWriter, "_write", write)


@mutation
def terminal_overwritten():
    """A save of the record's own turn goes through, also once the record has ended."""
    original = turn_writer.TurnWriter._own_stored

    class Going:
        """A record that never looks ended."""

        def __init__(self, stored):
            self._stored = stored
            self.terminal, self.meta = False, stored.meta.with_(open=True, seq=-1)

        def __getattr__(self, name):
            return getattr(self._stored, name)

    async def own_stored(self):
        stored = await original(self)
        return stored and Going(stored)

    patch(turn_writer.TurnWriter, "_own_stored", own_stored)


@mutation
def save_without_cas():
    """task.json is saved over whatever is there."""
    unconditional_writes(lambda seen, meta: seen.version and meta.turn == seen.meta.turn)


@mutation
def archive_without_cas():
    """*wscas*: workspace.tar.gz is written over whatever is there."""

    async def commit(self, send, metadata):
        return await send(OVERWRITE, {upload.OWNER: self._owner, **metadata})

    patch(upload.Upload, "_commit", commit)


@mutation
def no_watch():
    """A host never looks whether its tasks are still its own."""

    async def run(_self):
        await asyncio.Event().wait()

    patch(watch.Watch, "run", run)


@mutation
def no_lapse():
    """A host that cannot renew its lease goes on."""
    patch(heartbeat.Heartbeat, "_lapse", lambda _self: None)


@mutation
def claims_without_lease():
    """A host makes claims though its lease has run out."""
    patch(claims.ClaimTable, "lease_until", lambda _self, _moment: None)


@mutation
def no_overlay_check():
    """*overlay*: a host shows the state that it has not flushed without looking whether the turn is still its own."""
    original = store.BucketTaskStore.read

    async def read(self, task_id):
        claim = self._table.get(task_id)
        if claim is not None and claim.record.version:
            return self._writer(claim).current()
        return await original(self, task_id)

    patch(store.BucketTaskStore, "read", read)


@mutation
def stale_cancel():
    """*rebase*: CANCELED puts back the body that was read first."""

    async def cancel(self, task_id):
        first = record = await self.read(task_id)
        while record is not None and not record.terminal:
            meta = record.meta.with_(open=False, seq=record.meta.foreign_seq(), journal=first.meta.journal)
            try:
                return await self._records.write(record, store._canceled(first), meta)
            except Conflict:
                record = await self.read(task_id)
        return record

    patch(store.BucketTaskStore, "cancel", cancel)


# ---------------------------------------------------------------------- order of writes


@mutation
def state_before_archive():
    """The final state is stored and told, then the workspace."""
    assert hasattr(workspaced.WorkspacedExecutor, "_snapshot")

    async def snapshot(_self, claim, final, work):
        kept = work.path.parent / f"{work.path.name}-late"
        await asyncio.to_thread(shutil.copytree, work.path, kept)
        snapshots, key = work._workspaces.snapshots, layout.workspace_key(claim.ref)
        saving = snapshots.save(kept, key, replaces=claim.workspace_generation, owner=str(claim.owner))
        asyncio.get_running_loop().call_later(0.3, asyncio.ensure_future, saving)
        return final

    patch(workspaced.WorkspacedExecutor, "_snapshot", snapshot)


@mutation
def told_before_stored():
    """The end of a turn is told, then stored."""
    original = store.BucketTaskStore.save

    async def save(self, task, *, event, prev, prev_version, context):
        claim = self._table.get(task.id)
        ends = claim is not None and (event is claim.parks_with or task.status.state in store.TERMINAL)
        if not ends:
            return await original(self, task, event=event, prev=prev, prev_version=prev_version, context=context)
        copy = Task()
        copy.CopyFrom(task)
        later = original(self, copy, event=event, prev=prev, prev_version=prev_version, context=context)
        self._told = asyncio.ensure_future(later)
        return TaskVersion(claim.turn * 2**32 + 2**31)

    patch(store.BucketTaskStore, "save", save)


@mutation
def end_in_journal():
    """*jterm*: the end of a turn is in the journal before it is in task.json."""
    original = turn_writer.TurnWriter._write_through

    async def write_through(self, task, *, ends, event):
        if ends and self.claim.record.version:
            end = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
            self._seq += 1
            self._pending.append(Journaled(self._seq, end))
            self._pending_bytes += end.ByteSize()
        return await original(self, task, ends=ends, event=event)

    patch(turn_writer.TurnWriter, "_write_through", write_through)


@mutation
def no_restore():
    """A task starts from an empty directory."""

    async def restore(_claim, _work, _queue, _on_lost):
        return None

    patch(workspaced, "restore", restore)


@mutation
def no_drain():
    """A host that is stopped just stops."""

    async def run(self):
        self._admission.draining = True

    patch(drain.Drain, "run", run)


# ---------------------------------------------------------------------- journal and streams


@mutation
def journal_per_task():
    """*jturn*: batches are numbered by task, not by turn."""
    patch(journal, "journal_key", lambda ref, _turn, batch: layout.journal_key(ref, 0, batch))


@mutation
def journal_removed_at_once():
    """*jkeep*: batches go with the end of their turn."""

    async def remove_batches(self, claim, batches):
        await self._journal.remove(claim.ref, claim.turn, batches)

    patch(store.BucketTaskStore, "_remove_batches", remove_batches)


@mutation
def ends_without_batch():
    """*jpos*: a reader that misses a batch takes the record's word that the turn has ended."""
    original = stream._Reader.next

    async def following(self):
        real, calls = self._next_batch, 0

        async def once():
            nonlocal calls
            calls += 1
            return await real() if calls == 1 else None

        self._next_batch = once
        try:
            found = await original(self)
        finally:
            self._next_batch = real
        if self.ended:
            record = await self._records.load(self._ref)
            update = TaskStatusUpdateEvent(task_id=self._ref.task_id, context_id=self._ref.context_id)
            update.status.CopyFrom(record.task.status)
            return [stream.VersionedEvent(event=update, version=TaskVersion(record.meta.seq))]
        return found

    patch(stream._Reader, "next", following)


@mutation
def journal_lost():
    """Batches are acknowledged and not written."""

    async def append(_self, _ref, _turn, _batch, _events):
        return None

    patch(Journal, "append", append)


@mutation
def tap_drops():
    """A subscriber on the running host misses an event now and then."""
    original = stream.BucketEventStream.publish
    count = 0

    async def publish(self, task_id, event):
        nonlocal count
        count += 1
        if count % 5:
            await original(self, task_id, event)

    patch(stream.BucketEventStream, "publish", publish)


# ---------------------------------------------------------------------- the store


@mutation
def no_readback():
    """*readback*: a write that meets its own success is told that it lost."""

    async def own(_self, _write=None):
        return None

    async def own_or_moved(self, write):
        try:
            current = await self._store.head(write.key)
        except NotFound:
            current = None
        expected = write.mode.version if isinstance(write.mode, IfVersion) else None
        if (current.version if current else None) != expected:
            write.conflict = Conflict(write.key)
            raise write.conflict
        assert current is None or current.metadata.get(WRITE_ID) != write.write_id

    patch(retry.RetryingStore, "_own", own)
    patch(retry.RetryingStore, "_own_or_moved", own_or_moved)
    patch(upload.Upload, "_head", own)
