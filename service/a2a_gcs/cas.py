"""A record that changes only by compare-and-swap on its object's version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from a2a_gcs.errors import NotFound
from a2a_gcs.objectstore.port import IF_ABSENT, IfVersion, ObjectStore
from a2a_gcs.records import Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Versioned(Generic[R]):
    """A record as it was read; version 0: there is none yet and `value` is what a fresh one would be."""

    value: R
    version: int


class VersionedObject(Generic[R]):
    """One key holding one record.

    Unknown fields survive, an unreadable record is never replaced (loading it
    raises), and a write goes through only over what was read.
    """

    def __init__(self, store: ObjectStore, key: str, fresh: R) -> None:
        self._store = store
        self._key = key
        self._fresh = fresh

    async def load(self) -> Versioned[R]:
        """Reads the record. Raises CorruptRecord and StoreError."""
        try:
            blob = await self._store.get(self._key)
        except NotFound:
            return Versioned(self._fresh, 0)
        return Versioned(type(self._fresh).parse(self._key, blob.body), blob.info.version)

    async def replace(self, seen: Versioned[R], value: R) -> Versioned[R]:
        """Writes `value` over what was `seen`.

        Raises:
            Conflict: It changed meanwhile: load again and decide anew.
            StoreError: `ambiguous` tells whether it may have been written.
        """
        mode = IfVersion(seen.version) if seen.version else IF_ABSENT
        info = await self._store.put(self._key, value.to_bytes(), mode, content_type="application/json")
        return Versioned(value, info.version)
