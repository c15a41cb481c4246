"""The journal of a running task: what happened between two writes of task.json (decision 0002).

Batches are numbered per turn and created once; nobody ever changes one. A
task is its task.json with the batches after `TaskMeta.journal` folded in.
Parked and terminal states are never here (rule *jterm*): they are in task.json
before anybody hears of them, and what precedes them is in a batch before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from a2a.server.tasks.task_manager import append_artifact_to_task
from a2a.types.a2a_pb2 import StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from pydantic import Field

from a2a_gcs.errors import CorruptRecord, NotFound
from a2a_gcs.layout import TaskRef, journal_key
from a2a_gcs.objectstore.port import IF_ABSENT, ObjectStore
from a2a_gcs.records import SCHEMA, Record
from a2a_gcs.task_json import state_name, status_millis
from a2a_gcs.task_records import TaskRecord

_READS_AT_ONCE = 16

Update = TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class _Entry(Record):
    seq: int
    event: dict[str, Any]


class _BatchRecord(Record):
    """One `<n>.events.json`; each event as A2A streams it."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    turn: int
    batch: int
    events: tuple[_Entry, ...]


@dataclass(frozen=True, slots=True)
class Journaled:
    """An event and the version of the task that it makes."""

    seq: int
    event: Update


class Journal:
    """Reads and writes batches below one root."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def append(self, ref: TaskRef, turn: int, batch: int, events: Sequence[Journaled]) -> None:
        """Creates a batch.

        Raises:
            Conflict: It exists and is not ours: the turn is not ours either.
            StoreError: It may have been created; the same call may be repeated.
        """
        entries = tuple(_Entry(seq=e.seq, event=_to_json(e.event)) for e in events)
        body = _BatchRecord(turn=turn, batch=batch, events=entries).model_dump_json(by_alias=True).encode()
        await self._store.put(journal_key(ref, turn, batch), body, IF_ABSENT, content_type="application/json")

    async def read(self, ref: TaskRef, turn: int, batch: int) -> list[Journaled] | None:
        """The events of a batch; None if there is none (yet, or any more). Raises CorruptRecord and StoreError."""
        key = journal_key(ref, turn, batch)
        try:
            blob = await self._store.get(key)
        except NotFound:
            return None
        try:
            return [Journaled(e.seq, _from_json(ref, e.event)) for e in _BatchRecord.parse(key, blob.body).events]
        except (ParseError, ValueError) as e:
            raise CorruptRecord(key, e) from e

    async def current(self, record: TaskRecord) -> TaskRecord:
        """The record of a running task with its journal folded in; any other record as it is.

        Version and owner stay those of the stored task.json, so that a write over the
        result is a compare-and-swap on what was read.
        """
        if record.terminal or not record.meta.open:
            return record
        task, seq, batch = record.copy_task(), record.meta.seq, record.meta.journal
        async for events in self._from(record.ref, record.meta.turn, batch + 1):
            batch += 1
            for journaled in events:
                if journaled.seq > seq:
                    fold(task, journaled.event)
                    seq = journaled.seq
        if batch == record.meta.journal:
            return record
        meta = record.meta.with_(seq=seq, journal=batch, state=state_name(task), status_time=status_millis(task))
        return replace(record, task=task, meta=meta)

    async def _from(self, ref: TaskRef, turn: int, batch: int) -> AsyncGenerator[list[Journaled], None]:
        """The batches from one on, in order, until one is missing; read in growing groups, as there may be many."""
        group = 1
        while True:
            found = await asyncio.gather(*(self.read(ref, turn, batch + i) for i in range(group)))
            for events in found:
                if events is None:
                    return
                yield events
            batch, group = batch + group, min(group * 2, _READS_AT_ONCE)

    async def remove(self, ref: TaskRef, turn: int, batches: int) -> None:
        """Removes the batches 1 to `batches` of a turn; what is gone already does not matter."""
        for batch in range(1, batches + 1):
            try:
                await self._store.delete(journal_key(ref, turn, batch))
            except NotFound:
                continue


def fold(task: Task, event: Update) -> None:
    """Applies an event to a task in place, exactly as the SDK's TaskManager does."""
    if isinstance(event, TaskStatusUpdateEvent):
        if task.status.HasField("message"):
            task.history.append(task.status.message)
        if event.metadata:
            task.metadata.MergeFrom(event.metadata)
        task.status.CopyFrom(event.status)
    else:
        append_artifact_to_task(task, event)


def _to_json(event: Update) -> dict[str, Any]:
    """As A2A streams it, but for the ids of task and context, which the batch's key tells."""
    if isinstance(event, TaskStatusUpdateEvent):
        response = StreamResponse(status_update=event)
        response.status_update.ClearField("task_id")
        response.status_update.ClearField("context_id")
    else:
        response = StreamResponse(artifact_update=event)
        response.artifact_update.ClearField("task_id")
        response.artifact_update.ClearField("context_id")
    return dict(MessageToDict(response))


def _from_json(ref: TaskRef, raw: dict[str, Any]) -> Update:
    response = ParseDict(raw, StreamResponse(), ignore_unknown_fields=True)
    event: Update
    if response.HasField("status_update"):
        event = response.status_update
    elif response.HasField("artifact_update"):
        event = response.artifact_update
    else:
        raise ValueError(f"a batch holds a {response.WhichOneof('payload') or 'thing without a payload'}")
    event.task_id, event.context_id = ref.task_id, ref.context_id
    return event
