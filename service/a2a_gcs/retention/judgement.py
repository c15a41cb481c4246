"""What may go; functions without I/O.

Ages are those of the objects by the store's clock, from the last write to the
listing. Nothing goes that a run may still need: not before the longest run is
over, whatever the rules say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from a2a_gcs.layout import is_batch
from a2a_gcs.objectstore.port import ObjectInfo
from a2a_gcs.records import ContextRecord
from a2a_gcs.retention.holdings import ContextHoldings, TaskHoldings

_COMPLETED = "TASK_STATE_COMPLETED"


@dataclass(frozen=True, slots=True)
class Rules:
    """How long what is kept. All in seconds; None: for ever.

    Attributes:
        runs: The longest that a run may take, with a margin; nothing younger goes.
        tasks: Completed tasks, since they ended.
        failed: Failed, canceled and rejected ones.
        contexts: Contexts, since their last task ended.
    """

    runs: float
    tasks: float | None = None
    failed: float | None = None
    contexts: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What may go of one context.

    Attributes:
        whole: All of it, with its record.
        tasks: These tasks, with all of theirs.
        orphans: What belongs to no task: pointers, archives, notifications.
        batches: What is left of journals.
        parts: Parts that no archive that stays was composed of.
    """

    whole: bool = False
    tasks: Sequence[str] = ()
    orphans: Sequence[ObjectInfo] = ()
    batches: Sequence[ObjectInfo] = ()
    parts: Sequence[ObjectInfo] = ()


def judge(
    held: ContextHoldings,
    record: ContextRecord | None,
    rules: Rules,
    *,
    referenced: frozenset[str] | None = None,
    unchanged: bool = False,
    abandoned: bool = False,
) -> Judgement:
    """What may go of a context.

    A task stays while the context's record names it: it runs, or its workspace is where the next one starts. A
    record that was read after the listing names whatever may start yet, as only its active task can come to be the
    last completed one. Without a record nobody knows which workspace is needed, so all tasks stay.

    Args:
        held: What a listing found.
        record: context.json, read after that; None if there is none.
        rules: How long what is kept.
        referenced: Keys of the parts that archives which stay refer to; None: unknown.
        unchanged: The record is still the one that was listed, so nobody has claimed the context since.
        abandoned: The record's active task was never begun, and its host is dead.
    """
    if record is not None and unchanged and _context_goes(held, record, rules, abandoned=abandoned):
        return Judgement(whole=True)
    named = _named(record, held)
    tasks = tuple(id_ for id_, task in held.tasks.items() if record and id_ not in named and _task_goes(task, rules))
    rest = {id_: task for id_, task in held.tasks.items() if id_ not in tasks}
    lost = [task for id_, task in rest.items() if task.record is None and id_ not in named]
    ended = [task for task in rest.values() if task.ended and _old(task.record, rules.runs)]
    orphans = [info for task in lost for info in task.objects if _old(info, rules.runs)]
    left = [info for task in ended for info in task.files if is_batch(info.key) and _old(info, rules.runs)]
    known = frozenset(info.key for info in held.parts) if referenced is None else referenced
    return Judgement(
        tasks=tasks,
        orphans=tuple(info for info in orphans if not is_batch(info.key)),
        batches=(*left, *(info for info in orphans if is_batch(info.key))),
        parts=tuple(info for info in held.parts if info.key not in known and _old(info, rules.runs)),
    )


def may_go(held: ContextHoldings, rules: Rules) -> bool:
    """Whether anything of a context is old enough for `judge`; what is left out of that costs no request."""
    return any(_old(info, rules.runs) for info in held.objects)


def _context_goes(held: ContextHoldings, record: ContextRecord, rules: Rules, *, abandoned: bool) -> bool:
    tasks = [task for task in held.tasks.values() if task.record is not None]
    if not all(task.ended for task in tasks):
        return False
    if record.being_removed:
        return True
    active = held.tasks.get(record.active.task_id) if record.active else None
    if record.active is not None and not abandoned and (active is None or active.record is None):
        return False
    if rules.contexts is None or held.record is None:
        return False
    idle = max(rules.contexts, rules.runs)
    return _old(held.record, idle) and all(_old(task.record, idle) for task in tasks)


def _named(record: ContextRecord | None, held: ContextHoldings) -> set[str]:
    """The active task, and the last completed one unless the active one has taken its place."""
    if record is None:
        return set()
    last, active = record.last_completed, record.active
    task = held.tasks.get(active.task_id) if active else None
    meta = task.meta if task else None
    superseded = meta is not None and meta.state == _COMPLETED and not meta.open and meta.pin is not None
    return {one.task_id for one in (None if superseded else last, active) if one is not None}


def _task_goes(task: TaskHoldings, rules: Rules) -> bool:
    meta = task.meta
    limit = rules.tasks if meta is not None and meta.state == _COMPLETED else rules.failed
    return task.ended and limit is not None and _old(task.record, max(limit, rules.runs))


def _old(info: ObjectInfo | None, seconds: float) -> bool:
    return info is not None and info.age >= seconds
