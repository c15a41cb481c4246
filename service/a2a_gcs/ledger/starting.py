"""Which workspace a message asks to start from, if it asks for another than the last completed one."""

from __future__ import annotations

from a2a.types.a2a_pb2 import Message, TaskState

from a2a_gcs.errors import NotFound
from a2a_gcs.layout import TaskRef, workspace_key
from a2a_gcs.ledger.errors import StartRefused
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import START_FROM, Pin
from a2a_gcs.task_records import TaskRecords, UnreadableTask


def asked_for(message: Message) -> str | None:
    """The task that the message's metadata names; None if it names none.

    Raises:
        StartRefused: What stands there is no task id.
    """
    if START_FROM not in message.metadata:
        return None
    task_id = message.metadata[START_FROM]
    if not isinstance(task_id, str) or not task_id:
        raise StartRefused(repr(task_id), "which is no task id")
    return task_id


async def start_of(store: ObjectStore, records: TaskRecords, ref: TaskRef) -> Pin:
    """The snapshot of an ended task of the context: of a completed one what it pins, of others what they left.

    What a task left that failed with its host is pinned by nothing; it is pinned here, as it is
    now, by one class B request. A task of another context is not there.

    Raises:
        StartRefused: There is no such task here, it has not ended, or its workspace was never saved.
        InvalidId: It cannot be the id of a task.
        StoreError: The store failed.
    """
    try:
        record = await records.load(ref)
    except UnreadableTask as e:
        raise StartRefused(ref.task_id, "which cannot be read") from e
    if record is None:
        raise StartRefused(ref.task_id, "which this context does not have")
    if not record.terminal:
        raise StartRefused(ref.task_id, "which has not ended")
    if record.task.status.state == TaskState.TASK_STATE_COMPLETED:
        if record.meta.pin is None:
            raise StartRefused(ref.task_id, "whose workspace was never saved")
        return record.meta.pin
    try:
        info = await store.head(workspace_key(ref))
    except NotFound as e:
        raise StartRefused(ref.task_id, "whose workspace was never saved") from e
    return Pin(info.version, info.crc32c)
