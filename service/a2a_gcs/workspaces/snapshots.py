"""Saves working directories as archives in the store, and restores them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from a2a_gcs.errors import Conflict, NotFound, StoreError, Throttled, Unavailable
from a2a_gcs.objectstore.port import IF_ABSENT, WRITE_ID, IfVersion, Mode, ObjectInfo, ObjectStore
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.beneath import names_of, open_root
from a2a_gcs.workspaces.bridge import Inflow, Outflow, in_thread, outlast
from a2a_gcs.workspaces.errors import SnapshotCorrupt, SnapshotMissing, SnapshotUnstable, WorkspaceError
from a2a_gcs.workspaces.ignore import CREDENTIALS, patterns
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.pack import Changed
from a2a_gcs.workspaces.removal import empty
from a2a_gcs.workspaces.saving import Packed, pack
from a2a_gcs.workspaces.unpack import Unpacked, unpack

CONTENT_TYPE = "application/gzip"
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot that is durable.

    Attributes:
        pin: The archive by the bytes that were written.
        entries: Files, directories and links in it.
        size: Bytes of the archive.
        notes: What was left out or changed on the way, for people; at most about a hundred lines.
    """

    pin: Pin
    entries: int
    size: int
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Restored:
    """A directory that holds a snapshot.

    Attributes:
        entries: Files, directories and links made.
        size: Bytes of the archive.
    """

    entries: int
    size: int


class Snapshots:
    """Whole archives: every save uploads everything, every restore downloads everything.

    Safe to use from many coroutines of one event loop; each call has a thread of its own
    and holds a few MiB, whatever the size of the workspace.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        ignore: Sequence[str] = CREDENTIALS,
        pause: float = 1.0,
    ) -> None:
        """Prepares; nothing is read yet.

        Args:
            store: Where archives live. Streams are retried here, as nobody below can.
            limits: Of a workspace, in both directions.
            ignore: Patterns in the syntax of .gitignore that never enter a snapshot; a
                workspace adds its own in `.a2aignore`.
            pause: Seconds before the first retry; each further one waits twice as long.

        Raises:
            ConfigError: A pattern is none.
        """
        self._store = store
        self._limits = limits
        self._ignore = patterns(ignore)
        self._pause = pause

    async def save(self, directory: Path, key: str, *, replaces: int) -> Saved:
        """Writes `directory` to `key` if that is at generation `replaces` (0: there is none).

        Equal trees give equal bytes. The archive becomes visible as a whole or not at all,
        also when this is cancelled, which ends the reading of files before it returns.
        Repeated by itself when files change underneath, when the store is throttled or
        unavailable, and to find out whether a lost answer was a success.

        Raises:
            Conflict: Somebody else wrote `key`; the object there was not touched.
            SnapshotUnstable: A file kept changing.
            WorkspaceTooLarge: A limit was passed.
            WorkspaceError: A file cannot be read, or the directory is gone.
            StoreError: The store failed, in every try. If `ambiguous`, the archive may have been written.
        """
        upload = _Upload(self._store, key, IfVersion(replaces) if replaces else IF_ABSENT)
        for attempt in range(_TRIES):
            last = attempt == _TRIES - 1
            try:
                return await upload.run(partial(pack, directory, self._limits, self._ignore))
            except Changed as change:
                if last:
                    raise SnapshotUnstable(change.path, change.reason) from change
            except (Throttled, Unavailable):
                if last:
                    raise
            await asyncio.sleep(self._pause * 2**attempt)
        raise AssertionError

    async def restore(self, key: str, pin: Pin, directory: Path) -> Restored:
        """Unpacks the pinned archive into `directory`, which must exist and be empty.

        All or nothing: on any error, and on cancellation, the directory is empty again.

        Raises:
            SnapshotMissing: There is no object of this generation and crc32c at `key`.
            SnapshotCorrupt: Its bytes are not those that were written, or are no archive.
            UnsafeArchive: A member was refused.
            WorkspaceTooLarge: A limit was passed.
            WorkspaceError: `directory` is not there or not empty, or a file cannot be written.
            StoreError: The store failed; a new try may succeed.
        """
        root = open_root(directory)
        try:
            if names_of(root):
                raise WorkspaceError(f"the workspace directory {directory.name!r} is not empty")
            download = _Download(self._store, key, pin, self._limits)
            try:
                unpacked = await download.run(root)
            except BaseException:
                emptied = in_thread(partial(empty, root))
                await outlast(emptied)
                emptied.result()
                raise
        finally:
            os.close(root)
        return Restored(unpacked.entries, unpacked.packed)


class _Upload:
    """The tries of one save; all carry one write id, so that each can recognise what an earlier one did."""

    def __init__(self, store: ObjectStore, key: str, mode: Mode) -> None:
        self._store = store
        self._key = key
        self._mode = mode
        self._write_id = uuid.uuid4().hex
        self._ambiguous = False

    async def run(self, work: Callable[[Outflow], Packed]) -> Saved:
        outflow = Outflow()
        worker = in_thread(partial(work, outflow))
        try:
            async with contextlib.aclosing(outflow.chunks(worker)) as chunks:
                info = await self._put(chunks)
            packed = worker.result()
        finally:
            outflow.stop()
            await outlast(worker)
        return Saved(Pin(info.version, info.crc32c), packed.entries, info.size, packed.notes)

    async def _put(self, chunks: AsyncIterator[bytes]) -> ObjectInfo:
        metadata = {WRITE_ID: self._write_id}
        try:
            return await self._store.put_stream(
                self._key, chunks, self._mode, metadata=metadata, content_type=CONTENT_TYPE
            )
        except (Conflict, Unavailable) as error:
            self._ambiguous |= error.ambiguous
            if self._ambiguous and (info := await self._written()) is not None:
                return info
            raise

    async def _written(self) -> ObjectInfo | None:
        """The object, if it is one of ours after all (DESIGN 3, ambiguous writes)."""
        try:
            info = await self._store.head(self._key)
        except NotFound:
            return None
        return info if info.metadata.get(WRITE_ID) == self._write_id else None


class _Download:
    """One restore: the object's bytes through a thread into an open directory."""

    def __init__(self, store: ObjectStore, key: str, pin: Pin, limits: Limits) -> None:
        self._store = store
        self._key = key
        self._pin = pin
        self._limits = limits
        self._inflow = Inflow()

    async def run(self, root: int) -> Unpacked:
        worker = in_thread(partial(unpack, root, self._inflow, self._limits))
        try:
            await self._feed(worker)
            await asyncio.wait([worker])
            unpacked = worker.result()
        except NotFound as error:
            raise SnapshotMissing(self._key, f"there is no generation {self._pin.generation}") from error
        except (WorkspaceError, Unavailable) as error:
            diagnosis = await self._diagnosis(error)
            if diagnosis is error:
                raise
            raise diagnosis from error
        finally:
            self._inflow.stop()
            await outlast(worker)
        if self._inflow.crc32c != self._pin.crc32c:
            raise await self._diagnosis(self._mismatch())
        return unpacked

    async def _feed(self, worker: asyncio.Future[Unpacked]) -> None:
        chunks = self._store.stream(self._key, version=self._pin.generation)
        try:
            await self._inflow.feed(chunks, worker)
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _diagnosis(self, error: WorkspaceError | Unavailable) -> Exception:
        """Tells an archive that is another one from one that is damaged, at the price of a HEAD."""
        try:
            info = await self._store.head(self._key)
        except NotFound:
            return SnapshotMissing(self._key, "it was deleted meanwhile")
        except StoreError:
            return error
        if info.version != self._pin.generation:
            return SnapshotMissing(self._key, f"its generation is {info.version}, not {self._pin.generation}")
        if info.crc32c != self._pin.crc32c:
            return SnapshotMissing(self._key, f"its crc32c is {info.crc32c}, not {self._pin.crc32c}")
        if isinstance(error, Unavailable) and self._inflow.fed == info.size:
            return self._mismatch() if self._inflow.crc32c != self._pin.crc32c else error
        return error

    def _mismatch(self) -> SnapshotCorrupt:
        mine = self._inflow.crc32c
        return SnapshotCorrupt(f"the bytes of {self._key!r} have the crc32c {mine}, not {self._pin.crc32c}")
