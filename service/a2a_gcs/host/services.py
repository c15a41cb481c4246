"""The composition root: everything that a host runs on, wired in one place and closed in one place."""

from __future__ import annotations

import asyncio
import secrets
import socket
import tempfile
from pathlib import Path

import structlog
from a2a.types.a2a_pb2 import AgentCard

from a2a_gcs.claims import ClaimTable
from a2a_gcs.errors import ConfigError, NotFound, StoreError
from a2a_gcs.executors.spec import load_agent
from a2a_gcs.executors.workspaced import WorkspacedExecutor
from a2a_gcs.host.admission import Admission
from a2a_gcs.host.agent_card import build_card
from a2a_gcs.host.drain import Drain
from a2a_gcs.host.request_handler import RequestHandler
from a2a_gcs.host.settings import Settings
from a2a_gcs.journal import Journal
from a2a_gcs.layout import heartbeat_key
from a2a_gcs.ledger.heartbeat import Heartbeat, Liveness
from a2a_gcs.ledger.ledger import Ledger
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.ledger.sweep import Sweep
from a2a_gcs.objectstore import ObjectStore, open_store
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.tasks.store import BucketTaskStore
from a2a_gcs.tasks.stream import BucketEventStream
from a2a_gcs.tasks.watch import Watch
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.snapshots import Snapshots
from a2a_gcs.workspaces.workdir import WorkDirs

log = structlog.get_logger(__name__)


class Services:
    """One host over one store.

    Args:
        settings: The settings.
        store: A store to use instead of opening `settings.store`; it is not closed.
    """

    def __init__(self, settings: Settings, store: ObjectStore | None = None) -> None:
        self.settings = settings
        self.host_id = _host_id()
        self._given = store
        self.store = store or open_store(settings.store, budget=settings.store_budget_seconds)
        self.table = ClaimTable(self.host_id)
        shares = store is not None or settings.store == "memory"
        self.heartbeat = Heartbeat(
            (lambda: self.store) if shares else self._open_again,
            self.table,
            lease=settings.lease_seconds,
            own_thread=not shares,
        )
        self.records = TaskRecords(self.store)
        self.journal = Journal(self.store)
        settler = Settler(self.records, self.journal, Liveness(self.store, self.table), self.table)
        self.ledger = Ledger(
            self.store,
            self.records,
            settler,
            self.table,
            patience=settings.store_budget_seconds,
            resume_from=settings.resume_from,
        )
        self.tasks = BucketTaskStore(self.store, self.records, self.journal, self.table, settler.settled)
        self.stream = BucketEventStream(self.tasks, self.records, self.journal, self.table)
        self.watch = Watch(self.tasks, self.table, every=min(1.0, settings.lease_seconds / 10))
        every = 2.0 * settings.lease_seconds
        self.sweep = Sweep(self.store, self.store, self.records, settler, host=self.host_id, every=every)
        self._background: list[asyncio.Task[None]] = []
        self.workdirs = WorkDirs(settings.work_dir or Path(tempfile.gettempdir()) / "a2a-gcs")
        limits = Limits(max_bytes=settings.max_workspace_bytes, max_entries=settings.max_workspace_files)
        agent = load_agent(settings.agent)
        self.executor = WorkspacedExecutor(
            agent,
            self.table,
            self.ledger,
            Snapshots(self.store, limits=limits),
            self.workdirs,
            answers=settings.answers,
            on_shutdown=settings.on_shutdown,
            longest_run=settings.max_run_seconds,
            longest_wait=settings.max_wait_seconds,
        )
        self.card: AgentCard = build_card(agent, settings.agent, origin(settings))
        self.admission = Admission(most=settings.max_running_tasks, most_per_owner=settings.max_running_tasks_per_owner)
        self.handler = RequestHandler(
            self.executor, self.tasks, self.stream, self.ledger, self.table, self.card, self.admission
        )
        self.drain = Drain(self.handler, self.table, self.admission)

    async def start(self) -> None:
        """Reaches the bucket and makes the heartbeat durable. Raises ConfigError where the bucket cannot be used."""
        try:
            await self.heartbeat.start()
        except StoreError as e:
            raise ConfigError(await self._why(e)) from e
        self._background = [
            asyncio.create_task(self.watch.run(), name="watch"),
            asyncio.create_task(self.sweep.run(), name="sweep"),
        ]
        log.info("host.started", host_id=self.host_id, store=self.settings.store)

    async def _why(self, error: StoreError) -> str:
        if self._given is not None or not self.settings.store.startswith("gs://"):
            return f"the store {self.settings.store} cannot be used: {error}"
        from a2a_gcs.objectstore.gcs_bucket import diagnose  # noqa: PLC0415 - a client that only a failure pays for

        return await asyncio.to_thread(diagnose, self.settings.store, error)

    async def close(self) -> None:
        """Drains if nobody has, then stops the heartbeat and the store: what still runs counts as dead at once."""
        if not self.drain.begun:
            await self.drain.run()
        await self.handler.aclose()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.tasks.aclose()
        await self.heartbeat.stop()
        self.workdirs.close()
        if self._given is None:
            await self.store.close()

    async def reach_bucket(self) -> None:
        """One read, to see that the bucket answers. Raises StoreError."""
        try:
            await self.store.head(heartbeat_key(self.host_id))
        except NotFound:
            return

    def _open_again(self) -> ObjectStore:
        """A store for the heartbeat's own thread; it retries by itself, within its own patience."""
        return open_store(self.settings.store, budget=self.settings.lease_seconds * 4 / 30)


def origin(settings: Settings) -> str:
    """Where clients reach this host."""
    if settings.public_url:
        return str(settings.public_url).rstrip("/")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _host_id() -> str:
    """Names this process: the machine, for people, and a random part that no other process ever has."""
    name = "".join(c if c.isalnum() or c == "-" else "-" for c in socket.gethostname())[:40] or "host"
    return f"{name}-{secrets.token_hex(8)}"
