"""What the credentials may do, tried on an object of the doctor's own."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from a2a_gcs.clock import utcnow
from a2a_gcs.errors import Conflict, NotFound, PermissionDenied
from a2a_gcs.layout import PROBES_PREFIX, probe_key
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE, IfVersion, Mode, ObjectStore

T = TypeVar("T")


@dataclass
class Probe:
    """What was met.

    Attributes:
        key: The probe object.
        tried: The verbs that were tried.
        denied: The store's word for those that are not permitted.
        unconditional: Writes that went through though their condition did not hold; None if that was not tried.
        clock_ahead: Seconds by which this machine's clock is ahead of the store's; None if nobody knows.
    """

    key: str
    tried: set[str] = field(default_factory=set)
    denied: dict[str, PermissionDenied] = field(default_factory=dict)
    unconditional: list[str] | None = None
    clock_ahead: float | None = None

    async def tries(self, verb: str, call: Awaitable[T]) -> T | None:
        """The outcome of a call; None if it is not permitted."""
        self.tried.add(verb)
        try:
            return await call
        except PermissionDenied as e:
            self.denied[verb] = e
            return None


async def probe(store: ObjectStore) -> Probe:
    """Creates, lists, reads, overwrites and deletes objects of its own.

    Raises StoreError for what is no matter of permissions.

    Without the permission to create, the verbs that need an object are not tried; without that to delete, they stay.
    """
    made = Probe(probe_key(secrets.token_hex(8)))
    await made.tries("list", store.list(PROBES_PREFIX, limit=1))
    created = await made.tries("create", store.put(made.key, b"1", IF_ABSENT))
    if created is None:
        return made
    try:
        read = await made.tries("read", store.get(made.key, with_metadata=True))
        if read is not None:
            made.clock_ahead = utcnow().timestamp() - read.info.as_of
        if await made.tries("overwrite", store.put(made.key, b"2", OVERWRITE)) is not None:
            made.unconditional = await _unconditional(store)
    finally:
        await made.tries("delete", _delete(store, made.key))
    return made


async def _delete(store: ObjectStore, key: str) -> None:
    with contextlib.suppress(NotFound):
        await store.delete(key)


async def _unconditional(store: ObjectStore) -> list[str]:
    """The writes that a store let through though it had to refuse them.

    Each has an object of its own: a third write within a second meets the store's limit, and is then judged by reading.
    """
    through = []
    for what, wrong in _WRONG.items():
        key = probe_key(secrets.token_hex(8))
        created = await store.put(key, b"1", IF_ABSENT)
        try:
            with contextlib.suppress(Conflict, PermissionDenied):
                await store.put(key, b"2", wrong(created.version))
                through.append(what)
        finally:
            with contextlib.suppress(PermissionDenied):  # told already by what was tried before
                await _delete(store, key)
    return through


_WRONG: dict[str, Callable[[int], Mode]] = {
    "a create over an object that exists": lambda _: IF_ABSENT,
    "an overwrite of another generation": lambda version: IfVersion(version + 1),
}
