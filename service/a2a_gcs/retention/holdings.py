"""What a root holds, sorted out by context and task; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from a2a_gcs.errors import CorruptRecord
from a2a_gcs.layout import (
    decode_segment,
    parse_belongs,
    parse_context,
    parse_pointer,
    parse_task,
    parse_workspace,
)
from a2a_gcs.objectstore.port import ObjectInfo
from a2a_gcs.records import TaskMeta
from a2a_gcs.task_json import TERMINAL_NAMES


@dataclass(slots=True)
class TaskHoldings:
    """The objects of one task.

    Attributes:
        record: Its task.json.
        pointer: Its pointer.
        files: Everything else: archive, journal, content, push notifications.
    """

    record: ObjectInfo | None = None
    pointer: ObjectInfo | None = None
    files: list[ObjectInfo] = field(default_factory=list)

    @property
    def meta(self) -> TaskMeta | None:
        """What its metadata tells; None without a record, or where somebody else wrote it."""
        if self.record is None:
            return None
        try:
            return TaskMeta.from_metadata(self.record.key, self.record.metadata)
        except CorruptRecord:
            return None

    @property
    def ended(self) -> bool:
        """It has a record, and that says for certain that nothing will be written any more."""
        meta = self.meta
        return meta is not None and meta.state in TERMINAL_NAMES and not meta.open

    @property
    def archive(self) -> ObjectInfo | None:
        return next((info for info in self.files if parse_workspace(info.key)), None)

    @property
    def objects(self) -> list[ObjectInfo]:
        """All of them, in the order in which they go: the record first, so that nobody finds half a task."""
        return [info for info in (self.record, *self.files, self.pointer) if info is not None]


@dataclass(slots=True)
class ContextHoldings:
    """The objects of one context.

    Attributes:
        context_id: Its id.
        record: Its context.json.
        tasks: By id.
        parts: What its archives were composed of.
    """

    context_id: str
    record: ObjectInfo | None = None
    tasks: dict[str, TaskHoldings] = field(default_factory=dict)
    parts: list[ObjectInfo] = field(default_factory=list)

    def task(self, task_id: str) -> TaskHoldings:
        return self.tasks.setdefault(task_id, TaskHoldings())

    @property
    def objects(self) -> list[ObjectInfo]:
        """All of them, the ledger record last."""
        tasks = [info for task in self.tasks.values() for info in task.objects]
        return [*tasks, *self.parts, *([self.record] if self.record else [])]


def sort_out(infos: Iterable[ObjectInfo], pointed: Mapping[str, str]) -> dict[str, ContextHoldings]:
    """Everything that is ours, by context id; what has another form is left out, and so never touched.

    Args:
        infos: All objects below a root.
        pointed: Context by task id, of pointers whose metadata does not tell (see `silent`).
    """
    found: dict[str, ContextHoldings] = {}

    def context(context_id: str) -> ContextHoldings:
        return found.setdefault(context_id, ContextHoldings(context_id))

    for info in infos:
        if (task_id := parse_pointer(info.key)) is not None:
            context_id = pointed.get(task_id) or _pointed_to(info)
            if context_id:
                context(context_id).task(task_id).pointer = info
        elif (whose := parse_belongs(info.key)) is None:
            continue
        elif parse_context(info.key):
            context(whose.context_id).record = info
        elif not whose.task_id:
            context(whose.context_id).parts.append(info)
        elif parse_task(info.key):
            context(whose.context_id).task(whose.task_id).record = info
        else:
            context(whose.context_id).task(whose.task_id).files.append(info)
    return found


def silent(infos: Iterable[ObjectInfo]) -> list[str]:
    """Tasks whose pointers do not tell their context in their metadata, only in their body."""
    tasks = [(parse_pointer(info.key), info) for info in infos]
    return [task_id for task_id, info in tasks if task_id is not None and not _pointed_to(info)]


def _pointed_to(pointer: ObjectInfo) -> str:
    return decode_segment(pointer.metadata.get("context", "")) or ""
