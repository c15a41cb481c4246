"""Push-notification configurations, kept under their task: push/<id>.json.

Each tells by itself how far its receiver has been told (`delivered`), so that any host
goes on where another one ended. A configuration that is not stored costs nothing: only a
task whose metadata says that there may be some is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import structlog

from a2a_gcs.cas import Versioned, VersionedObject
from a2a_gcs.claims import Claim, ClaimTable
from a2a_gcs.errors import A2AGcsError, Conflict, CorruptRecord, NotFound
from a2a_gcs.layout import (
    TaskRef,
    encode_segment,
    parse_owed,
    parse_push_config,
    push_config_key,
    push_mark_key,
    push_prefix,
)
from a2a_gcs.objectstore.port import OVERWRITE, ObjectInfo, ObjectStore
from a2a_gcs.records import PushConfigRecord
from a2a_gcs.task_records import TaskRecord, TaskRecords
from a2a_gcs.tasks.notices import list_keys

log = structlog.get_logger(__name__)

MOST_OF_A_TASK = 20
"""Configurations that one task may have: each is a receiver that its host has to serve."""


class TooManyPushConfigs(A2AGcsError):
    """The task has as many configurations as it may have. Nothing was stored."""

    def __init__(self, ref: TaskRef) -> None:
        super().__init__(
            f"task {ref.task_id} has {MOST_OF_A_TASK} push configurations, which is the most it may have: delete one"
        )


class PushConfigs:
    """The configurations of the tasks below one root.

    Args:
        store: The root.
        records: Its task.json records.
        bucket: The bucket at its prefix, where the marks are.
        root: Name of the root, as in `a2a_gcs.layout`.
        table: The claims of this process below the root; None where nothing is registered.
    """

    def __init__(
        self,
        store: ObjectStore,
        records: TaskRecords,
        bucket: ObjectStore,
        *,
        root: str,
        table: ClaimTable | None = None,
    ) -> None:
        self._store = store
        self._records = records
        self._bucket = bucket
        self._root = root
        self._table = table

    # ------------------------------------------------------------------ for clients

    async def register(self, ref: TaskRef, wanted: PushConfigRecord) -> None:
        """Stores a configuration, in place of one of the same id, which it takes over where that had come to.

        A new one is told of the state that the task is in, if it is one that push tells of, and of all later ones.
        The order matters: once the task says that there are configurations, no notice is lost; the mark comes
        last, so that whoever removes it has seen the configuration.

        Raises:
            TooManyPushConfigs: Nothing was stored.
            InvalidId, StoreError: It may have been stored.
        """
        key = push_config_key(ref, wanted.id)
        ids = await self.ids(ref)
        if wanted.id not in ids and len(ids) >= MOST_OF_A_TASK:
            raise TooManyPushConfigs(ref)
        told = await self._flag(ref)
        stored = VersionedObject(self._store, key, wanted.model_copy(update={"delivered": told}))
        while True:
            seen = await stored.load()
            kept = {"delivered": seen.value.delivered, "deliverer": seen.value.deliverer}
            try:
                await stored.replace(seen, wanted.model_copy(update=kept))
                break
            except Conflict:
                continue
        await self._bucket.put(
            push_mark_key(self._root, ref.task_id),
            b"",
            OVERWRITE,
            metadata={"context": encode_segment(ref.context_id)},
        )

    async def _flag(self, ref: TaskRef) -> int:
        """Makes task.json say that there are configurations; the last notice that a new one need not be told."""
        while True:
            record = await self._records.load(ref)
            claim = self._table.get(ref.task_id) if self._table is not None else None
            if record is None:  # claimed, and not saved yet: the first save says it
                if claim is not None:
                    _flag_claim(claim, claim.record)
                return 0
            told = record.meta.notice - 1 if record.meta.notice else record.meta.seq
            if record.terminal or record.meta.push:
                return told
            try:
                written = await self._records.write(record, record.task, record.meta.with_(push=True))
            except Conflict:
                continue
            if claim is not None and claim.record.version == record.version:
                claim.record = written
            return told

    async def ids(self, ref: TaskRef) -> list[str]:
        """The ids of a task's configurations, in the order of their keys."""
        return (await self.ids_and_kept(ref))[0]

    async def ids_and_kept(self, ref: TaskRef) -> tuple[list[str], list[int]]:
        """The ids of a task's configurations, and the notices that are kept for them (`Notices.kept`): one listing."""
        keys = await list_keys(self._store, push_prefix(ref))
        ids = [one for key in keys if (one := parse_push_config(key)) is not None]
        return ids, [number for key in keys if (number := parse_owed(key)) is not None]

    async def get(self, ref: TaskRef, config_id: str) -> PushConfigRecord | None:
        """One configuration; None if there is none. Raises InvalidId, CorruptRecord and StoreError."""
        seen = await self._load(ref, config_id)
        return seen.value if seen else None

    async def all(self, ref: TaskRef) -> list[PushConfigRecord]:
        """The configurations of a task; one that cannot be read is logged and left out. Raises StoreError."""
        return await self.readable(ref, await self.ids(ref))

    async def readable(self, ref: TaskRef, ids: Iterable[str]) -> list[PushConfigRecord]:
        """Configurations by their ids; one that cannot be read is logged and left out. Raises StoreError."""
        found = []
        for one in ids:
            try:
                config = await self.get(ref, one)
            except CorruptRecord as e:
                log.error("push.unreadable", key=e.key, error=str(e.cause))  # noqa: TRY400 - it is about the data
                continue
            found += [config] if config is not None else []
        return found

    async def delete(self, ref: TaskRef, config_id: str) -> None:
        """Removes a configuration; one that is not there is removed already. What is on its way may still arrive."""
        try:
            await self._store.delete(push_config_key(ref, config_id))
        except NotFound:
            return

    # ------------------------------------------------------------------ for delivery

    async def take(self, ref: TaskRef, config_id: str, host: str, free: Collection[str]) -> PushConfigRecord | None:
        """Makes `host` the one that delivers, if nobody else does; the configuration as it stands then, or None.

        Args:
            ref: The task.
            config_id: Which of its configurations.
            host: Who wants to deliver.
            free: Hosts that may be relieved, and "" for none.
        """
        return await self._change(
            ref, config_id, lambda c: c.model_copy(update={"deliverer": host}) if c.deliverer in free else c
        )

    async def mark(self, ref: TaskRef, config_id: str, notice: int, *, release: bool) -> PushConfigRecord | None:
        """Keeps that a notice needs no delivery any more, and who delivers only if more is to come."""

        def change(config: PushConfigRecord) -> PushConfigRecord:
            deliverer = "" if release else config.deliverer
            return config.model_copy(update={"delivered": max(notice, config.delivered), "deliverer": deliverer})

        return await self._change(ref, config_id, change)

    async def _change(
        self, ref: TaskRef, config_id: str, change: Callable[[PushConfigRecord], PushConfigRecord]
    ) -> PushConfigRecord | None:
        while (seen := await self._load(ref, config_id)) is not None:
            wanted = change(seen.value)
            if wanted == seen.value:
                return wanted
            try:
                await self._object(ref, config_id).replace(seen, wanted)
            except Conflict:
                continue
            return wanted
        return None

    async def _load(self, ref: TaskRef, config_id: str) -> Versioned[PushConfigRecord] | None:
        seen = await self._object(ref, config_id).load()
        return seen if seen.version else None

    def _object(self, ref: TaskRef, config_id: str) -> VersionedObject[PushConfigRecord]:
        fresh = PushConfigRecord(id=config_id, url="")
        return VersionedObject(self._store, push_config_key(ref, config_id), fresh)

    # ------------------------------------------------------------------ marks

    async def find_mark(self, ref: TaskRef) -> ObjectInfo | None:
        """The mark of a task, by which hosts that look for work find it."""
        try:
            return await self._bucket.head(push_mark_key(self._root, ref.task_id))
        except NotFound:
            return None

    async def unmark(self, mark: ObjectInfo) -> None:
        """Removes a mark, unless another configuration was stored since it was read."""
        try:
            await self._bucket.delete(mark.key, version=mark.version)
        except (NotFound, Conflict):
            return


def _flag_claim(claim: Claim, record: TaskRecord) -> None:
    claim.record = replace(record, meta=record.meta.with_(push=True))
