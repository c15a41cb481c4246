"""The pages that are read: contexts, one context, one task, and what a task holds as it is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from a2a.types.a2a_pb2 import GetTaskRequest, Task
from starlette.responses import Response

from a2a_gcs.clock import unix_millis
from a2a_gcs.console import history as histories
from a2a_gcs.console import overview as overviews
from a2a_gcs.console.downloads import Streamed, again, as_it_is, shown_type
from a2a_gcs.console.parts import Allowance, artifacts, body_of, conversation, part_at
from a2a_gcs.console.rendering import page
from a2a_gcs.console.site import Missing, Visit
from a2a_gcs.console.timeline import bars
from a2a_gcs.console.writing import Draft
from a2a_gcs.errors import NotFound
from a2a_gcs.layout import TaskRef, file_key, file_reference, parse_file_reference, task_key, workspace_key
from a2a_gcs.objectstore.closing import closing
from a2a_gcs.records import TaskMeta
from a2a_gcs.task_json import INTERRUPTED, TERMINAL, state_name
from a2a_gcs.task_records import TaskRecords


async def contexts(visit: Visit) -> Response:
    """Every context of the root, newest first."""
    search = visit.query.get("q", "")[:200]
    found = await overviews.overview(visit.store, search=search, page=visit.number("page"))
    return page(visit, "contexts.html", found=found, search=search, draft=Draft.fresh())


async def context(visit: Visit) -> Response:
    """One context: who blocks it, what the next task starts from, and its history."""
    context_id = visit.id_in_path("context")
    found = await histories.history(visit.store, context_id, page=visit.number("page"))
    if found is not None and found.active is not None and found.active.open:
        await _settled(visit, found.active.id)
        found = await histories.history(visit.store, context_id, page=visit.number("page"))
    if found is None:
        raise Missing("there is no such context")
    drawn = bars(found.tasks, unix_millis())
    return page(visit, "context.html", found=found, bars=drawn, draft=Draft.fresh(context_id=context_id))


async def _settled(visit: Visit, task_id: str) -> None:
    """Whoever looks at a running task ends it if its host is dead, as the API does."""
    params = GetTaskRequest(id=task_id, history_length=0)
    await visit.agent.handler.on_get_task(params, visit.context)


async def task(visit: Visit, *, status: int = 200, draft: Draft | None = None) -> Response:
    """One task: its state, what was said, what it made."""
    found = await task_of(visit)
    ref = TaskRef(found.context_id, found.id)
    info = await visit.store.head(task_key(ref))
    allowance = Allowance()
    made, more_artifacts = artifacts(found, allowance)
    said, earlier = conversation(found, allowance)
    meta = TaskMeta.from_metadata(info.key, info.metadata)
    return page(
        visit,
        "task.html",
        status=status,
        task=found,
        state=state_name(found),
        terminal=found.status.state in TERMINAL,
        waits=found.status.state in INTERRUPTED and not meta.open,
        changed=found.status.timestamp.seconds or info.updated,
        began=meta.turns[0].since / 1000 if meta.turns else 0,
        turn=meta.turn,
        size=info.size,
        has_workspace=await _has_workspace(visit, ref),
        said=said,
        earlier=earlier,
        made=made,
        more_artifacts=more_artifacts,
        draft=draft or Draft.fresh(context_id=ref.context_id, task_id=ref.task_id),
    )


async def task_of(visit: Visit) -> Task:
    """The task that the address names, as the API answers it. Raises Missing, and what the handler raises."""
    found = await visit.agent.handler.on_get_task(GetTaskRequest(id=visit.id_in_path("task")), visit.context)
    if found is None:
        raise Missing("there is no such task")
    return found


async def _has_workspace(visit: Visit, ref: TaskRef) -> bool:
    try:
        await visit.store.head(workspace_key(ref))
    except NotFound:
        return False
    return True


async def raw_task(visit: Visit) -> Response:
    """task.json as it is stored."""
    found = await visit.agent.handler.on_get_task(
        GetTaskRequest(id=visit.id_in_path("task"), history_length=0), visit.context
    )
    if found is None:
        raise Missing("there is no such task")
    store, key = visit.store, task_key(TaskRef(found.context_id, found.id))
    await store.head(key)

    async def chunks() -> AsyncIterator[bytes]:
        async with closing(store.stream(key)) as body:
            async for chunk in body:
                yield chunk

    return Streamed(chunks(), media_type="application/json")


async def beside(visit: Visit) -> Response:
    """A content that is kept beside the task (decision 0006), in flat memory."""
    task_id, name = visit.id_in_path("task"), visit.request.path_params["name"]
    context_id = await TaskRecords(visit.store).context_of(task_id)
    if context_id is None or parse_file_reference(file_reference(name)) is None:
        raise Missing("the task has no such file")
    key = file_key(TaskRef(context_id, task_id), name)
    info = await visit.store.head(key)
    async with contextlib.AsyncExitStack() as stack:
        chunks = await stack.enter_async_context(closing(visit.store.stream(key, version=info.version)))
        first = await anext(chunks, b"")
        shown = shown_type(first)
        return Streamed(
            again(first, chunks),
            media_type=shown or "application/octet-stream",
            name="" if shown else name,
            size=info.size,
            stack=stack.pop_all(),
        )


async def part(visit: Visit) -> Response:
    """One part of a message or artifact, as it is: an image, or a download."""
    found = part_at(await task_of(visit), visit.request.path_params["where"])
    if found is None:
        raise Missing("the task has no such part")
    body, media_type = body_of(found)
    return as_it_is(body, name=found.filename or f"{visit.request.path_params['where']}", media_type=media_type)
