"""The FastAPI application: A2A over JSON-RPC and REST, the agent card, and what probes ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.fastapi_routes import add_a2a_routes_to_fastapi
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from a2a_gcs.errors import StoreError
from a2a_gcs.host.prompt_errors import with_prompt_errors
from a2a_gcs.host.roots import RootedHandler
from a2a_gcs.host.services import Services
from a2a_gcs.host.settings import Settings
from a2a_gcs.host.stack import HostedAgent
from a2a_gcs.objectstore import ObjectStore

_READY_WITHIN_SECONDS = 3.0


def create_app(settings: Settings, *, store: ObjectStore | None = None) -> FastAPI:
    """The host as an ASGI application. Its lifespan opens everything and closes everything.

    Args:
        settings: The settings.
        store: A store to use instead of the one that the settings name.

    Raises:
        ConfigError: The agent or the store cannot be what the settings say.
    """
    services = Services(settings, store)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            await services.start()
            yield
        finally:
            await services.close()

    app = FastAPI(title=_title(services), version=version("a2a-gcs"), lifespan=lifespan)
    app.state.services = services
    app.state.drain = services.drain.run
    _add_probes(app, services)
    for agent in services.agents:
        place = app if not agent.path else FastAPI(title=agent.card.name, version=agent.card.version)
        _add_agent(place, agent, services.handlers[agent.name])
        if agent.path:
            app.mount(agent.path, place)
    return app


def _title(services: Services) -> str:
    return services.agents[0].card.name if len(services.agents) == 1 else "a2a-gcs"


def _add_agent(app: FastAPI, agent: HostedAgent, handler: RootedHandler) -> None:
    """Card, JSON-RPC and REST of one agent. REST comes last: its tenant segment takes whatever is left."""
    add_a2a_routes_to_fastapi(
        app,
        agent_card_routes=create_agent_card_routes(agent.card),
        jsonrpc_routes=with_prompt_errors(create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)),
        rest_routes=with_prompt_errors(create_rest_routes(handler, enable_v0_3_compat=True)),
    )


def _add_probes(app: FastAPI, services: Services) -> None:
    @app.get("/health", tags=["probes"])
    async def health() -> dict[str, str]:
        """The process is up."""
        return {"status": "ok"}

    @app.get("/ready", tags=["probes"])
    async def ready() -> JSONResponse:
        """The bucket is reachable and the heartbeat is fresh."""
        problem = await _problem(services)
        if problem:
            return JSONResponse({"status": "not ready", "reason": problem}, status_code=503)
        return JSONResponse({"status": "ready"})


async def _problem(services: Services) -> str | None:
    if services.drain.begun:
        return "the host is being stopped"
    if services.heartbeat.age > services.settings.lease_seconds * 2 / 3:
        return "the heartbeat is not being renewed"
    try:
        await asyncio.wait_for(services.reach_bucket(), _READY_WITHIN_SECONDS)
    except StoreError as e:
        return f"the bucket does not answer: {e}"
    except TimeoutError:
        return f"the bucket did not answer within {_READY_WITHIN_SECONDS:.0f} s"
    return None
