"""Saves working directories as archives in the store, and restores them."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from a2a_gcs.errors import Conflict, NotFound, Throttled, Unavailable
from a2a_gcs.layout import TaskRef
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.beneath import names_of, open_root
from a2a_gcs.workspaces.bridge import in_thread, outlast
from a2a_gcs.workspaces.cutting import MIN_PART
from a2a_gcs.workspaces.download import Download, PartsUnusable
from a2a_gcs.workspaces.earlier import completed
from a2a_gcs.workspaces.errors import SnapshotUnstable, WorkspaceError
from a2a_gcs.workspaces.ignore import CREDENTIALS, patterns
from a2a_gcs.workspaces.joining import Joiner
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.manifest import Baseline
from a2a_gcs.workspaces.pack import Changed
from a2a_gcs.workspaces.removal import empty
from a2a_gcs.workspaces.saving import Reading
from a2a_gcs.workspaces.upload import OWNER, Again, Stored, Upload

WHOLE = 8 << 20
"""Bytes of content up to which a snapshot is one upload; larger ones are joined from parts (decision 0004)."""
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot that is durable.

    Attributes:
        pin: The archive by the bytes that were written.
        entries: Files, directories and links in it.
        size: Bytes of the archive.
        sent: Bytes that were uploaded for it, in all tries.
        notes: What was left out or changed on the way, for people; at most about a hundred lines.
        baseline: What the next save of the directory can build on.
    """

    pin: Pin
    entries: int
    size: int
    sent: int
    notes: Sequence[str]
    baseline: Baseline = field(repr=False)


@dataclass(frozen=True, slots=True)
class Restored:
    """A directory that holds a snapshot.

    Attributes:
        entries: Files, directories and links made.
        size: Bytes of the archive.
        baseline: What the next save of the directory can build on.
    """

    entries: int
    size: int
    baseline: Baseline = field(repr=False)


class Snapshots:
    """Archives of directories, one object each.

    Small ones are one upload. Larger ones are joined by the store from parts that hold a run of entries
    each, and of these only what is new is uploaded; an unchanged directory is a copy on the store's side.

    Safe to use from many coroutines of one event loop; each call has a thread of its own
    and holds some tens of MiB at most, whatever the size of the workspace.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        ignore: Sequence[str] = CREDENTIALS,
        whole: int = WHOLE,
        smallest_part: int = MIN_PART,
        pause: float = 1.0,
    ) -> None:
        """Prepares; nothing is read yet.

        Args:
            store: Where archives live. Streams are retried here, as nobody below can.
            limits: Of a workspace, in both directions.
            ignore: Patterns in the syntax of .gitignore that never enter a snapshot; a
                workspace adds its own in `.a2aignore`.
            whole: Bytes of content up to which a snapshot is one upload.
            smallest_part: Bytes of content that parts are cut for at least.
            pause: Seconds before the first retry; each further one waits twice as long.

        Raises:
            ConfigError: A pattern is none.
        """
        self._store = store
        self.limits = limits
        self._ignore = patterns(ignore)
        self._whole = whole
        self._smallest_part = smallest_part
        self._pause = pause
        self._joiner = Joiner(store)

    async def save(
        self, directory: Path, key: str, *, replaces: int, base: Baseline | None = None, owner: str = ""
    ) -> Saved:
        """Writes `directory` to `key` if that is at generation `replaces` (0: there is none).

        Equal trees give equal bytes, whatever `base` is. The archive becomes visible as a whole or not at all,
        also when this is cancelled, which ends the reading of files before it returns.
        Repeated by itself when files change underneath, when the store is throttled or
        unavailable, and to find out whether a lost answer was a success.

        Args:
            directory: What to save.
            key: Key of a workspace.tar.gz.
            replaces: The generation known at the claim (rule *wscas*).
            base: What an earlier save or restore of this very directory told: only what has changed since is uploaded.
            owner: The claim that saves. A later generation that the same claim wrote may be replaced too: a save of
                it whose answer was lost, or that was cancelled, is no other writer.

        Raises:
            Conflict: Somebody else wrote `key`; the object there was not touched.
            SnapshotUnstable: A file kept changing.
            WorkspaceTooLarge: A limit was passed.
            WorkspaceError: A file cannot be read, or the directory is gone.
            StoreError: The store failed, in every try. If `ambiguous`, the archive may have been written.
        """
        upload = Upload(
            self._store,
            key,
            self._joiner,
            replaces=replaces,
            base=base,
            owner=owner or uuid.uuid4().hex,
            whole=self._whole,
            smallest=self._smallest_part,
        )
        for attempt in range(_TRIES):
            last = attempt == _TRIES - 1
            try:
                stored = await self._try(upload, directory)
            except Changed as change:
                if last:
                    raise SnapshotUnstable(change.path, change.reason) from change
            except Again as again:
                if last:
                    raise again.__cause__ or Conflict(key) from again
                continue
            except (Throttled, Unavailable):
                if last:
                    raise
            else:
                known = stored.baseline
                return Saved(known.pin, len(known.stamps), known.size, upload.sent, stored.notes, known)
            await asyncio.sleep(self._pause * 2**attempt)
        raise AssertionError

    async def _try(self, upload: Upload, directory: Path) -> Stored:
        reading = Reading(directory, self.limits, self._ignore)
        try:
            return await upload.run(reading)
        finally:
            await _closed(reading)

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
            try:
                known = await self._fetch(key, pin, root)
            except BaseException:
                await _emptied(root)
                raise
        finally:
            os.close(root)
        return Restored(len(known.stamps), known.size, known)

    async def stored(self, key: str, owner: str) -> Pin | None:
        """The archive as a claim has left it, whatever it was told of its saves; None if it wrote none.

        Raises:
            StoreError: The store failed.
        """
        try:
            info = await self._store.head(key)
        except NotFound:
            return None
        return Pin(info.version, info.crc32c) if info.metadata.get(OWNER) == owner else None

    async def completed(self, context_id: str) -> list[tuple[TaskRef, Pin]]:
        """The snapshots of a context's completed tasks, the newest first. Raises StoreError."""
        return await completed(self._store, context_id)

    async def check(self, key: str, pin: Pin) -> None:
        """Makes sure that the pinned archive is there. Raises SnapshotMissing, StoreError."""
        await Download(self._store, key, pin, self.limits).find()

    async def _fetch(self, key: str, pin: Pin, root: int) -> Baseline:
        info = await Download(self._store, key, pin, self.limits).find()
        try:
            return await Download(self._store, key, pin, self.limits).parts(root, info)
        except PartsUnusable:
            await _emptied(root)
        return await Download(self._store, key, pin, self.limits).whole(root, info)

    async def close(self) -> None:
        """Waits for what goes on behind the answers."""
        await self._joiner.close()


async def _closed(reading: Reading) -> None:
    if not reading.changed_modes:
        reading.close()
        return
    closed = in_thread(reading.close)
    await outlast(closed)
    closed.result()


async def _emptied(root: int) -> None:
    emptied = in_thread(partial(empty, root))
    await outlast(emptied)
    emptied.result()
