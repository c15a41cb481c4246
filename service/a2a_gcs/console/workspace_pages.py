"""A task's workspace: its tree, its files, and what the task changed."""

from __future__ import annotations

import contextlib

from starlette.responses import Response

from a2a_gcs.console import files
from a2a_gcs.console.downloads import Streamed, again, shown_type
from a2a_gcs.console.rendering import page
from a2a_gcs.console.site import Missing, Visit
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.workspaces.errors import NoWorkspace
from a2a_gcs.workspaces.finding import Archive, find_archive, find_base


async def tree(visit: Visit) -> Response:
    """One directory."""
    archive = await _archive(visit)
    found = await files.directory(visit.store, archive, visit.query.get("path", "").strip("/"))
    if not found.found and found.path and not found.cut:
        raise Missing("there is no such directory in the workspace")
    return page(visit, "files.html", archive=archive, found=found, steps=_steps(found.path))


async def file(visit: Visit) -> Response:
    """The beginning of a file."""
    archive, path = await _archive(visit), visit.query.get("path", "")
    found = await files.preview(visit.store, archive, path)
    if found is None:
        raise Missing("there is no such file in the workspace")
    return page(visit, "file.html", archive=archive, found=found, path=path, steps=_steps(path))


async def raw_file(visit: Visit) -> Response:
    """A file as it is: an image, or a download."""
    archive, path = await _archive(visit), visit.query.get("path", "")
    async with contextlib.AsyncExitStack() as stack:
        found = await files.open_file(stack, visit.store, archive, path)
        if found is None or found[0].kind != "file":
            raise Missing("there is no such file in the workspace")
        entry, tar = found
        pieces = await stack.enter_async_context(contextlib.aclosing(tar.content()))
        first = await anext(pieces, b"")
        shown = shown_type(first)
        return Streamed(
            again(first, pieces),
            media_type=shown or "application/octet-stream",
            name="" if shown else path,
            size=entry.size,
            stack=stack.pop_all(),
        )


async def archive(visit: Visit) -> Response:
    """The whole archive, as it is stored."""
    found = await _archive(visit)
    stack = contextlib.AsyncExitStack()
    chunks = await stack.enter_async_context(closing(visit.store.stream(found.key, version=found.pin.generation)))
    name = f"{found.ref.task_id}.tar.gz"
    return Streamed(chunks, media_type="application/gzip", name=name, size=found.size, stack=stack)


async def changes(visit: Visit) -> Response:
    """What the task changed, against the workspace that it started from."""
    after = await _archive(visit)
    before = await find_base(visit.store, after)
    found = await files.changes(visit.store, before, after)
    return page(visit, "changes.html", archive=after, before=before, found=found, most=files.MAX_TEXTS)


async def _archive(visit: Visit) -> Archive:
    try:
        return await find_archive(visit.store, visit.id_in_path("task"))
    except NoWorkspace as e:
        raise Missing(str(e)) from e


def _steps(path: str) -> list[tuple[str, str]]:
    """The directories above a path and itself: name and path of each."""
    names = path.split("/") if path else []
    return [(name, "/".join(names[: n + 1])) for n, name in enumerate(names)]
