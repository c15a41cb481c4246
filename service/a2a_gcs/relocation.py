"""Moves everything below one root to another one of the same bucket: copy, verify, then delete.

Copies are made on the store's side, in the order in which a host writes:
workspaces, parts and journals, then pointers, then task.json, then context.json;
sources are deleted in the reverse order. What is left of a move that broke off
at any point is a prefix of that, so the same call again goes on where it ended.

A copy has a generation of its own, so the pins in task.json's metadata and in
context.json name the copies' (records.repinned). Everything else stays as it is,
byte for byte; what neither was written nor pinned as it is now keeps a pin that
names nothing, here as there.

The marks of tasks with push configurations are beside the roots. A host that finds one looks at its
task, so they are made for the new root once all else is there, and those of the old one go last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from a2a_gcs.errors import A2AGcsError, Conflict, CorruptRecord, NotFound
from a2a_gcs.layout import (
    CONTEXTS_PREFIX,
    HOSTS_PREFIX,
    POINTERS_PREFIX,
    PUSH_PREFIX,
    TaskRef,
    parse_context,
    parse_push_mark,
    parse_task,
    push_mark_key,
    workspace_key,
)
from a2a_gcs.objectstore.port import IF_ABSENT, WRITE_ID, ObjectInfo, ObjectStore, Source
from a2a_gcs.objectstore.rules import crc32c
from a2a_gcs.records import ContextRecord, HeartbeatRecord, Pin, repinned

_AT_ONCE = 16
_DEFAULT_LEASE_SECONDS = 30.0
"""Of a heartbeat that cannot be read."""

Step = Callable[[str, int], None]
"""Told of progress: what is being done, and by how many objects it has come on."""


class RelocationRefused(A2AGcsError):
    """Nothing, or nothing more, is moved; the message says why and what to do. What was copied stays."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a move has to do.

    Attributes:
        sources: By key below the old root.
        present: Those of them that are below the new root already, as this move makes them.
    """

    sources: Mapping[str, ObjectInfo]
    present: frozenset[str]

    @property
    def contexts(self) -> int:
        return len({key.split("/")[1] for key in self.sources if key.startswith(CONTEXTS_PREFIX)})

    @property
    def tasks(self) -> int:
        return sum(parse_task(key) is not None for key in self.sources)

    @property
    def size(self) -> int:
        """Bytes below the old root."""
        return sum(info.size for info in self.sources.values())


@dataclass(frozen=True, slots=True)
class _Expected:
    """What a copy has to look like; `body` where it is not its source's."""

    size: int
    crc32c: str
    content_type: str
    metadata: Mapping[str, str]
    body: bytes | None = None

    def is_met_by(self, info: ObjectInfo) -> bool:
        return (self.size, self.crc32c, self.content_type, self.metadata) == (
            info.size,
            info.crc32c,
            info.content_type,
            _without_write_id(info.metadata),
        )


@dataclass
class Relocation:
    """One move.

    Args:
        bucket: The bucket at its prefix.
        old: Root of the data, empty for the prefix itself.
        new: Root to move it to.
        step: Told of progress.
    """

    bucket: ObjectStore
    old: str
    new: str
    step: Step = lambda doing, count: None  # noqa: ARG005 - nobody watches
    _copies: dict[str, ObjectInfo] = field(default_factory=dict, init=False)

    async def plan(self) -> Plan:
        """Compares both roots; writes nothing.

        Raises:
            RelocationRefused: The new root holds something else under a key that is to be moved.
            StoreError: The bucket could not be read.
        """
        sources = await self._below(self.old)
        there = await self._below(self.new)
        self._copies = {key: there[key] for key in sources if key in there}
        for key, copy in self._copies.items():
            if not (await self._expected(sources, key)).is_met_by(copy):
                raise self._other(key)
        return Plan(sources, frozenset(self._copies))

    async def copy(self, plan: Plan) -> int:
        """Copies what is not there yet, and verifies that all of it is. How many objects were copied.

        Raises:
            RelocationRefused: Somebody writes below one of the roots meanwhile.
            StoreError: The bucket failed: call `plan` and `copy` again.
        """
        missing = [key for key in plan.sources if key not in plan.present]
        for group in _in_order(plan.sources, missing):
            await _each(group, lambda chain: self._copy_in_turn(plan.sources, chain))
        there = await self._below(self.new)
        for key in plan.sources:
            copy = there.get(key)
            if copy is None or not (await self._expected(plan.sources, key)).is_met_by(copy):
                raise self._other(key)
        for mark, task_id in await self._marks():
            metadata = _without_write_id(mark.metadata)
            with contextlib.suppress(Conflict):  # all that one says is that there is a task to look at
                await self.bucket.put(push_mark_key(self.new, task_id), b"", IF_ABSENT, metadata=metadata)
        return len(missing)

    async def delete(self, plan: Plan) -> int:
        """Deletes the sources of a plan that was copied, each only as it was copied. How many there were.

        Raises:
            RelocationRefused: A source was written meanwhile; it is kept.
            StoreError: The bucket failed: begin again.
        """
        for group in reversed(_in_order(plan.sources, plan.sources)):
            await _each(group, lambda chain: self._delete_in_turn(plan.sources, chain))
        for mark, _ in await self._marks():
            with contextlib.suppress(Conflict, NotFound):
                await self.bucket.delete(mark.key, version=mark.version)
        return len(plan.sources)

    # ------------------------------------------------------------------ one object

    async def _copy_in_turn(self, sources: Mapping[str, ObjectInfo], keys: Iterable[str]) -> None:
        for key in keys:
            self._copies[key] = await self._copy(sources, key)
            self.step("copying", 1)

    async def _copy(self, sources: Mapping[str, ObjectInfo], key: str) -> ObjectInfo:
        source, target, wanted = sources[key], self._at(self.new, key), await self._expected(sources, key)
        try:
            if wanted.body is not None:
                made = await self.bucket.put(
                    target, wanted.body, IF_ABSENT, metadata=wanted.metadata, content_type=wanted.content_type
                )
            else:
                made = await self.bucket.compose(
                    target,
                    [Source(self._at(self.old, key), source.version)],
                    IF_ABSENT,
                    metadata=wanted.metadata,
                    content_type=wanted.content_type,
                )
        except (Conflict, NotFound) as e:
            try:
                made = await self.bucket.head(target)
            except NotFound:
                raise self._changed(key) from e
            if not wanted.is_met_by(made):  # else it is the copy of a run that broke off, and landed late
                raise self._changed(key) from e
        if (made.size, made.crc32c) != (wanted.size, wanted.crc32c):
            raise self._other(key)
        return made

    async def _delete_in_turn(self, sources: Mapping[str, ObjectInfo], keys: Iterable[str]) -> None:
        for key in keys:
            try:
                await self.bucket.delete(self._at(self.old, key), version=sources[key].version)
            except NotFound:
                pass
            except Conflict as e:
                raise self._changed(key) from e
            self.step("deleting", 1)

    async def _expected(self, sources: Mapping[str, ObjectInfo], key: str) -> _Expected:
        """A source as its copy has to be, with the pins of the archives that were copied before."""
        source = sources[key]
        metadata = _without_write_id(source.metadata)
        if (ref := parse_task(key)) is not None and (moved := self._moved(sources, ref)) is not None:
            metadata = repinned(metadata, *moved)
        if parse_context(key) is not None:
            body = await self._context_body(sources, key)
            if body is not None:
                return _Expected(len(body), crc32c(body), source.content_type, metadata, body)
        return _Expected(source.size, source.crc32c, source.content_type, metadata)

    async def _context_body(self, sources: Mapping[str, ObjectInfo], key: str) -> bytes | None:
        """context.json with the pin of the copy; None where it stays as it is, also if nobody can read it."""
        try:
            blob = await self.bucket.get(self._at(self.old, key), version=sources[key].version)
            record = ContextRecord.parse(key, blob.body)
        except NotFound as e:
            raise self._changed(key) from e
        except CorruptRecord as e:
            if e.newer:  # its pin could not be moved
                raise
            return None
        if record.last_completed is None:
            return None
        moved = self._moved(sources, TaskRef(record.context_id, record.last_completed.task_id))
        after = record.repinned(*moved) if moved else record
        return None if after is record else after.to_bytes()

    def _moved(self, sources: Mapping[str, ObjectInfo], ref: TaskRef) -> tuple[Pin, Pin] | None:
        """The pins of a task's archive before and after; None if there is none, or it was not copied yet."""
        key = workspace_key(ref)
        if key not in sources or key not in self._copies:
            return None
        old, new = sources[key], self._copies[key]
        return Pin(old.version, old.crc32c), Pin(new.version, new.crc32c)

    # ------------------------------------------------------------------ both roots

    async def _below(self, root: str) -> dict[str, ObjectInfo]:
        """Everything of the tasks and contexts of a root, by key below it; roots below it are not of it."""
        start = self._at(root, "")
        found: dict[str, ObjectInfo] = {}
        for prefix in (POINTERS_PREFIX, CONTEXTS_PREFIX):
            found |= {info.key.removeprefix(start): info for info in await self._listed(start + prefix)}
        return found

    async def _marks(self) -> list[tuple[ObjectInfo, str]]:
        """The marks of the old root's tasks with push configurations, and the tasks' ids."""
        found = []
        for info in await self._listed(PUSH_PREFIX + self._at(self.old, "")):
            parsed = parse_push_mark(info.key)
            if parsed is not None and parsed[0] == self.old:
                found.append((info, parsed[1]))
        return found

    async def _listed(self, prefix: str) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        page: str | None = None
        while True:
            listing = await self.bucket.list(prefix, page=page)
            found += listing.objects
            self.step("listing", len(listing.objects))
            if (page := listing.next) is None:
                return found

    @staticmethod
    def _at(root: str, key: str) -> str:
        return f"{root}/{key}" if root else key

    def _other(self, key: str) -> RelocationRefused:
        return RelocationRefused(
            f"{self._at(self.new, key)} is there already and is not a copy of {self._at(self.old, key)}: both roots "
            "hold data of the same id. Nothing of either was changed; choose another root, or delete what is not wanted"
        )

    def _changed(self, key: str) -> RelocationRefused:
        return RelocationRefused(
            f"{self._at(self.old, key)} or its copy was written meanwhile: somebody uses the bucket; "
            "stop every host, then run the same command again"
        )


async def live_hosts(bucket: ObjectStore) -> list[str]:
    """The hosts whose heartbeats are not over their lease, by the store's clock. Raises StoreError."""
    found: list[str] = []
    page: str | None = None
    while True:
        listing = await bucket.list(HOSTS_PREFIX, page=page)
        for info in listing.objects:
            try:
                blob = await bucket.get(info.key, with_metadata=True)
            except NotFound:
                continue
            try:
                lease = HeartbeatRecord.parse(info.key, blob.body).lease_seconds
            except CorruptRecord:
                lease = _DEFAULT_LEASE_SECONDS
            if blob.info.age <= lease:
                found.append(info.key.removeprefix(HOSTS_PREFIX).removesuffix(".json"))
        if (page := listing.next) is None:
            return found


def _in_order(sources: Mapping[str, ObjectInfo], keys: Iterable[str]) -> list[list[list[str]]]:
    """The four groups of a move, one after the other; each of chains that go side by side.

    A context's records of tasks are one chain, in the order in which they were last written: which task came before
    which is told by that (`workspace diff`).
    """
    rest: list[list[str]] = []
    pointers: list[list[str]] = []
    contexts: list[list[str]] = []
    tasks: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        if (ref := parse_task(key)) is not None:
            tasks[ref.context_id].append(key)
        elif parse_context(key) is not None:
            contexts.append([key])
        elif key.startswith(POINTERS_PREFIX):
            pointers.append([key])
        else:
            rest.append([key])
    for chain in tasks.values():
        chain.sort(key=lambda key: (sources[key].updated, sources[key].version))
    return [rest, pointers, list(tasks.values()), contexts]


async def _each(chains: Sequence[list[str]], act: Callable[[list[str]], Awaitable[None]]) -> None:
    """Acts on all, some at a time. After an error nothing more is begun; what is on its way is waited for."""
    waiting = iter(chains)
    failures: list[BaseException] = []

    async def work() -> None:
        for chain in waiting:
            if failures:
                return
            try:
                await act(chain)
            except BaseException as e:
                failures.append(e)
                raise

    await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, len(chains)))), return_exceptions=True)
    if failures:
        raise failures[0]


def _without_write_id(metadata: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in metadata.items() if name != WRITE_ID}
