"""What the console is made over: handlers, stores and authentication of this host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from starlette.types import ASGIApp, Receive, Scope, Send

from a2a_gcs.clock import boottime
from a2a_gcs.console.measures import HostFacts, LivingHost, Measures
from a2a_gcs.console.sign_in import Headers, SignIn
from a2a_gcs.console.site import ConsoleAgent, Site
from a2a_gcs.errors import CorruptRecord, NotFound
from a2a_gcs.host.auth import Authenticator
from a2a_gcs.host.auth.errors import AuthUnavailable, Unauthenticated
from a2a_gcs.host.errors import to_a2a_error
from a2a_gcs.host.services import Services, origin
from a2a_gcs.host.settings import LOOPBACK, Settings
from a2a_gcs.host.stack import HostedAgent
from a2a_gcs.host.telemetry import samples
from a2a_gcs.layout import HOSTS_PREFIX, TaskRef, heartbeat_key
from a2a_gcs.objectstore import ObjectStore
from a2a_gcs.records import HeartbeatRecord

_BEARER_MODES = frozenset({"tokens", "oidc", "google"})
"""What a proxy in front does not add by itself, as it does for iap and cloud-run-iam."""


class LateConsole:
    """The console as an application, which is imported and made for the first request that it gets.

    Templates and all that pages need take a tenth of a second, which no start should wait for.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._made: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:  # who comes meanwhile makes another one, which does no harm
            self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)

    def _make(self) -> ASGIApp:
        from a2a_gcs.console.routes import console  # noqa: PLC0415 - see above

        return console(self._site)


def console_site(services: Services, handlers: Mapping[str, RequestHandler]) -> Site:
    """The console of a host, whose agents are answered for by these handlers."""
    began = boottime()

    settings = services.settings

    async def facts(root: str) -> HostFacts:
        measures = Measures.of(await asyncio.to_thread(samples)) if settings.metrics else None
        return HostFacts(await _hosts(services, root), boottime() - began, measures)

    agents = [_console_agent(services, agent, handlers[agent.name]) for agent in services.agents]
    signs_in = settings.auth in _BEARER_MODES
    return Site(agents, facts, to_a2a_error, hosts=_own_names(settings), signs_in=signs_in)


def sign_in(services: Services, authenticator: Authenticator) -> SignIn | None:
    """How browsers bring credentials, in the modes where no proxy does; None for the others."""
    if services.settings.auth not in _BEARER_MODES or not services.settings.console:
        return None

    async def check(headers: Headers) -> str:
        try:
            await authenticator.authenticate(headers)
        except (Unauthenticated, AuthUnavailable) as e:
            return str(e)
        return ""

    title = services.agents[0].card.name if len(services.agents) == 1 else "a2a-gcs"
    return SignIn(title, check)


def _console_agent(services: Services, agent: HostedAgent, handler: RequestHandler) -> ConsoleAgent:
    def store_of(context: ServerCallContext) -> ObjectStore:
        return services.roots.of(agent, context).store

    def root_of(context: ServerCallContext) -> str:
        return services.roots.of(agent, context).table.root

    return ConsoleAgent(agent.name, agent.card.name, handler, store_of, root_of)


def _own_names(settings: Settings) -> frozenset[str] | None:
    """Without authentication, and on loopback, a page of another site could otherwise read this one (DNS rebinding)."""
    if settings.auth != "none" or settings.host not in LOOPBACK:
        return None
    return frozenset(name for name in (*LOOPBACK, urlsplit(origin(settings)).hostname) if name)


async def _hosts(services: Services, root: str) -> list[LivingHost]:
    """Every heartbeat of the bucket; of turns below other roots the number alone, as they are others'."""
    found: list[LivingHost] = []
    for info in (await services.store.list(HOSTS_PREFIX)).objects:
        try:
            beat = HeartbeatRecord.parse(info.key, (await services.store.get(info.key)).body)
        except (NotFound, CorruptRecord):
            continue
        here = info.key == heartbeat_key(services.host_id)
        tasks = [TaskRef(claim.context_id, claim.task_id) for claim in beat.claims if claim.root == root]
        age = max(0.0, info.age)
        found.append(LivingHost(beat.host, age, beat.lease_seconds, len(beat.open), tasks, here))
    return sorted(found, key=lambda one: (not one.here, one.age))
