"""A turn's directory from its beginning to its end."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import structlog

from a2a_gcs import telemetry
from a2a_gcs.layout import TaskRef, workspace_key
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.bridge import in_thread
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.manifest import Baseline
from a2a_gcs.workspaces.places import Place
from a2a_gcs.workspaces.snapshots import Saved, Snapshots
from a2a_gcs.workspaces.warm import Warm, WarmDirs, verified
from a2a_gcs.workspaces.workdir import Occupied, WorkDirs

log = structlog.get_logger(__name__)


class Workspaces:
    """Makes the directories of turns over one root of one store.

    Args:
        snapshots: Of that root.
        workdirs: Where directories are made; may be shared with other roots.
        warm: Keeps directories for the next turn; shared with the other roots of the same workdirs.
        root: Tells this root's archives from those of other roots.
    """

    def __init__(
        self, snapshots: Snapshots, workdirs: WorkDirs, warm: WarmDirs | None = None, *, root: str = ""
    ) -> None:
        self.snapshots = snapshots
        self._workdirs = workdirs
        self._warm = warm or WarmDirs(0)
        self._root = root

    def create(self, ref: TaskRef) -> Workspace:
        """A new, empty directory: the context's own, unless another turn is there. Raises WorkspaceError."""
        return Workspace(self, ref, self._workdirs.occupy(self._root, ref.context_id, ref.task_id))

    def vacate(self, place: Place, *, free: bool) -> Path:
        """Moves a directory away from the path of its context; see WorkDirs."""
        return self._workdirs.vacate(place, free=free)

    async def take(self, key: str, pin: Pin, path: Path) -> Baseline | None:
        """Moves a directory that still holds the pinned tree to `path`, which must be empty.

        The archive is looked for all the same: one that is gone is told, on every host alike.

        Raises:
            SnapshotMissing: It is gone, or is another one.
            StoreError: The store failed.
        """
        warm = self._warm.take(self._root, key, pin)
        if warm is None:
            return None
        checking = in_thread(partial(verified, warm, self.snapshots.limits))
        try:
            await self.snapshots.check(key, pin)
            await asyncio.wait([checking])
            known = checking.result()
            if known is not None:
                warm.path.rename(path)
                return known
        except BaseException:
            await asyncio.wait([checking])
            await self.discard(warm.path)
            raise
        log.info("workspace.touched_meanwhile", key=key)
        await self.discard(warm.path)
        return None

    def keep(self, path: Path, known: Baseline) -> list[Path]:
        """Keeps a directory for the next turn; returns those that are to be discarded for it, or instead of it."""
        return self._warm.keep(self._root, Warm(path, known))

    async def discard(self, path: Path) -> None:
        """Removes a directory; one that cannot be removed now goes when this process does."""
        try:
            await asyncio.shield(self._workdirs.discard(path))
        except WorkspaceError as e:
            log.error("workspace.not_discarded", error=str(e))  # noqa: TRY400


class Workspace:
    """One turn's directory.

    Attributes:
        path: Where it is.
        known: What an archive has of it; None until one was restored or saved.
    """

    def __init__(self, workspaces: Workspaces, ref: TaskRef, occupied: Occupied) -> None:
        self._workspaces = workspaces
        self._ref = ref
        self._key = workspace_key(ref)
        self._last: Pin | None = None
        self._place = occupied.place
        self._abandoned = False
        self.path = occupied.path
        self.known: Baseline | None = None
        self._dropped = [occupied.path, *occupied.left]

    async def earlier(self) -> list[tuple[TaskRef, Pin]]:
        """The snapshots of the context's completed tasks, the newest first. Raises StoreError."""
        return await self._workspaces.snapshots.completed(self._ref.context_id)

    async def stored(self, owner: str) -> Pin | None:
        """The task's archive as this claim has left it, whatever became of its saves; None if it wrote none.

        Raises:
            StoreError: The store failed.
        """
        return await self._workspaces.snapshots.stored(self._key, owner)

    async def restore(self, source: TaskRef, pin: Pin) -> None:
        """Fills the empty directory with what another task left, or this one did. Raises as Snapshots.restore."""
        key = workspace_key(source)
        with telemetry.measured("workspace.restore", telemetry.restore_seconds):
            self.known = await self._workspaces.take(key, pin, self.path)
            if self.known is None:
                restored = await self._workspaces.snapshots.restore(key, pin, self.path)
                self.known = restored.baseline

    async def save(self, *, replaces: int, owner: str) -> Saved:
        """Stores the directory as the task's own archive. Raises as Snapshots.save."""
        with telemetry.measured("workspace.snapshot", telemetry.snapshot_seconds):
            saved = await self._workspaces.snapshots.save(
                self.path, self._key, replaces=replaces, base=self.known, owner=owner
            )
        self.known, self._last = saved.baseline, saved.pin
        return saved

    def leave(self) -> None:
        """Gives the context's path up to the next turn, and moves the directory: nobody works in it any more.

        To be called before anybody is told of the turn's end, as the next turn may follow at once.
        """
        if self._place is not None:
            path, self.path = self.path, self._workspaces.vacate(self._place, free=not self._abandoned)
            self._place = None
            self._dropped = [self.path if one == path else one for one in self._dropped]

    def abandon(self) -> None:
        """An agent works on that cannot be stopped: no other turn may have its path, or its directory."""
        self._abandoned = True

    def offer(self, pin: Pin) -> None:
        """Lets the directory serve a turn that starts from this pin, from now on: nobody works in it any more.

        To be called before anybody is told of the pin, as `leave`, which it implies.
        """
        self.leave()
        if self.known is not None and pin == self._last and not self._abandoned:
            self._dropped.remove(self.path)
            self._dropped += self._workspaces.keep(self.path, self.known)

    async def close(self) -> None:
        """Gives the directory up, unless it was offered; and what had to go for it."""
        self.leave()
        for path in self._dropped:
            await self._workspaces.discard(path)
