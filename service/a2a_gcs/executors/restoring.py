"""What a turn finds in its directory, and what is said if that is not what it should be."""

from __future__ import annotations

from typing import Literal

import structlog

from a2a_gcs.claims import Claim
from a2a_gcs.errors import StoreError
from a2a_gcs.executors.turn_queue import TurnQueue
from a2a_gcs.layout import TaskRef
from a2a_gcs.workspaces.errors import SnapshotCorrupt, SnapshotMissing, UnsafeArchive, WorkspaceError
from a2a_gcs.workspaces.workspaces import Workspace

log = structlog.get_logger(__name__)

OnLost = Literal["fail", "previous"]
_LOST = (SnapshotMissing, SnapshotCorrupt, UnsafeArchive)


async def restore(claim: Claim, work: Workspace, queue: TurnQueue, on_lost: OnLost) -> None:
    """Fills the directory with what the claim starts from; never with nothing in its place.

    With `previous`, where that archive is gone or damaged, with the newest one of the context's
    completed tasks that verifies, and says so in the task.

    Raises:
        WorkspaceError, StoreError: There is nothing to start from; the directory is empty.
    """
    if claim.base is None or claim.base_ref is None:
        return
    try:
        await work.restore(claim.base_ref, claim.base)
    except _LOST as lost:
        log.error("workspace.lost", task_id=claim.ref.task_id, error=str(lost))  # noqa: TRY400
        if on_lost == "fail":
            raise
        wanted = claim.base_ref.task_id
        found = await _previous(claim, work)
        if found is None:
            raise
        await queue.announce(
            f"The workspace of task {wanted} could not be restored: {lost}. "
            f"This task goes on from the workspace of task {found.task_id}, the last one that could be."
        )


async def _previous(claim: Claim, work: Workspace) -> TaskRef | None:
    for ref, pin in await work.earlier():
        if (ref, pin) == (claim.base_ref, claim.base):
            continue
        try:
            await work.restore(ref, pin)
        except (WorkspaceError, StoreError) as e:
            log.warning("workspace.lost_too", task_id=ref.task_id, error=str(e))
        else:
            claim.base_ref, claim.base = ref, pin
            return ref
    return None
