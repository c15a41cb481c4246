"""What has to be notified of a task: every terminal or interrupted state that it has entered, in order.

A notice is named by the seq with which its state was entered (`TaskMeta.notice`), so
notices of one task are ordered across turns, hosts and crashes. The newest one is told
by task.json itself; earlier ones are kept beside it before it is written over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from a2a.types.a2a_pb2 import TaskStatus
from google.protobuf.json_format import ParseDict, ParseError

from a2a_gcs.errors import CorruptRecord, NotFound
from a2a_gcs.layout import TaskRef, owed_key, parse_owed, push_prefix
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import OwedRecord
from a2a_gcs.task_json import TERMINAL
from a2a_gcs.task_records import TaskRecords

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """One state to be notified.

    Attributes:
        ref: The task.
        number: The seq with which the state was entered.
        status: The state, with its message and timestamp.
    """

    ref: TaskRef
    number: int
    status: TaskStatus

    @property
    def last(self) -> bool:
        """Nothing can follow it."""
        return self.status.state in TERMINAL


def next_owed(kept: Iterable[int], current: int, delivered: int) -> int | None:
    """The first notice after the one that was delivered last; None if nothing is owed. Pure.

    Args:
        kept: Notices kept beside task.json.
        current: The one that task.json itself tells; 0 for none.
        delivered: The last one that needs no delivery any more.
    """
    return min((n for n in (*kept, current) if n > delivered), default=None)


async def list_keys(store: ObjectStore, prefix: str) -> list[str]:
    """Every key with a prefix. Raises StoreError."""
    found, page = [], None
    while True:
        listing = await store.list(prefix, page=page)
        found += [info.key for info in listing.objects]
        if (page := listing.next) is None:
            return found


class Notices:
    """Reads the notices of the tasks below one root.

    Args:
        store: The root.
        records: Its task.json records.
    """

    def __init__(self, store: ObjectStore, records: TaskRecords) -> None:
        self._store = store
        self._records = records

    async def after(self, ref: TaskRef, delivered: int) -> Notice | None:
        """The first notice after a number; None if nothing is owed. Raises StoreError and CorruptRecord.

        task.json is looked at before the kept ones are listed: what is written over in between is then among those.
        It is read as a whole, and may be large, only if it is the one that tells.
        """
        while (stored := await self._records.peek(ref)) is not None:
            kept = await self.kept(ref)
            number = next_owed(kept, stored[1].notice, delivered)
            if number is None:
                return None
            if number in kept:
                return await self._read(ref, number)
            record = await self._records.load(ref)
            if record is not None and record.meta.notice == number:
                return Notice(ref, number, record.copy_task().status)
        return None

    async def kept(self, ref: TaskRef) -> list[int]:
        """Numbers of the notices that are kept beside task.json."""
        keys = await list_keys(self._store, f"{push_prefix(ref)}owed/")
        return [number for key in keys if (number := parse_owed(key)) is not None]

    async def _read(self, ref: TaskRef, number: int) -> Notice:
        key = owed_key(ref, number)
        body = (await self._store.get(key)).body
        try:
            status = ParseDict(OwedRecord.parse(key, body).status, TaskStatus(), ignore_unknown_fields=True)
        except ParseError as e:
            raise CorruptRecord(key, e) from e
        return Notice(ref, number, status)

    async def forget(self, ref: TaskRef, kept: Iterable[int]) -> None:
        """Removes kept notices, once the last one of their task has been delivered everywhere."""
        for number in kept:
            try:
                await self._store.delete(owed_key(ref, number))
            except NotFound:
                continue
