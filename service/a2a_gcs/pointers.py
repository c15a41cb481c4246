"""What a pointer tells beside its context: how the task stands, so that listings across contexts read nothing else.

The metadata of `tasks/<task>/contextId.txt` carries state and status timestamp,
set when the task is claimed and again whenever a turn has ended (ARCHITECTURE,
*Listing*). A terminal state there is final. Anything else may be old, as the
pointer is written after the task and a host may die in between: whoever reads
it looks at the task itself, and mends the pointer if that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from a2a.types.a2a_pb2 import TaskState

from a2a_gcs.errors import Conflict, NotFound, StoreError
from a2a_gcs.layout import TaskRef, decode_segment, encode_segment, pointer_key
from a2a_gcs.objectstore.port import IfVersion, Mode, ObjectInfo, ObjectStore
from a2a_gcs.records import SCHEMA
from a2a_gcs.task_json import TERMINAL

log = structlog.get_logger(__name__)

TERMINAL_NAMES = frozenset(TaskState.Name(state) for state in TERMINAL)

_APART_SECONDS = 1.0
"""An object takes about one write a second, and the pointer of a short task is not older than that."""

_WRITES_AT_ONCE = 8
_MOST_WAITING = 10_000
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PointerMeta:
    """A pointer's custom metadata.

    Attributes:
        context_id: The context, as in the body; None where something else wrote the pointer.
        state: Name of the task's state; empty where an earlier version wrote the pointer.
        status_time: Timestamp of that state in Unix milliseconds.
    """

    context_id: str | None
    state: str = ""
    status_time: int = 0

    @property
    def final(self) -> bool:
        """Nothing of it changes any more: the first terminal state wins for ever."""
        return self.state in TERMINAL_NAMES

    @classmethod
    def from_metadata(cls, raw: Mapping[str, str]) -> PointerMeta:
        """Reads the metadata; what is not ours counts as not said.

        Neither does what a later schema says (`records`), which stands here as well: a listing then looks at the task.
        """
        context_id = decode_segment(raw.get("context", ""))
        try:
            if int(raw.get("schema", SCHEMA)) > SCHEMA:
                return cls(context_id)
            return cls(context_id, raw.get("state", ""), int(raw["status-time"]))
        except (KeyError, ValueError):
            return cls(context_id)

    def to_metadata(self) -> dict[str, str]:
        known = {"context": encode_segment(self.context_id)} if self.context_id is not None else {}
        return {**known, "state": self.state, "status-time": str(self.status_time)}


async def put_pointer(store: ObjectStore, ref: TaskRef, mode: Mode, state: str, status_time: int) -> ObjectInfo:
    """Writes a pointer, body and metadata together. Raises as `ObjectStore.put`."""
    return await store.put(
        pointer_key(ref.task_id),
        ref.context_id.encode(),
        mode,
        metadata=PointerMeta(ref.context_id, state, status_time).to_metadata(),
        content_type="text/plain; charset=utf-8",
    )


class PointerIndex:
    """Keeps the pointers of one root up to date, behind the answers: one class B and one class A request each.

    What cannot be written is left to the readers, who mend it.

    Args:
        store: The root.
        apart: Seconds from a change to its write; changes of a task in between are one.
    """

    def __init__(self, store: ObjectStore, *, apart: float = _APART_SECONDS) -> None:
        self._store = store
        self._apart = apart
        self._wanted: dict[TaskRef, PointerMeta] = {}
        self._writers: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._closing = asyncio.Event()

    def note(self, ref: TaskRef, state: str, status_time: int) -> None:
        """Has the pointer of a stored task say how it stands. Returns at once, never raises."""
        waits, wanted = ref in self._wanted, PointerMeta(ref.context_id, state, status_time)
        if self._closing.is_set() or (not waits and len(self._wanted) >= _MOST_WAITING):
            return
        if not waits or not self._wanted[ref].final:
            self._wanted[ref] = wanted
        if not waits:
            writer = asyncio.create_task(self._write_soon(ref), name=f"pointer:{ref.task_id}")
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    async def _write_soon(self, ref: TaskRef) -> None:
        try:
            async with asyncio.timeout(self._apart):
                await self._closing.wait()
        except TimeoutError:
            pass
        async with self._gate:
            wanted = self._wanted.pop(ref)
            try:
                await self._write(ref, wanted)
            except StoreError as e:
                log.info("pointer.left_to_readers", task_id=ref.task_id, error=str(e))

    async def _write(self, ref: TaskRef, wanted: PointerMeta) -> None:
        """One compare-and-swap, again while others write; never over a terminal state, and never where none is."""
        while True:
            try:
                info = await self._store.head(pointer_key(ref.task_id))
            except NotFound:
                return
            found = PointerMeta.from_metadata(info.metadata)
            if found.final or found == wanted:
                return
            try:
                await put_pointer(self._store, ref, IfVersion(info.version), wanted.state, wanted.status_time)
            except Conflict:
                continue
            return

    async def drained(self) -> None:
        """Returns once all that was noted is written, or left to the readers."""
        while self._writers:
            await asyncio.wait(set(self._writers))

    async def aclose(self) -> None:
        """Writes what waits, for a moment; the readers mend the rest."""
        self._closing.set()
        if self._writers:
            _, late = await asyncio.wait(set(self._writers), timeout=_CLOSE_SECONDS)
            for writer in late:
                writer.cancel()
            await asyncio.gather(*late, return_exceptions=True)
