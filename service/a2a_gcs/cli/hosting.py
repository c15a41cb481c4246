"""Runs the host in this process: binds, starts, says that it listens, and stops in order."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import structlog
import typer
import uvicorn

from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.cli.listening import listen
from a2a_gcs.errors import A2AGcsError
from a2a_gcs.host.app import create_app
from a2a_gcs.host.logging import configure_logging

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from a2a_gcs.host.settings import Settings

GRACE_SECONDS = 5
"""How long requests may go on after a signal; SIGKILL follows after 10 s on Cloud Run (FACTS 2)."""

log = structlog.stdlib.get_logger(__name__)


class Host(uvicorn.Server):
    """Uvicorn, with a line on stdout when ready, and no death by the signal that stopped it."""

    def __init__(self, app: ASGIApp, url: str) -> None:
        self.url = url
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
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
    configure_logging(settings.log_level)
    with listen(settings.host, settings.port, wait=port_wait) as listener:
        port = listener.getsockname()[1]
        bound = settings.model_copy(update={"port": port})
        name = f"[{bound.host}]" if ":" in bound.host else bound.host
        server = Host(create_app(bound), f"http://{name}:{port}")
        ready(server)
        try:
            server.run(sockets=[listener])
        except SystemExit:  # uvicorn's word for a failed start, of which lifespan_error is the reason
            if server.lifespan_error is None:
                raise
    _raise_if_failed(server.lifespan_error)


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
