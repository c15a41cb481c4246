"""Addresses of the console, and how what goes wrong looks in a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
from a2a.utils.errors import A2AError, InvalidParamsError, TaskNotFoundError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from a2a_gcs.console import host_page, live, pages, workspace_pages, writing
from a2a_gcs.console.rendering import page
from a2a_gcs.console.security import SecureHeaders, WriteRefused
from a2a_gcs.console.site import PATH, Missing, Site, Visit, base_of
from a2a_gcs.errors import A2AGcsError, InvalidId, NotFound, StoreError
from a2a_gcs.workspaces.errors import NoWorkspace

log = structlog.get_logger(__name__)

View = Callable[[Visit], Awaitable[Response]]

STATIC = Path(__file__).parent / "static"

READ: tuple[tuple[str, View], ...] = (
    ("/contexts/{context}", pages.context),
    ("/host", host_page.host),
    ("/tasks/{task}", pages.task),
    ("/tasks/{task}/task.json", pages.raw_task),
    ("/tasks/{task}/parts/{where}", pages.part),
    ("/tasks/{task}/parts/files/{name}", pages.beside),
    ("/tasks/{task}/events", live.events),
    ("/tasks/{task}/files", workspace_pages.tree),
    ("/tasks/{task}/file", workspace_pages.file),
    ("/tasks/{task}/raw", workspace_pages.raw_file),
    ("/tasks/{task}/workspace.tar.gz", workspace_pages.archive),
    ("/tasks/{task}/changes", workspace_pages.changes),
)
WRITE: tuple[tuple[str, View], ...] = (
    ("/send", writing.send),
    ("/tasks/{task}/cancel", writing.cancel),
)


def console(site: Site) -> Starlette:
    """The console as an application that answers for `site.PATH` and all below it."""
    routes: list[BaseRoute] = [Mount(f"{PATH}/static", StaticFiles(directory=STATIC))]
    for scope in ("", "/agents/{agent}", "/tenants/{tenant}", "/agents/{agent}/tenants/{tenant}"):
        prefix = PATH + scope
        routes += [Route(path, _endpoint(site, pages.contexts), methods=["GET"]) for path in (prefix, f"{prefix}/")]
        routes += [Route(prefix + path, _endpoint(site, view), methods=["GET"]) for path, view in READ]
        routes += [Route(prefix + path, _endpoint(site, view), methods=["POST"]) for path, view in WRITE]
    app = Starlette(routes=routes, middleware=[Middleware(SecureHeaders, hosts=site.hosts)])
    app.router.redirect_slashes = False  # it would name the scheme that this host speaks, not that of a proxy in front
    return app


def _endpoint(site: Site, view: View) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            visit = Visit.of(site, request)
        except Missing:
            return RedirectResponse(base_of(site.agents[0].name, ""))
        try:
            return await view(visit)
        except (A2AGcsError, A2AError) as e:
            status, text = _told(site, e)
            return page(visit, "error.html", status=status, text=text)

    return endpoint


def _told(site: Site, error: Exception) -> tuple[int, str]:
    """Status and text for an error; what another owner has is as absent as what nobody has."""
    match error:
        case Missing() | NoWorkspace():
            return 404, str(error)
        case NotFound() | InvalidId():
            return 404, "there is no such thing here"
        case WriteRefused():
            return 403, str(error)
        case StoreError():
            log.error("console.failed", error=str(error))
    known = site.translated(error) if isinstance(error, A2AGcsError) else error
    if isinstance(known, TaskNotFoundError | InvalidParamsError):
        return 404, "there is no such task"
    return 503 if isinstance(error, StoreError) else 409, getattr(known, "message", str(known))
