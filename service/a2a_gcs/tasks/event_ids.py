"""Ids of streamed events: a position in the life of a task, the same on every host; pure.

Written `<task>.<turn>.<number>`, with a checksum of the task's id, so that an id
of another task's stream is none. What a stream ends with is written with `.end`
after it: a stream whose last id has no such end was cut.
"""

from __future__ import annotations

import re
import zlib

from a2a_gcs.records import TURN_STRIDE

_END = ".end"
_FORM = re.compile(r"([0-9a-f]{8})\.([0-9]{1,9})\.([0-9]{1,10})(?:\.end)?", re.ASCII)


def event_id(task_id: str, seq: int, *, last: bool = False) -> str:
    """The id of an event that makes version `seq` of a task, or of a snapshot of that version."""
    return f"{_tag(task_id)}.{seq // TURN_STRIDE}.{seq % TURN_STRIDE}{_END if last else ''}"


def position(task_id: str, text: str) -> int | None:
    """The `seq` behind an id; None for what is no id of this task."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] != _tag(task_id) or int(match[3]) >= TURN_STRIDE:
        return None
    return int(match[2]) * TURN_STRIDE + int(match[3])


def _tag(task_id: str) -> str:
    return f"{zlib.crc32(task_id.encode()):08x}"
