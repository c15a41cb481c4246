"""Runs the host in this process: binds, starts, says that it listens, and stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import structlog
import typer
import uvicorn

from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.cli.listening import listen
from a2a_gcs.clock import boottime
from a2a_gcs.errors import A2AGcsError
from a2a_gcs.host.logging import cloud_project, configure_logging
from a2a_gcs.host.telemetry import configure_telemetry, flush_telemetry, import_sdk

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from a2a_gcs.host.settings import Settings

GRACE_SECONDS = 1
"""How long connections may go on after the drain, which has ended their work; on Cloud Run SIGKILL comes after 10 s."""

_THREADS = "host-thread"
_LOOK_SECONDS = 0.05

log = structlog.stdlib.get_logger(__name__)


class Host(uvicorn.Server):
    """Uvicorn, with a line on stdout when ready, a drain at the first signal, and no death by that signal.

    Args:
        app: The application.
        url: Where it listens.
        drain: Runs before uvicorn's own shutdown, which cuts streams; a second signal does not wait for it.
    """

    def __init__(self, app: ASGIApp, url: str, drain: Callable[[], Awaitable[None]] | None = None) -> None:
        self.url = url
        self._drain = drain
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Future[None] | None = None
        self.lifespan_error: Exception | None = None
        config = uvicorn.Config(
            self._watched(app),
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        super().__init__(config)

    def stop(self) -> None:
        """What a signal does; may be called from another thread."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drain is None or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._loop.call_soon_threadsafe(self._drain_and_exit)

    def _drain_and_exit(self) -> None:
        if self._draining is not None:  # the second signal
            self.should_exit = True
            return
        assert self._drain is not None
        self._draining = asyncio.ensure_future(self._drain())
        self._draining.add_done_callback(self._drained)

    def _drained(self, task: asyncio.Future[None]) -> None:
        self.should_exit = True
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the drain failed", exc_info=error)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        threads = ThreadPoolExecutor(thread_name_prefix=_THREADS)
        asyncio.get_running_loop().set_default_executor(threads)
        await super().serve(sockets)
        threads.shutdown(wait=False, cancel_futures=True)
        await self._leave()

    async def _leave(self) -> None:
        """Ends the process where an agent would keep it: by refusing to be cancelled, or in a thread that goes on.

        All is stored and closed by then; what comes otherwise is SIGKILL.
        """
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        deadline = boottime() + GRACE_SECONDS
        while (busy := _busy(rest)) and boottime() < deadline:  # noqa: ASYNC110 - a look costs nothing
            await asyncio.sleep(_LOOK_SECONDS)
        if busy:
            log.error("host.left_behind", running=busy)
            logging.shutdown()
            os._exit(1 if self.lifespan_error else 0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            typer.echo(f"listening on {self.url}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Both signals end `serve` with status 0: uvicorn would raise them again once it has stopped."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _watched(self, app: ASGIApp) -> ASGIApp:
        """Keeps the error of a failed start or stop, which uvicorn would only print as a traceback."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "lifespan":
                await app(scope, receive, send)
                return
            try:
                await app(scope, receive, _without_traceback(send))
            except Exception as error:
                self.lifespan_error = error
                raise

        return watched


def _busy(tasks: set[asyncio.Task[Any]]) -> list[str]:
    """Names of what does not end: tasks, and threads that agents were given by `asyncio.to_thread`."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith(_THREADS)]
    return sorted([*(t.get_name() for t in tasks if not t.done()), *threads])


def host_until_stopped(
    settings: Settings, *, port_wait: float = 0, ready: Callable[[Host], None] = lambda _host: None
) -> None:
    """Serves until SIGTERM, SIGINT or `host.should_exit`.

    Args:
        settings: Port 0 is replaced by the port that was picked.
        port_wait: Seconds to wait for a port that is still in use.
        ready: Called with the server before it starts, from this thread.

    Raises:
        A2AGcsError: Starting failed; the message says why.
    """
    configure_logging(settings.log_level, project=cloud_project())
    configure_telemetry(settings)
    import_sdk()
    try:
        _host(settings, port_wait, ready)
    finally:
        flush_telemetry()


def _app(settings: Settings) -> FastAPI:
    from a2a_gcs.host.app import create_app  # noqa: PLC0415 - after `import_sdk`

    return create_app(settings)


def _host(settings: Settings, port_wait: float, ready: Callable[[Host], None]) -> None:
    if settings.grpc_only:
        asyncio.run(_grpc_until_stopped(settings))
        return
    with listen(settings.host, settings.port, wait=port_wait) as listener:
        port = listener.getsockname()[1]
        bound = settings.model_copy(update={"port": port})
        app = _app(bound)
        server = Host(app, f"http://{_address(bound.host, port)}", getattr(app.state, "drain", None))
        ready(server)
        gc.freeze()  # else each full collection looks through all that was imported: 0.1 s in which nothing is answered
        try:
            server.run(sockets=[listener])
        except SystemExit:  # uvicorn's word for a failed start, of which lifespan_error is the reason
            if server.lifespan_error is None:
                raise
    _raise_if_failed(server.lifespan_error)


async def _grpc_until_stopped(settings: Settings) -> None:
    """The application without its HTTP server: its lifespan serves gRPC on the port itself."""
    app = _app(settings)
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled.set)
    try:
        async with app.router.lifespan_context(app):
            typer.echo(f"listening on grpc://{_address(settings.host, app.state.grpc_port)}")
            await signalled.wait()
            await app.state.drain()
    except Exception as error:  # noqa: BLE001 - as uvicorn does with a lifespan
        _raise_if_failed(error)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _without_traceback(send: Send) -> Send:
    async def filtered(message: Message) -> None:
        if message["type"] in ("lifespan.startup.failed", "lifespan.shutdown.failed"):
            message = {**message, "message": ""}
        await send(message)

    return filtered


def _raise_if_failed(error: Exception | None) -> None:
    if error is None:
        return
    if isinstance(error, A2AGcsError):
        raise error
    log.error("the host failed", exc_info=error)
    raise CommandFailed(f"the host failed: {type(error).__name__}: {error}") from error
