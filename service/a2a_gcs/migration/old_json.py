"""Tasks as JSON of any age: A2A 1.0 and 0.3, and the metadata that gemini-cli's a2a-server keeps; pure."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from a2a.types.a2a_pb2 import Task
from google.protobuf.timestamp_pb2 import Timestamp

from a2a_gcs.errors import CorruptRecord
from a2a_gcs.migration.source import context_of, state_of
from a2a_gcs.task_json import parse_task_json

MAX_METADATA = 256 << 20
"""Bytes that metadata may unpack to."""

_KEPT_STATE = "__persistedState"
_CONTEXT = "_contextId"


def unpack(key: str, packed: bytes) -> dict[str, Any]:
    """The JSON object in a metadata.tar.gz: gzipped JSON, or a tar.gz of one file with it. Raises CorruptRecord."""
    try:
        decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
        plain = decompressor.decompress(packed, MAX_METADATA)
    except zlib.error as e:
        raise CorruptRecord(key, f"it is not gzipped: {e}") from e
    if decompressor.unconsumed_tail:
        raise CorruptRecord(key, f"it unpacks to more than {MAX_METADATA >> 20} MiB")
    if not decompressor.eof:
        raise CorruptRecord(key, "it ends too early")
    if not plain.lstrip().startswith(b"{"):
        plain = _only_file(key, plain)
    try:
        found = json.loads(plain)
    except ValueError as e:
        raise CorruptRecord(key, f"it holds no JSON: {e}") from e
    if not isinstance(found, dict):
        raise CorruptRecord(key, "it holds no JSON object")
    return found


def as_task(key: str, found: Mapping[str, Any], task_id: str, millis: int) -> tuple[Task, Mapping[str, Any]]:
    """A stored JSON object as a task of A2A 1.0, and the members that there is no field for.

    Args:
        key: Names the object in errors.
        found: A Task of A2A 1.0 or 0.3, or a Task's metadata in which gemini-cli keeps state and context id.
        task_id: Its id, by where it was found.
        millis: Stands in for a status timestamp that is not there.

    Raises:
        CorruptRecord: It is no task, or the task of another id.
    """
    raw = _of_gemini(found) if _KEPT_STATE in found else dict(found)
    status = raw.get("status")
    named = status.get("state") if isinstance(status, dict) else None
    try:
        state_of(named)
    except ValueError as e:
        raise CorruptRecord(key, e) from e
    if raw.setdefault("id", task_id) != task_id:
        raise CorruptRecord(key, f"it holds task {raw['id']!r}")
    if not names_context(found):
        raw["contextId"] = context_of(task_id)
    if isinstance(status, dict):
        raw["status"] = _with_zone(status, time_of(raw))
    if not str(named).startswith("TASK_STATE_"):
        raw["kind"] = "task"  # which is how 0.3 is told
    try:
        body = json.dumps(raw, allow_nan=False).encode()
    except ValueError as e:
        raise CorruptRecord(key, f"it holds a number that JSON does not have: {e}") from e
    task, unknown = parse_task_json(key, body)
    if not task.status.HasField("timestamp"):
        task.status.timestamp.FromMilliseconds(millis)
    return task, unknown


def names_context(found: Mapping[str, Any]) -> bool:
    """Whether a stored JSON object says what its context is."""
    return bool(found.get(_CONTEXT) if _KEPT_STATE in found else found.get("contextId"))


def time_of(found: Mapping[str, Any]) -> int | None:
    """The status timestamp of a stored Task in Unix milliseconds, if it has one."""
    status = found.get("status")
    text = status.get("timestamp") if isinstance(status, dict) else None
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return stamp.ToMilliseconds()


def _with_zone(status: Mapping[str, Any], millis: int | None) -> dict[str, Any]:
    """A status whose timestamp protobuf can read: 0.3 has any ISO 8601, also without a zone; UTC is meant then."""
    stamp = Timestamp()
    try:
        stamp.FromJsonString(status.get("timestamp"))  # type: ignore[arg-type]  # None raises as well
    except (ValueError, TypeError, AttributeError):
        others = {name: value for name, value in status.items() if name != "timestamp"}
        if millis is None:
            return others
        stamp.FromMilliseconds(millis)
        return {**others, "timestamp": stamp.ToJsonString()}
    return dict(status)


def _of_gemini(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = metadata[_KEPT_STATE]
    state = kept.get("_taskState") if isinstance(kept, dict) else None
    return {"contextId": metadata.get(_CONTEXT), "status": {"state": state}, "metadata": dict(metadata)}


def _only_file(key: str, plain: bytes) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            files = [archive.extractfile(member) for member in archive if member.isfile()]
            if len(files) != 1 or files[0] is None:
                raise CorruptRecord(key, f"it is a tar of {len(files)} files; one with JSON is expected")
            return files[0].read()
    except tarfile.TarError as e:
        raise CorruptRecord(key, f"it holds neither JSON nor a tar: {e}") from e
