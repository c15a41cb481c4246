"""Which snapshots a context has besides the one that it should go on from."""

from __future__ import annotations

from collections.abc import Mapping

from a2a.types.a2a_pb2 import TaskState

from a2a_gcs.errors import CorruptRecord
from a2a_gcs.layout import TaskRef, context_prefix, parse_task
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import Pin, TaskMeta

_COMPLETED = TaskState.Name(TaskState.TASK_STATE_COMPLETED)


async def completed(store: ObjectStore, context_id: str) -> list[tuple[TaskRef, Pin]]:
    """The snapshots of a context's completed tasks, the newest first, for one LIST per 1,000 objects."""
    found: list[tuple[int, TaskRef, Pin]] = []
    page: str | None = None
    while True:
        answer = await store.list(context_prefix(context_id), page=page)
        for info in answer.objects:
            ref = parse_task(info.key)
            meta = _meta(info.key, info.metadata) if ref else None
            if ref and meta and meta.pin and meta.state == _COMPLETED:
                found.append((meta.status_time, ref, meta.pin))
        page = answer.next
        if page is None:
            return [(ref, pin) for _, ref, pin in sorted(found, key=lambda one: one[0], reverse=True)]


def _meta(key: str, metadata: Mapping[str, str]) -> TaskMeta | None:
    try:
        return TaskMeta.from_metadata(key, metadata)
    except CorruptRecord:
        return None
