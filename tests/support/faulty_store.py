"""A store that fails on script: by operation, key and occurrence, before or after the commit.

    async with FaultyStore(MemoryStore()) as store:
        store.fail("put", "tasks/*", when="after")          # committed, but the answer is lost
        store.fail("list", error=Throttled, times=3)        # nothing happened
        gate = store.hold("put", "*.json")                  # the next one waits ...
        ...
        await gate.reached.wait(); gate.release()           # ... until it is let go

A script that was not served in full fails the test: at the end of `async with`,
or by `verify()`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from a2a_gcs.errors import StoreError, Unavailable
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import MAX_PAGE, Blob, Mode, ObjectInfo, ObjectStore, Page, Source

When = Literal["before", "after"]
WRITES = frozenset({"put", "put_stream", "delete", "compose"})


class Gate:
    """Holds one call: `reached` is set when it has come there, `release` lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    def release(self) -> None:
        self._open.set()

    async def __call__(self, key: str) -> None:
        self.reached.set()
        await self._open.wait()


@dataclass(slots=True)
class Fault:
    """Something that happens to the calls `nth` to `nth + times - 1` of an operation on matching keys."""

    op: str
    pattern: str
    nth: int
    times: int
    when: When
    effect: Callable[[str], Awaitable[None]]
    seen: int = 0
    served: int = 0


class FaultyStore(ObjectStore):
    """A decorator of any store that does what the script says and otherwise nothing.

    Attributes:
        calls: Every call so far, as (operation, key); a list's key is its prefix.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._faults: list[Fault] = []
        self.calls: list[tuple[str, str]] = []

    def fail(
        self,
        op: str,
        pattern: str = "*",
        *,
        nth: int = 1,
        times: int = 1,
        when: When = "before",
        error: type[StoreError] = Unavailable,
        ambiguous: bool | None = None,
    ) -> Fault:
        """Scripts a failure of calls from now on.

        Args:
            op: Name of a method of the port.
            pattern: Keys, as for fnmatch.
            nth: The first call to fail, counted from 1 among the matching ones from now on.
            times: How many in a row.
            when: "before" the store below is asked, or "after" it has done it.
            error: What is raised.
            ambiguous: Its flag; by default set for writes that fail afterwards.
        """
        flag = (when == "after" and op in WRITES) if ambiguous is None else ambiguous

        async def effect(key: str) -> None:
            raise error(key, TimeoutError("scripted"), ambiguous=flag)

        return self._add(Fault(op, pattern, nth, times, when, effect))

    def act(
        self, op: str, pattern: str, action: Callable[[str], Awaitable[None]], *, nth: int = 1, when: When = "before"
    ) -> Fault:
        """Scripts something else, such as a foreign writer that comes first; `action` is given the key."""
        return self._add(Fault(op, pattern, nth, 1, when, action))

    def hold(self, op: str, pattern: str = "*", *, nth: int = 1, when: When = "before") -> Gate:
        """Scripts a pause of one call, such as a write that lands late."""
        gate = Gate()
        self._add(Fault(op, pattern, nth, 1, when, gate))
        return gate

    def count(self, op: str, pattern: str = "*") -> int:
        """How many calls there were so far."""
        return sum(1 for called, key in self.calls if called == op and fnmatchcase(key, pattern))

    def verify(self) -> None:
        """Raises AssertionError unless every scripted fault was served in full."""
        for fault in self._faults:
            assert fault.served == fault.times, (
                f"{fault.op} {fault.pattern!r} was to be met {fault.times} times, but was {fault.served}; "
                f"calls: {self.calls}"
            )

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
        if not exc or exc[0] is None:
            self.verify()

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        async with self._served("get", key):
            return await self._store.get(key, version=version, with_metadata=with_metadata)

    async def head(self, key: str) -> ObjectInfo:
        async with self._served("head", key):
            return await self._store.head(key)

    async def put(
        self,
        key: str,
        body: bytes,
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        async with self._served("put", key):
            return await self._store.put(key, body, mode, metadata=metadata, content_type=content_type)

    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        async with self._served("put_stream", key):
            return await self._store.put_stream(key, chunks, mode, metadata=metadata, content_type=content_type)

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        async with self._served("stream", key), closing(self._store.stream(key, version=version)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def delete(self, key: str, *, version: int | None = None) -> None:
        async with self._served("delete", key):
            await self._store.delete(key, version=version)

    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        async with self._served("list", prefix):
            return await self._store.list(prefix, start=start, page=page, limit=limit)

    async def compose(
        self,
        key: str,
        sources: Sequence[Source],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        async with self._served("compose", key):
            return await self._store.compose(key, sources, mode, metadata=metadata, content_type=content_type)

    async def close(self) -> None:
        await self._store.close()

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    @contextlib.asynccontextmanager
    async def _served(self, op: str, key: str) -> AsyncIterator[None]:
        self.calls.append((op, key))
        due = [fault for fault in self._faults if fault.op == op and fnmatchcase(key, fault.pattern)]
        for fault in due:
            fault.seen += 1
        due = [fault for fault in due if fault.nth <= fault.seen < fault.nth + fault.times]
        await _serve(due, "before", key)
        yield
        await _serve(due, "after", key)


async def _serve(due: Sequence[Fault], when: When, key: str) -> None:
    for fault in due:
        if fault.when == when:
            fault.served += 1
            await fault.effect(key)
