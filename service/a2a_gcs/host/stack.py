"""Everything that serves one agent below one root: from the records up to the request handler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from a2a.server.agent_execution import AgentExecutor
from a2a.types.a2a_pb2 import AgentCard

from a2a_gcs.claims import ClaimTable
from a2a_gcs.executors.large_parts import Limits as PartLimits
from a2a_gcs.executors.large_parts import entering
from a2a_gcs.executors.workspaced import WorkspacedExecutor
from a2a_gcs.host.admission import Admission
from a2a_gcs.host.file_links import FileLinks
from a2a_gcs.host.push.config_store import BucketPushConfigStore
from a2a_gcs.host.push.deliveries import Deliveries
from a2a_gcs.host.request_handler import RequestHandler
from a2a_gcs.host.settings import AgentSettings, Settings
from a2a_gcs.journal import Journal
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.ledger.ledger import Ledger
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.objectstore import ObjectStore, PrefixStore
from a2a_gcs.pointers import PointerIndex
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.tasks.files import TaskFiles
from a2a_gcs.tasks.push_configs import PushConfigs
from a2a_gcs.tasks.store import BucketTaskStore
from a2a_gcs.tasks.stream import BucketEventStream
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.snapshots import Snapshots
from a2a_gcs.workspaces.warm import WarmDirs
from a2a_gcs.workspaces.workdir import WorkDirs
from a2a_gcs.workspaces.workspaces import Workspaces


@dataclass(frozen=True)
class HostedAgent:
    """An agent of this host.

    Attributes:
        name: Its name; empty where it is the only one.
        path: Where its routes begin, such as `/writer`; empty at the origin.
        executor: The agent itself, shared by all roots.
        settings: What is set for it.
        card: Its agent card.
        links: Where clients find what is beside its tasks; None where nothing serves that, so everything stays in them.
    """

    name: str
    path: str
    executor: AgentExecutor
    settings: AgentSettings
    card: AgentCard
    links: FileLinks | None = None


@dataclass(frozen=True)
class Shared:
    """What the stacks of one host have in common."""

    settings: Settings
    bucket: ObjectStore
    table: ClaimTable
    workdirs: WorkDirs
    warm: WarmDirs
    admission: Admission
    deliveries: Deliveries


def below(bucket: ObjectStore, root: str) -> ObjectStore:
    """The store below a root. It is not closed by itself."""
    return PrefixStore(bucket, root) if root else bucket


class Ground:
    """What every stack stands on, and all that settling the tasks of a root needs."""

    def __init__(self, shared: Shared, root: str) -> None:
        self.store = below(shared.bucket, root)
        self.table = ClaimTable(shared.table.host, root=root, numbers=shared.table.numbers) if root else shared.table
        push = shared.settings.push_notifications
        announce = partial(shared.deliveries.announce, root) if push else None
        self.index = PointerIndex(self.store)
        self.records = TaskRecords(self.store, announce, index=self.index)
        self.journal = Journal(self.store)
        self.settler = Settler(self.records, self.journal, Liveness(shared.bucket, shared.table), self.table)


class Stack:
    """One agent below one root.

    Attributes:
        store: What is stored below the root.
        tasks: Its tasks.
        table: Its claims.
        records: Their stored records.
        files: What is beside them.
        snapshots: Its workspaces in the store.
        handler: Answers its requests.
    """

    @property
    def idle(self) -> bool:
        """Nothing runs, and nobody listens."""
        return not len(self.table) and self.stream.idle

    def __init__(self, shared: Shared, agent: HostedAgent, ground: Ground) -> None:
        settings = agent.settings
        self.store = ground.store
        self.table = ground.table
        self.records = ground.records
        self.files = TaskFiles(ground.store)
        ledger = Ledger(
            ground.store,
            ground.records,
            ground.settler,
            ground.table,
            patience=shared.settings.store_budget_seconds,
            resume_from=settings.resume_from,
        )
        self.tasks = BucketTaskStore(ground.store, ground.records, ground.journal, ground.table, ground.settler.settled)
        self.stream = BucketEventStream(self.tasks, ground.records, ground.journal, ground.table)
        limits = Limits(max_bytes=settings.max_workspace_bytes, max_entries=settings.max_workspace_files)
        snapshots = Snapshots(ground.store, limits=limits, ignore=settings.workspace_ignore)
        workspaces = Workspaces(snapshots, shared.workdirs, shared.warm, root=ground.table.root)
        kept = PartLimits(shared.settings.inline_part_bytes)
        executor = WorkspacedExecutor(
            agent.executor,
            ground.table,
            ledger,
            workspaces,
            answers=settings.answers,
            on_shutdown=settings.on_shutdown,
            longest_run=settings.max_run_seconds,
            longest_wait=settings.max_wait_seconds,
            longest_snapshot=settings.max_snapshot_seconds,
            checkpoint_every=settings.checkpoint_minutes and settings.checkpoint_minutes * 60,
            on_lost=settings.on_lost_workspace,
            files=self.files if agent.links else None,
            limits=kept,
            max_task_bytes=shared.settings.max_task_bytes,
        )
        self.snapshots = snapshots
        root = ground.table.root
        configs = PushConfigs(ground.store, ground.records, shared.bucket, root=root, table=ground.table)
        look_at = partial(shared.deliveries.look_at, root)
        self.handler = RequestHandler(
            executor,
            self.tasks,
            self.stream,
            ledger,
            ground.table,
            agent.card,
            shared.admission,
            push_configs=BucketPushConfigStore(configs, ground.records, ground.table, look_at),
            check_push_url=shared.deliveries.sender.check,
            entering=entering(self.files, kept) if agent.links else None,
        )
