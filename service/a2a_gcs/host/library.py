"""a2a-gcs in somebody else's server: everything below the bindings, without settings from the environment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.errors import InternalError
from google.protobuf.message import Message as Proto
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.agent_card import declare_capabilities
from a2a_gcs.host.checked import CheckedHandler
from a2a_gcs.host.file_links import FileLinks
from a2a_gcs.host.files import file_routes
from a2a_gcs.host.services import Services, checked
from a2a_gcs.host.settings import Settings
from a2a_gcs.host.stack import HostedAgent
from a2a_gcs.objectstore import ObjectStore, open_store

OPTIONS = frozenset(
    {"work_dir", "answers", "resume_from", "lease_seconds", "on_shutdown", "store_budget_seconds", "max_parts"}
    | {"max_run_seconds", "max_wait_seconds", "max_running_tasks", "max_running_tasks_per_owner"}
    | {"max_workspace_bytes", "max_workspace_files", "workspace_ignore", "max_snapshot_seconds"}
    | {"checkpoint_minutes", "on_lost_workspace", "warm_workspace_bytes", "inline_part_bytes", "max_task_bytes"}
    | {"push_notifications", "push_allowed_hosts", "push_retry_seconds", "push_timeout_seconds"}
)
"""The settings that are not about serving; the server around a `Host` has its own."""


class Host:
    """One agent over one store, for a server that has its own routes.

        host = a2a_gcs.Host(MyAgent(), card=card, store="gs://bucket/prefix")
        app = FastAPI(lifespan=host.lifespan)
        ... create_jsonrpc_routes(host.request_handler, "/")

    It has to be entered, by `lifespan` or `async with`, before the first request; until then requests are refused.
    Leaving it ends what runs, as SIGTERM does with `a2a-gcs serve`, and closes all that it opened. May be entered once.

    Args:
        agent: The executor. `a2a_gcs.workspace(context)` is its directory.
        card: What the server says of the agent; it is not changed, `Host.card` is to be served.
        store: "memory"; "file:<dir>"; "gs://bucket[/prefix]"; or an ObjectStore, which is shared and stays open.
        files_url: Where the server has mounted `file_routes`, as clients see it; without it nothing is kept beside
            tasks, however large.
        owners: Callers are authenticated by the server (`ServerCallContext.user`), and each has a root of its own.
        options: Any of `OPTIONS`, as in the README's table of settings, in lower case and without the prefix.

    Attributes:
        card: The card, with the capabilities that hosting adds and the extension that declares the linear rule.
        request_handler: For the SDK's routes and gRPC servicers.
        file_routes: Serve what is beside tasks, to the callers that the server's middleware names in `scope["user"]`.

    Raises:
        ConfigError: Store or an option cannot be used; the message names the accepted ones.
    """

    def __init__(
        self,
        agent: AgentExecutor,
        *,
        card: AgentCard,
        store: str | ObjectStore | None = "memory",
        files_url: str | None = None,
        owners: bool = False,
        **options: Any,
    ) -> None:
        named = "memory" if store is None else store if isinstance(store, str) else None
        given = None if named is not None else open_store(store)
        settings = _settings(options if named is None else {**options, "store": named})
        self.card = AgentCard()
        self.card.CopyFrom(card)
        declare_capabilities(self.card, push=settings.push_notifications)
        links = FileLinks(files_url) if files_url else None
        hosted = HostedAgent("", "", agent, settings.hosted()[0], self.card, links)
        self._services = Services(settings, given, agents=[hosted], authenticated=owners)
        self.file_routes = file_routes(self._services.roots, hosted)
        self._entered = self._serving = False
        inner = checked(self._services.handlers[hosted.name], hosted, settings)
        self.request_handler: RequestHandler = CheckedHandler(inner, [self._expect_serving])

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a Host is entered once; make another one")
        self._entered = True
        try:
            await self._services.start()
        except BaseException:
            await self._services.close()
            raise
        self._serving = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._services.close()
        self._serving = False

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """For `FastAPI(lifespan=...)`; a server with a lifespan of its own enters the host there."""
        del app
        async with self:
            yield

    async def drain(self) -> None:
        """Refuses new work and ends what runs: tasks are parked with their files. For a signal handler of the server's.

        Leaving the host does the same, but only once a server has waited for its open streams.
        """
        if not self._services.drain.begun:
            await self._services.drain.run()

    def _expect_serving(self, params: Proto, context: ServerCallContext) -> None:
        del params, context
        if not self._serving:
            raise InternalError("the a2a_gcs.Host is not running: the server has to enter it, as with its lifespan")


class _Given(Settings):
    """Settings from the caller alone."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def _settings(options: dict[str, Any]) -> Settings:
    if unknown := sorted(set(options) - OPTIONS - {"store"}):
        raise ConfigError(f"a Host has no option {unknown[0]!r}; there are {', '.join(sorted(OPTIONS))}")
    try:
        return _Given(**options)
    except ValidationError as e:
        refused = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in e.errors(include_url=False))
        raise ConfigError(f"an option of the Host cannot be used: {refused}") from e
