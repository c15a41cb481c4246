"""The composition root: everything that a host runs on, wired in one place and closed in one place."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence

import structlog
from a2a.server.agent_execution import AgentExecutor
from a2a.types.a2a_pb2 import AgentCard

from a2a_gcs import telemetry
from a2a_gcs.claims import ClaimTable
from a2a_gcs.clock import boottime
from a2a_gcs.errors import ConfigError, NotFound, StoreError
from a2a_gcs.executors.command import CommandOptions
from a2a_gcs.executors.command_process import Lease
from a2a_gcs.executors.spec import load_agent
from a2a_gcs.host.admission import Admission
from a2a_gcs.host.agent_card import build_card
from a2a_gcs.host.bounds import within_bounds
from a2a_gcs.host.checked import CheckedHandler
from a2a_gcs.host.drain import Drain
from a2a_gcs.host.file_links import FileLinks
from a2a_gcs.host.loop_lag import measure_loop_lag
from a2a_gcs.host.push.deliveries import Deliveries, Pushing
from a2a_gcs.host.push.sender import Sender
from a2a_gcs.host.readiness import Readiness
from a2a_gcs.host.roots import RootedHandler, Roots, links_below, refuse_other_roots
from a2a_gcs.host.sdk_faults import push_configs, required_extensions
from a2a_gcs.host.settings import AgentSettings, Settings, listed
from a2a_gcs.host.stack import HostedAgent, Shared, below
from a2a_gcs.layout import heartbeat_key, key_pattern
from a2a_gcs.ledger.heartbeat import Heartbeat, Liveness
from a2a_gcs.ledger.sweep import Sweep
from a2a_gcs.objectstore import ObjectStore, open_store
from a2a_gcs.tasks.store import BucketTaskStore
from a2a_gcs.tasks.watch import Watch
from a2a_gcs.workspaces.warm import WarmDirs
from a2a_gcs.workspaces.workdir import WorkDirs

SWEEP_EVERY_LEASES = 2.0
"""How often the sweep looks for dead hosts; whoever touches one of their tasks does not wait for it."""

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 1.0
"""What is left to what still waits for the bucket once the drain is over."""


class Services:
    """One host over one store.

    Args:
        settings: The settings.
        store: A store to use instead of opening `settings.store`; it is not closed.
        agents: The agents to host instead of those that the settings name.
        authenticated: Whether callers are known, so that each has a root of its own; None: as the settings say.
    """

    def __init__(
        self,
        settings: Settings,
        store: ObjectStore | None = None,
        *,
        agents: Sequence[HostedAgent] = (),
        authenticated: bool | None = None,
    ) -> None:
        self.settings = settings
        self._authenticated = settings.authenticated if authenticated is None else authenticated
        self.host_id = _host_id()
        self._given = store
        self.store = store or open_store(settings.store, budget=settings.store_budget_seconds, pattern=key_pattern)
        self.table = ClaimTable(self.host_id)
        shares = store is not None or settings.store == "memory"
        self.heartbeat = Heartbeat(
            (lambda: self.store) if shares else self._open_again,
            self.table,
            lease=settings.lease_seconds,
            own_thread=not shares,
        )
        self.workdirs = WorkDirs(settings.work_directory)
        try:
            self.agents = agents or hosted_agents(settings, self._command_options)
        except ConfigError:
            self.workdirs.close()
            raise
        self.admission = Admission(most=settings.max_running_tasks, most_per_owner=settings.max_running_tasks_per_owner)
        warm = WarmDirs(settings.warm_workspace_bytes)
        self.deliveries = self._deliveries()
        shared = Shared(settings, self.store, self.table, self.workdirs, warm, self.admission, self.deliveries)
        self.roots = Roots(shared, authenticated=self._authenticated)
        self.handlers = {agent.name: RootedHandler(self.roots, agent) for agent in self.agents}
        self.watch = Watch(self._watched, every=min(1.0, settings.lease_seconds / 10))
        self.sweep = Sweep(
            self.store, self.roots.settler_of, host=self.host_id, every=SWEEP_EVERY_LEASES * settings.lease_seconds
        )
        self.drain = Drain(self.admission, self.table, self._surrender_unstarted)
        self.readiness = Readiness(self._reach_bucket)
        self._background: list[asyncio.Task[None]] = []
        self._gauges: list[Callable[[], None]] = []

    def _command_options(self, agent: AgentSettings) -> CommandOptions:
        return CommandOptions(
            self.workdirs,
            Lease(self._agents_may_run_until, every=min(1.0, self.settings.lease_seconds / 12)),
            os.environ,
            pass_on=listed(agent.command_env),
            home=agent.command_home,
            max_output=agent.command_max_output,
            grace=agent.command_grace_seconds,
        )

    def _deliveries(self) -> Deliveries:
        settings, bucket = self.settings, self.store
        sender = Sender(listed(settings.push_allowed_hosts), timeout=settings.push_timeout_seconds)
        return Deliveries(
            bucket,
            lambda root: Pushing(bucket, below(bucket, root), root, links_below(self.agents, root)),
            lambda root: self.roots.settler_of(root),  # noqa: PLW0108 - roots come after this
            Liveness(bucket, self.table),
            sender,
            host=self.host_id,
            retry_for=settings.push_retry_seconds,
            every=SWEEP_EVERY_LEASES * settings.lease_seconds,
        )

    def _agents_may_run_until(self) -> float:
        """By the boot clock: at two thirds of the lease this host stops its agents, at three others take over."""
        return boottime() + self.settings.lease_seconds * 5 / 6 - self.heartbeat.age

    async def start(self) -> None:
        """Reaches the bucket and makes the heartbeat durable. Raises ConfigError where the bucket cannot be used."""
        try:
            await self.heartbeat.start()
            await refuse_other_roots(
                self.store,
                several_agents=bool(self.settings.agents),
                authenticated=self._authenticated,
            )
        except StoreError as e:
            raise ConfigError(await self._why(e)) from e
        self._background = [
            asyncio.create_task(self.watch.run(), name="watch"),
            asyncio.create_task(self.sweep.run(), name="sweep"),
            asyncio.create_task(measure_loop_lag(), name="loop lag"),
        ]
        self._gauges = [
            telemetry.running_turns.add(lambda: self.table.running),
            telemetry.heartbeat_age.add(lambda: self.heartbeat.age),
        ]
        if self.settings.push_notifications:
            self._background.append(asyncio.create_task(self.deliveries.run(), name="push"))
        log.info("host.started", host_id=self.host_id, store=self.settings.store)
        if self.settings.public_url is None and listens_everywhere(self.settings.host):
            log.warning(
                "card.names_this_machine",
                url=origin(self.settings),
                hint="set A2A_GCS_PUBLIC_URL (--public-url) to the address that clients use",
            )

    async def _why(self, error: StoreError) -> str:
        if self._given is not None or not self.settings.store.startswith("gs://"):
            return f"the store {self.settings.store} cannot be used: {error}"
        from a2a_gcs.objectstore.gcs_bucket import diagnose  # noqa: PLC0415 - a client that only a failure pays for

        return await asyncio.to_thread(diagnose, self.settings.store, error)

    async def close(self) -> None:
        """Drains if nobody has, then stops the heartbeat and the store: what still runs counts as dead at once."""
        if not self.drain.begun:
            await self.drain.run()
        while self._gauges:
            self._gauges.pop()()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.deliveries.aclose()
        with contextlib.suppress(TimeoutError):  # the bucket does not answer; SIGKILL is near
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.roots.aclose()
        await self.heartbeat.stop()
        self.workdirs.close()
        if self._given is None:
            await self.store.close()

    async def _reach_bucket(self) -> None:
        """One read, to see that the bucket answers. Raises StoreError."""
        try:
            await self.store.head(heartbeat_key(self.host_id))
        except NotFound:
            return

    def _watched(self) -> Iterable[tuple[BucketTaskStore, ClaimTable]]:
        return [(stack.tasks, stack.table) for stack in self.roots]

    async def _surrender_unstarted(self) -> None:
        await asyncio.gather(*(stack.handler.surrender_unstarted() for stack in self.roots))

    def _open_again(self) -> ObjectStore:
        """A store for the heartbeat's own thread; it retries by itself, within its own patience."""
        return open_store(self.settings.store, budget=self.settings.lease_seconds * 4 / 30)


def hosted_agents(settings: Settings, command: Callable[[AgentSettings], CommandOptions]) -> list[HostedAgent]:
    """The agents of a host: the one that the settings name, or those of the configuration file.

    Args:
        settings: The settings.
        command: What an agent with these settings is given, if it is a program.

    Raises:
        ConfigError: One cannot be loaded.
    """
    hosted = []
    for each in settings.hosted():
        name = each.name if settings.agents else ""
        path = (each.path or f"/{name}") if name else ""
        executor = load_agent(each.agent, command(each))
        links = _links(settings, origin(settings) + path)
        hosted.append(HostedAgent(name, path, executor, each, _card(executor, each, settings, path, name), links))
    return hosted


def _links(settings: Settings, base: str) -> FileLinks | None:
    """Over gRPC alone nothing is served that a URL could name."""
    return None if settings.grpc_only else FileLinks(base)


def _card(executor: AgentExecutor, agent: AgentSettings, settings: Settings, path: str, name: str) -> AgentCard:
    return build_card(executor, agent, origin(settings) + path, push=settings.push_notifications, name=name)


def checked(handler: RootedHandler, agent: HostedAgent, settings: Settings) -> CheckedHandler:
    """An agent's handler behind the checks that every request has to pass, whatever the binding."""
    checks = (within_bounds(max_parts=settings.max_parts), required_extensions(agent.card), push_configs(agent.card))
    return CheckedHandler(handler, checks)


def origin(settings: Settings) -> str:
    """Where clients reach this host.

    It is the same for all of them, as it is in cards that are signed and cached, and in what is told without a
    request. So a host that listens on every address, and is not told its name, can only name one that this machine
    reaches.
    """
    if settings.public_url:
        return str(settings.public_url).rstrip("/")
    host = settings.host
    if listens_everywhere(host):
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def listens_everywhere(host: str) -> bool:
    """Whether it stands for all addresses of this machine: 0.0.0.0 and ::, in any spelling."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _host_id() -> str:
    """Names this process: the machine, for people, and a random part that no other process ever has."""
    name = "".join(c if c.isalnum() or c == "-" else "-" for c in socket.gethostname())[:40] or "host"
    return f"{name}-{secrets.token_hex(8)}"
