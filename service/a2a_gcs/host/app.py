"""The FastAPI application: A2A over JSON-RPC and REST, the agent card, and what probes ask. gRPC lives beside it."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.fastapi_routes import add_a2a_routes_to_fastapi
from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, Response
from starlette.routing import Route

from a2a_gcs.console.site import PATH as CONSOLE
from a2a_gcs.host.agent_card import card_routes, declare_security, list_grpc
from a2a_gcs.host.auth import Authenticator, open_authenticator
from a2a_gcs.host.auth.middleware import AuthMiddleware
from a2a_gcs.host.bounds import BodyLimit, RequestTooLarge, answer_too_large
from a2a_gcs.host.browsers import LateConsole, console_site, sign_in
from a2a_gcs.host.checked import CheckedHandler
from a2a_gcs.host.files import file_routes
from a2a_gcs.host.request_trace import RequestTrace
from a2a_gcs.host.sdk_faults import jsonrpc_routes, rest_routes
from a2a_gcs.host.services import Services, checked, origin
from a2a_gcs.host.settings import Settings
from a2a_gcs.host.stack import HostedAgent
from a2a_gcs.host.telemetry import exposition
from a2a_gcs.objectstore import ObjectStore

if TYPE_CHECKING:
    from a2a_gcs.host.grpc import GrpcServer

log = structlog.get_logger(__name__)

Signer = Callable[[AgentCard], AgentCard]

_READY_WITHIN_SECONDS = 3.0
METRICS_PATH = "/metrics"
_NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI's own: RequestTrace knows more, and does not take what a client sends for a label."""


def create_app(settings: Settings, *, store: ObjectStore | None = None) -> FastAPI:
    """The host as an ASGI application. Its lifespan opens everything and closes everything.

    Args:
        settings: The settings.
        store: A store to use instead of the one that the settings name.

    Raises:
        ConfigError: The agent or the store cannot be what the settings say.
    """
    services = Services(settings, store)
    for agent in services.agents:
        declare_security(agent.card, settings)
    authenticator = open_authenticator(settings)
    handlers = {agent.name: checked(services.handlers[agent.name], agent, settings) for agent in services.agents}
    grpc = _grpc_server(services, handlers, authenticator) if settings.serves_grpc else None
    lifespan = _lifespan(services, grpc, _signer(settings), authenticator)
    app = FastAPI(title=_title(services), version=version("a2a-gcs"), lifespan=lifespan, telemetry=_NO_TELEMETRY)
    app.state.services = services
    app.state.drain = functools.partial(_drain, services, grpc)
    app.state.authenticator = authenticator
    # The last one added sees a request first: preflights carry no credentials, and no body is read before them.
    app.add_middleware(BodyLimit, limit=settings.max_request_bytes)
    if authenticator is not None:
        public = [f"{agent.path}{AGENT_CARD_WELL_KNOWN_PATH}" for agent in services.agents]
        public += [METRICS_PATH] if settings.metrics_public else []
        browser = sign_in(services, authenticator)
        app.add_middleware(AuthMiddleware, authenticator=authenticator, public=public, sign_in=browser)
    if settings.cors_origins:
        _allow_origins(app, settings.cors_origins)
    app.add_middleware(RequestTrace)
    _add_probes(app, services)
    if settings.metrics:
        _add_metrics(app)
    if settings.console:
        pages = LateConsole(console_site(services, handlers))
        for path in (CONSOLE, CONSOLE + "/{page:path}"):  # before REST, whose tenants are first segments
            app.router.routes.append(Route(path, pages))
    for agent in sorted(services.agents, key=lambda a: -a.path.count("/")):  # /a would take /a/b for its tenant b
        place = app if not agent.path else _app_of(agent)
        place.router.routes.extend(file_routes(services.roots, agent))
        _add_agent(place, agent, handlers[agent.name], settings)
        if agent.path:
            app.mount(agent.path, place)
    return app


def _lifespan(
    services: Services, grpc: GrpcServer | None, signer: Signer | None, authenticator: Authenticator | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await services.start()
            app.state.grpc_port = None if grpc is None else await grpc.start()
            for agent in services.agents:
                _complete(agent, services.settings, app.state.grpc_port, signer)
            yield
        finally:
            if grpc is not None:
                await grpc.stop()
            await services.close()
            if authenticator is not None:
                await authenticator.aclose()

    return lifespan


async def _drain(services: Services, grpc: GrpcServer | None) -> None:
    """Ends the runs, whose last events then reach the streams of every binding; then gRPC's calls."""
    if grpc is not None:
        await grpc.refuse()
    await services.drain.run()
    if grpc is not None:
        await grpc.stop()


def _app_of(agent: HostedAgent) -> FastAPI:
    return FastAPI(title=agent.card.name, version=agent.card.version, telemetry=_NO_TELEMETRY)


def _title(services: Services) -> str:
    return services.agents[0].card.name if len(services.agents) == 1 else "a2a-gcs"


def _add_agent(app: FastAPI, agent: HostedAgent, handler: RequestHandler, settings: Settings) -> None:
    """Card, JSON-RPC and REST of one agent. REST comes last: its paths are the most general."""
    app.add_exception_handler(RequestTooLarge, answer_too_large)
    cards = card_routes(agent.card, max_age=settings.card_max_age_seconds)
    add_a2a_routes_to_fastapi(
        app,
        agent_card_routes=cards,
        jsonrpc_routes=jsonrpc_routes(handler, "/"),
        rest_routes=rest_routes(handler, tenants=True),
    )
    app.router.routes.extend(cards)  # these answer HEAD, which the SDK leaves out of its own for the sake of the schema


def _signer(settings: Settings) -> Signer | None:
    if settings.card_signing_key is None:
        return None
    from a2a_gcs.host.card_signing import card_signer  # noqa: PLC0415 - cryptography, which only a key pays for

    return card_signer(settings.card_signing_key, settings.card_signing_key_id)


def _grpc_server(
    services: Services, handlers: Mapping[str, CheckedHandler], authenticator: Authenticator | None
) -> GrpcServer:
    from a2a_gcs.host.grpc import GrpcServer  # noqa: PLC0415 - loaded only when asked for
    from a2a_gcs.host.grpc.agents import ServedAgent  # noqa: PLC0415
    from a2a_gcs.host.grpc.authentication import CallerInterceptor  # noqa: PLC0415
    from a2a_gcs.host.grpc.tracing import TraceInterceptor  # noqa: PLC0415

    settings = services.settings
    callers = CallerInterceptor(authenticator) if authenticator is not None else None
    return GrpcServer(
        [ServedAgent(agent.path, handlers[agent.name], agent.card) for agent in services.agents],
        host=settings.host,
        port=settings.port if settings.grpc_port is None else settings.grpc_port,
        max_request_bytes=settings.max_request_bytes,
        interceptors=[TraceInterceptor(), *([callers] if callers else [])],
        user=callers.user if callers else None,
    )


def _complete(agent: HostedAgent, settings: Settings, grpc_port: int | None, signer: Signer | None) -> None:
    """What the card can say only once the host listens."""
    if grpc_port is not None and (settings.advertise_grpc or settings.grpc_only):
        tenant = agent.path.strip("/")
        list_grpc(agent.card, origin(settings), grpc_port, alone=settings.grpc_only, tenant=tenant)
    if signer is not None:
        signer(agent.card)


def _allow_origins(app: FastAPI, origins: str) -> None:
    app.add_middleware(
        CORSMiddleware,
        allow_origins=[one.strip() for one in origins.split(",") if one.strip()],
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["ETag", "WWW-Authenticate"],
    )


def _add_probes(app: FastAPI, services: Services) -> None:
    async def health() -> dict[str, str]:
        """The process is up."""
        return {"status": "ok"}

    async def ready() -> JSONResponse:
        """The bucket is reachable and the heartbeat is fresh; with authentication, why not is in the log alone."""
        problem = await _problem(services)
        if problem:
            log.warning("host.not_ready", reason=problem)
            told = {} if services.settings.auth != "none" else {"reason": problem}
            return JSONResponse({"status": "not ready", **told}, status_code=503)
        return JSONResponse({"status": "ready"})

    _add_probe(app, "/health", health)
    _add_probe(app, "/ready", ready)


def _add_metrics(app: FastAPI) -> None:
    def metrics() -> Response:
        """What this process counts and measures, in Prometheus's text format."""
        body, content_type = exposition()
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    _add_probe(app, METRICS_PATH, metrics, response_class=Response)


def _add_probe(app: FastAPI, path: str, answer: Callable[[], Any], **options: Any) -> None:
    """GET, and HEAD, which FastAPI does not add by itself; the schema would have the one operation twice."""
    app.add_api_route(path, answer, methods=["GET"], tags=["probes"], **options)
    app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)


async def _problem(services: Services) -> str | None:
    if services.drain.begun:
        return "the host is being stopped"
    if services.heartbeat.age > services.settings.lease_seconds * 2 / 3:
        return "the heartbeat is not being renewed"
    return await services.readiness.problem()
