"""Delivers notifications: each configuration's in order, at least once, beside whatever the tasks do.

What is owed is in the store: configurations tell how far they have come, and task.json and
what is kept beside it tell what there is (`a2a_gcs.tasks.notices`). So this holds nothing but ids. A task is
looked at when this process reads or writes a state of it that push tells of, when a
configuration is stored, and when its mark is found: at the start of the host, and now and then.

One host at a time delivers to a receiver: it enters itself into the configuration,
and others wait until it has left, or is dead. Else a slow request of one
would be overtaken by the next notification from another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import structlog
from a2a.types.a2a_pb2 import TaskState, TaskStatusUpdateEvent

from a2a_gcs import telemetry
from a2a_gcs.clock import boottime
from a2a_gcs.errors import A2AGcsError, CorruptRecord, NotFound
from a2a_gcs.host.push.addresses import PushUrlRefused
from a2a_gcs.host.push.payload import body_of, delivery_id, headers_of, update_of
from a2a_gcs.host.push.sender import DeliveryFailed, Sender
from a2a_gcs.jitter import jittered
from a2a_gcs.layout import PUSH_PREFIX, TaskRef, decode_segment, parse_owed, parse_push_mark, pointer_key, task_key
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore
from a2a_gcs.records import Owner, PushConfigRecord, TaskMeta
from a2a_gcs.task_json import TERMINAL
from a2a_gcs.task_records import TaskRecord, TaskRecords
from a2a_gcs.tasks.notices import Notice, Notices, next_owed
from a2a_gcs.tasks.push_configs import PushConfigs

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 1000
"""Tasks that this process looks at, and receivers that it serves or waits for, at a time. Of each it holds ids alone;
more are found again by their marks."""

_READS_AT_ONCE = 16
"""Tasks are read whole here and there, and may be large."""
_REMEMBERED = 10_000
_TERMINAL = frozenset(str(TaskState.Name(state)) for state in TERMINAL)
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60.0
_LONGEST_WAIT_FOR_HOST_SECONDS = 2.0
_UNUSED_MARK_SECONDS = 86_400.0
_ANY_CLAIM = 2**62
"""A number that no heartbeat has given out: what is asked is whether the host itself is dead."""


Shown = Callable[[TaskStatusUpdateEvent], TaskStatusUpdateEvent]


class Pushing:
    """What delivering for the tasks of one root takes.

    Args:
        bucket: The bucket at its prefix.
        store: The root.
        root: Its name, as in `a2a_gcs.layout`.
        shown: Makes of an event as it is stored what receivers get: what is beside the task has an address.

    Attributes:
        records: task.json records of the root, which announce nothing: reading them here starts nothing.
        notices: What there is to tell.
        configs: Whom to tell.
    """

    def __init__(self, bucket: ObjectStore, store: ObjectStore, root: str, shown: Shown = lambda event: event) -> None:
        self.store = store
        self.shown = shown
        self.records = TaskRecords(store)
        self.notices = Notices(store, self.records)
        self.configs = PushConfigs(store, self.records, bucket, root=root)


V = TypeVar("V")


class _Where(NamedTuple):
    root: str
    ref: TaskRef


class _Receiver(NamedTuple):
    where: _Where
    config_id: str


class Deliveries:
    """All deliveries of one process.

    Args:
        bucket: The bucket at its prefix.
        pushing_of: Gives what delivering for a root takes.
        settler_of: Gives the settler of a root: a task that is found here may be a dead host's.
        liveness: Whether another host is dead.
        sender: Sends one notification.
        host: This host.
        retry_for: Seconds from the first failure of a notification until it is given up.
        every: Seconds between two looks for marks, on average.
    """

    def __init__(
        self,
        bucket: ObjectStore,
        pushing_of: Callable[[str], Pushing],
        settler_of: Callable[[str], Settler],
        liveness: Liveness,
        sender: Sender,
        *,
        host: str,
        retry_for: float,
        every: float,
    ) -> None:
        self._bucket = bucket
        self._pushing_of = pushing_of
        self._settler_of = settler_of
        self._liveness = liveness
        self.sender = sender
        self._host = host
        self._retry_for = retry_for
        self._every = every
        self._closed = False
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)
        self._workers: dict[_Where | _Receiver, asyncio.Task[None]] = {}
        self._again: set[_Where | _Receiver] = set()
        self._seen: dict[_Where, int] = {}  # the version of task.json that was announced last
        self._done: dict[_Where, tuple[int, int]] = {}  # versions of task.json and mark that nothing is owed for

    # ------------------------------------------------------------------ what starts a delivery

    def announce(self, root: str, record: TaskRecord) -> None:
        """Looks at a task that tells a state which configurations may wait for. Returns at once."""
        where = _Where(root, record.ref)
        if self._seen.get(where) != record.version:
            _remember(self._seen, where, record.version)
            self._start(where, self._look(where))

    def look_at(self, root: str, ref: TaskRef) -> None:
        """Looks at a task that has got a configuration. Returns at once."""
        where = _Where(root, ref)
        self._start(where, self._look(where))

    async def run(self) -> None:
        """Looks for marks at once and now and then, until cancelled: what a dead host owed is delivered from here."""
        while True:
            try:
                await self.look_for_marks()
            except A2AGcsError as e:
                log.warning("push.marks_not_read", error=str(e))
            await asyncio.sleep(jittered(self._every))

    async def look_for_marks(self) -> None:
        """One look at every marked task that has changed since this process last saw it told. Raises StoreError."""
        page = None
        while True:
            listing = await self._bucket.list(PUSH_PREFIX, page=page)
            for info in listing.objects:
                await self._look_at_mark(info)
            if (page := listing.next) is None:
                return

    async def _look_at_mark(self, info: ObjectInfo) -> None:
        parsed, context_id = parse_push_mark(info.key), decode_segment(info.metadata.get("context", ""))
        if parsed is None or context_id is None:
            return
        root, task_id = parsed
        where = _Where(root, TaskRef(context_id, task_id))
        if where in self._done:
            try:
                version = (await self._pushing_of(root).store.head(task_key(where.ref))).version
            except NotFound:
                version = 0
            if self._done.get(where) == (version, info.version):
                return
        self._start(where, self._look(where))

    def _start(self, key: _Where | _Receiver, work: Coroutine[Any, Any, None]) -> None:
        """Runs a piece of work unless it runs already: then it is run once more after that."""
        alike = sum(type(other) is type(key) for other in self._workers)
        if key in self._workers or alike >= MOST_AT_ONCE or self._closed:
            work.close()
            if key in self._workers:
                self._again.add(key)
            return
        task = asyncio.create_task(work, name=f"push:{key}")
        self._workers[key] = task
        task.add_done_callback(lambda t: self._ended(key, t))

    def _ended(self, key: _Where | _Receiver, task: asyncio.Task[None]) -> None:
        del self._workers[key]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.warning("push.put_off", task_id=_where(key).ref.task_id, error=str(error))  # its mark leads back to it
            self._again.discard(key)
            return
        where = _where(key)
        if isinstance(key, _Receiver) or key in self._again:  # only a look tells whether all is told by now
            self._again.discard(key)
            self._start(where, self._look(where))

    # ------------------------------------------------------------------ one task

    async def _look(self, where: _Where) -> None:
        """Starts what is owed to each configuration; where nothing is, and nothing can follow, tidies up."""
        async with self._reading:
            pushing, ref = self._pushing_of(where.root), where.ref
            mark = await pushing.configs.find_mark(ref)
            stored = await self._current(pushing, where)
            if stored is None:
                await self._forget_if_gone(pushing, ref, mark)
                return
            version, meta = stored
            ids, kept = await pushing.configs.ids_and_kept(ref)
            owed = 0
            for config in await pushing.configs.readable(ref, ids):
                number = next_owed(kept, meta.notice, config.delivered)
                if number is not None:
                    receiver = _Receiver(where, config.id)
                    self._start(receiver, self._serve(receiver, number))
                    owed += 1
            if owed or meta.open:  # the host of an open one may die with the record as it is
                return
            if meta.state in _TERMINAL:
                await pushing.notices.forget(ref, kept)
                if mark is not None:
                    await pushing.configs.unmark(mark)
            _remember(self._done, where, (version, mark.version if mark else 0))

    async def _current(self, pushing: Pushing, where: _Where) -> tuple[int, TaskMeta] | None:
        """Version and metadata of a task; read as a whole, and settled, only if its host may be dead."""
        stored = await pushing.records.peek(where.ref)
        if stored is not None and not stored[1].open and not stored[1].patience:
            return stored
        record = await self._settler_of(where.root).found(where.ref)
        return (record.version, record.meta) if record is not None else None

    async def _forget_if_gone(self, pushing: Pushing, ref: TaskRef, mark: ObjectInfo | None) -> None:
        """Removes what was kept for a task that never came to be, or is removed: it has no pointer, or none of use."""
        try:
            await pushing.store.head(pointer_key(ref.task_id))
            if mark is None or mark.age < _UNUSED_MARK_SECONDS:
                return
        except NotFound:
            pass
        for config_id in await pushing.configs.ids(ref):
            await pushing.configs.delete(ref, config_id)
        if mark is not None:
            await pushing.configs.unmark(mark)

    # ------------------------------------------------------------------ one receiver

    async def _serve(self, receiver: _Receiver, owed: int) -> None:
        """Delivers to one receiver all that it is owed, once no other host does.

        Between two tries nothing is held but ids: what is owed is read again, so that
        a configuration that was deleted, or has another URL by now, is noticed.
        """
        pushing, ref = self._pushing_of(receiver.where.root), receiver.where.ref
        config = await self._take(pushing, receiver, owed)
        patience = _Patience(self._retry_for)
        while config is not None and config.deliverer == self._host:
            try:
                notice = await self._after(pushing, ref, config.delivered)
            except CorruptRecord as e:
                config = await pushing.configs.mark(ref, config.id, _passed_over(e), release=False)
                continue
            if notice is None:
                await pushing.configs.mark(ref, config.id, config.delivered, release=True)
                return
            if await self._try(pushing, config, notice) or patience.over(notice.number):
                over = notice.last or not await self._more(pushing, ref, notice.number)
                config = await pushing.configs.mark(ref, config.id, notice.number, release=over)
                continue
            notice = None
            await asyncio.sleep(patience.pause())
            config = await pushing.configs.get(ref, config.id)

    async def _after(self, pushing: Pushing, ref: TaskRef, delivered: int) -> Notice | None:
        async with self._reading:
            return await pushing.notices.after(ref, delivered)

    async def _more(self, pushing: Pushing, ref: TaskRef, delivered: int) -> bool:
        try:
            return await self._after(pushing, ref, delivered) is not None
        except CorruptRecord:  # it is passed over in its turn
            return True

    async def _try(self, pushing: Pushing, config: PushConfigRecord, notice: Notice) -> bool:
        """Sends one notice once. Whether it was accepted."""
        about = {"task_id": notice.ref.task_id, "config_id": config.id, "delivery_id": delivery_id(notice)}
        try:
            body = body_of(config, pushing.shown(update_of(notice)))
            await self.sender.post(config.url, headers_of(config, notice), body)
        except (DeliveryFailed, PushUrlRefused) as e:
            telemetry.push_deliveries.add(1, {"outcome": "failed"})
            log.warning("push.failed", error=str(e), **about)
            return False
        telemetry.push_deliveries.add(1, {"outcome": "delivered"})
        log.info("push.delivered", **about)
        return True

    async def _take(self, pushing: Pushing, receiver: _Receiver, owed: int) -> PushConfigRecord | None:
        """Makes this host the one that delivers; None if that is done already, or the configuration is gone."""
        ref, pause = receiver.where.ref, _FIRST_PAUSE_SECONDS
        while (config := await pushing.configs.get(ref, receiver.config_id)) is not None and config.delivered < owed:
            free = {"", self._host, config.deliverer}
            if config.deliverer in {"", self._host} or await self._is_dead(config.deliverer):
                taken = await pushing.configs.take(ref, config.id, self._host, free)
                if taken is None or taken.deliverer == self._host:
                    return taken
            await asyncio.sleep(jittered(pause, 0.25))
            pause = min(pause * 2, _LONGEST_WAIT_FOR_HOST_SECONDS)
        return None

    async def _is_dead(self, host: str) -> bool:
        return await self._liveness.is_dead(str(Owner(host=host, n=_ANY_CLAIM)))

    async def aclose(self) -> None:
        """Stops; what is owed is found again by its mark."""
        self._closed = True
        workers = list(self._workers.values())
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await self.sender.aclose()


def _passed_over(error: CorruptRecord) -> int:
    """The number of a kept notice that cannot be read, so that it holds up no later one. Raises if others can."""
    number = parse_owed(error.key)
    if number is None or error.newer:
        raise error
    log.error("push.notice_unreadable", key=error.key, error=str(error.cause))
    return number


class _Patience:
    """When a notice is tried again, and when it is given up: each has its own time from its first failure.

    Args:
        seconds: From the first failure of a notice until it is given up.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._number = 0
        self._since = 0.0
        self._pause = _FIRST_PAUSE_SECONDS

    def over(self, number: int) -> bool:
        """Whether a notice that has failed just now is to be given up."""
        if number != self._number:
            self._number, self._since, self._pause = number, boottime(), _FIRST_PAUSE_SECONDS
        given_up = boottime() - self._since >= self._seconds
        if given_up:
            telemetry.push_deliveries.add(1, {"outcome": "given up"})
            log.error("push.given_up", number=number, seconds=self._seconds)
        return given_up

    def pause(self) -> float:
        """Seconds until the next try."""
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return jittered(pause, 0.25)


def _where(key: _Where | _Receiver) -> _Where:
    return key.where if isinstance(key, _Receiver) else key


def _remember(known: dict[_Where, V], where: _Where, value: V) -> None:
    known.pop(where, None)
    known[where] = value
    if len(known) > _REMEMBERED:
        known.pop(next(iter(known)))
