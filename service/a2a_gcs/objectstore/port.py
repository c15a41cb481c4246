"""The object store port: what a2a-gcs asks of a bucket, and what it may rely on.

Keys are `/`-separated UTF-8 strings of 1 to 1,024 bytes. Every object carries
a version that never repeats for its key, also after deletion (GCS's
generation). Writes are atomic: body and metadata become visible together or
not at all. Reads, heads and lists see every write acknowledged before them.

Adapters never retry by themselves; `RetryingStore` does, in one place. All
errors are `StoreError`s (`a2a_gcs.errors`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

WRITE_ID = "write-id"
"""Metadata name under which a conditional write carries its id, for the read-back (`RetryingStore`)."""

MAX_PAGE = 1000
"""Most objects in one page of a listing (GCS's own limit)."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Everything about an object but its bytes.

    Attributes:
        key: The key within the store that answered.
        version: Generation; 1 or more, never repeated for a key.
        size: Length of the body in bytes.
        crc32c: Checksum of the body as GCS writes it: big-endian, base64.
        metadata: Custom metadata. Names are lower case; 8 KiB in all (Cloud Storage, *Quotas & limits*).
        content_type: MIME type given at the write.
        updated: When this version was written, in Unix seconds of the store's clock.
        as_of: The store's clock when it gave this answer, in Unix seconds (GCS: HTTP Date, 1 s resolution).
    """

    key: str
    version: int
    size: int
    crc32c: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/octet-stream"
    updated: float = 0.0
    as_of: float = 0.0

    @property
    def age(self) -> float:
        """Seconds from the write of this version to this answer, both by the store's clock."""
        return self.as_of - self.updated


@dataclass(frozen=True, slots=True)
class Blob:
    """An object with its body, both of one version."""

    info: ObjectInfo
    body: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing in key order; `next` resumes after it, None at the end."""

    objects: Sequence[ObjectInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Write whatever is there. A repetition writes a further version."""


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Write only if there is no object of this key (ifGenerationMatch=0)."""


@dataclass(frozen=True, slots=True)
class IfVersion:
    """Write only over this very version (ifGenerationMatch)."""

    version: int


Mode = Overwrite | IfAbsent | IfVersion

OVERWRITE = Overwrite()
IF_ABSENT = IfAbsent()


@dataclass(frozen=True, slots=True)
class Source:
    """A part of a composed object; with a version, compose fails unless it still is the current one."""

    key: str
    version: int | None = None


class ObjectStore(ABC):
    """A bucket. Safe to use from many coroutines of one event loop."""

    @abstractmethod
    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        """Reads a whole object.

        `info.metadata` and `info.updated` are filled only `with_metadata`: the
        JSON API does not promise them on a media response, so that
        costs a second request in parallel; both parts are of one version. The
        body's crc32c is verified; a mismatch raises Unavailable.

        Raises:
            NotFound: No such object, or its current version is not `version`.
        """

    @abstractmethod
    async def head(self, key: str) -> ObjectInfo:
        """Reads everything but the body. Raises NotFound."""

    @abstractmethod
    async def put(
        self,
        key: str,
        body: bytes,
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        """Writes a whole object; body, metadata and content type replace what was there.

        Conditional modes are atomic against every other writer. A repetition of
        a conditional write that was committed meets a Conflict; `RetryingStore`
        recognises it by its write id.

        Raises:
            Conflict: The mode's condition did not hold; nothing was written.
            Throttled: Nothing was written.
            Unavailable: `ambiguous` tells whether it may have been written.
        """

    @abstractmethod
    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        """Writes an object of unknown length in flat memory; the condition is checked when it ends.

        An exception out of `chunks` is passed on and publishes nothing. The
        iterator is consumed once, so nobody can retry this but the caller.

        Raises:
            As `put`.
        """

    @abstractmethod
    def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        """Yields the body in chunks of at most a few MiB, all of one version, in flat memory.

        The crc32c is verified after the last chunk, before the iteration ends: a
        consumer that saw the end without error has the bytes that were written.

        Raises:
            NotFound: As `get`.
            Unavailable: Broken off, or the checksum does not match.
        """

    @abstractmethod
    async def delete(self, key: str, *, version: int | None = None) -> None:
        """Deletes an object, with `version` only that version.

        Raises:
            NotFound: There was none: a repetition meets this.
            Conflict: The current version is another one.
        """

    @abstractmethod
    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        """Lists keys that begin with `prefix` and are not below `start`, in UTF-8 byte order, with metadata.

        Args:
            prefix: Plain string prefix; it need not end at a `/`.
            start: First key to return, inclusive.
            page: `Page.next` of the page before, from the same arguments.
            limit: Most objects to return, 1 to 1,000.
        """

    @abstractmethod
    async def compose(
        self,
        key: str,
        sources: Sequence[Source],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        """Writes the concatenation of 1 to 32 objects on the store's side; of one: a copy.

        Raises:
            NotFound: A source does not exist.
            Conflict: The mode's condition or a source's version did not hold.
        """

    @abstractmethod
    async def close(self) -> None:
        """Releases connections and threads; may be called twice. The store is unusable afterwards."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
