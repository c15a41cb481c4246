"""The SDK's request handler, with its guards (ARCHITECTURE, *Where the SDK needs guarding*).

Every binding calls this one object, so all give the same answers. What a
client is told about the end of a turn is what is stored: where the SDK's own
stream breaks off, the stored task is sent instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import structlog
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
from a2a.server.request_handlers.request_handler import validate_request_params
from a2a.server.tasks import PushNotificationConfigStore
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    InternalError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length

from a2a_gcs import telemetry
from a2a_gcs.claims import Claim, ClaimTable
from a2a_gcs.errors import A2AGcsError
from a2a_gcs.executors.workspaced import WorkspacedExecutor
from a2a_gcs.host.admission import Admission, Place
from a2a_gcs.host.claiming import CLAIM_STATE, QUIET_STATE, ClaimingContextBuilder
from a2a_gcs.host.errors import reason_of, to_a2a_error
from a2a_gcs.host.read_ahead import ReadAhead
from a2a_gcs.host.sdk_queues import bound
from a2a_gcs.host.sse import noted, resumes_after
from a2a_gcs.ledger.errors import Fenced, Repeated
from a2a_gcs.ledger.ledger import Entering, Ledger
from a2a_gcs.task_json import INTERRUPTED, TERMINAL, state_name
from a2a_gcs.tasks.store import BucketTaskStore
from a2a_gcs.tasks.stream import BucketEventStream, Told, ends_turn

log = structlog.get_logger(__name__)

START_WITHIN_SECONDS = 30.0
"""A claim whose agent has not started by then gives itself up."""

_PARKED_COPY_SECONDS = 1.0
"""How long the SDK keeps its copy of a parked task, which hears nothing of other hosts; what counts is stored."""

F = TypeVar("F", bound=Callable[..., Any])


def _in_a2a_terms(method: F) -> F:
    """Lets only A2AErrors out of a handler method."""

    @functools.wraps(method)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return await method(*args, **kwargs)
        except A2AGcsError as e:
            raise _translated(e) from e

    @functools.wraps(method)
    async def streaming(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async with contextlib.aclosing(method(*args, **kwargs)) as events:
            try:
                async for event in events:
                    yield event
            except A2AGcsError as e:
                raise _translated(e) from e

    chosen = streaming if "AsyncGenerator" in str(method.__annotations__.get("return")) else wrapper
    return cast("F", chosen)


def _translated(error: A2AGcsError) -> Exception:
    translated = to_a2a_error(error)
    if isinstance(translated, InternalError):
        log.error("request.failed", error=str(error), cause=repr(error.__cause__ or error))
    return translated


@dataclass(frozen=True)
class _Run:
    """A turn that has been started: its events from the first on."""

    task_id: str
    first: Told | None
    rest: AsyncGenerator[Told, None]

    async def events(self) -> AsyncGenerator[Told, None]:
        if self.first is None:
            return
        async with contextlib.aclosing(self.rest):
            yield self.first
            async for told in self.rest:
                yield told


async def _unnumbered(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Told, None]:
    async with contextlib.aclosing(events):
        async for event in events:
            yield Told(event)


class RequestHandler(DefaultRequestHandlerV2):
    """Answers A2A requests over one root.

    Args:
        executor: Runs turns.
        store: The tasks.
        stream: Their events.
        ledger: Who may run.
        table: What runs here.
        card: What the agent says of itself.
        admission: Whether new work is taken.
        push_configs: Where push configurations are kept; None where there are none.
        check_push_url: Raises for a URL that nothing may be sent to.
        entering: Makes of a message what the history of its task gets.
    """

    def __init__(  # noqa: PLR0917 - what it is made of
        self,
        executor: WorkspacedExecutor,
        store: BucketTaskStore,
        stream: BucketEventStream,
        ledger: Ledger,
        table: ClaimTable,
        card: AgentCard,
        admission: Admission | None = None,
        *,
        push_configs: PushNotificationConfigStore | None = None,
        check_push_url: Callable[[str], Awaitable[None]] | None = None,
        entering: Entering | None = None,
    ) -> None:
        super().__init__(
            agent_executor=executor,
            task_store=store,
            agent_card=card,
            push_config_store=push_configs,
            request_context_builder=ClaimingContextBuilder(ledger, entering),
            event_stream=stream,
            interrupted_task_timeout=_PARKED_COPY_SECONDS,
        )
        self._store = store
        self._stream = stream
        self._ledger = ledger
        self._table = table
        self._admission = admission or Admission()
        self._check_push_url = check_push_url
        self._set_ups: set[asyncio.Task[_Run]] = set()

    # ------------------------------------------------------------------ send

    @_in_a2a_terms
    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Message | Task:
        """Starts or continues a task. Returns when it ends, waits for somebody, or at once if so asked."""
        at_once = params.configuration.return_immediately
        try:
            context.state[QUIET_STATE] = not at_once
            run = await self._begin(params, context, whole_tasks=True)
        except Repeated as e:
            result: Message | Task = await self._outcome(e.ref.task_id, at_once=at_once)
        else:
            result = await self._first_answer(run, at_once=at_once) or await self._outcome(run.task_id, at_once=at_once)
        return apply_history_length(result, params.configuration) if isinstance(result, Task) else result

    async def _first_answer(self, run: _Run, *, at_once: bool) -> Message | Task | None:
        """The first event that answers a send; None if the run was lost before there was one."""
        answer: Message | Task | None = None
        async with contextlib.aclosing(run.rest):
            try:
                async for told in run.events():
                    event = told.event
                    if isinstance(event, Message):
                        answer = event  # nothing may follow it; the SDK sees to that
                    elif isinstance(event, Task) and (at_once or event.status.state in TERMINAL | INTERRUPTED):
                        return event
            except (A2AGcsError, InternalError) as e:
                log.info("send.run_lost", task_id=run.task_id, error=str(e))
        return answer

    async def _outcome(self, task_id: str, *, at_once: bool) -> Task:
        """The stored task, once it has ended or waits for somebody."""
        async with contextlib.aclosing(self._stream.resume(task_id, None, waits=False)) as events:
            async for _ in events:
                if at_once:
                    break
        record = await self._store.read(task_id)
        if record is None:
            raise TaskNotFoundError
        return record.copy_task()

    @_in_a2a_terms
    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Starts or continues a task and streams its events, ending with the stored end of the turn."""
        try:
            run = await self._begin(params, context, whole_tasks=False)
        except Repeated as e:
            after = resumes_after(context, e.ref.task_id)
            async with contextlib.aclosing(self._resumed(e.ref.task_id, context, after, waits=False)) as resumed:
                async for event in resumed:
                    yield event
            return
        ended = False
        async with contextlib.aclosing(run.rest), ReadAhead(run.events()) as ahead:
            try:
                async for told in ahead.events():
                    ended = ends_turn(told.event)
                    event = noted(context, run.task_id, told)
                    yield apply_history_length(event, params.configuration) if isinstance(event, Task) else event
            except (A2AGcsError, InternalError) as e:
                log.info("stream.run_lost", task_id=run.task_id, error=str(e))
        if not ended:  # the run was lost, or the SDK dropped its reader as too slow
            async with contextlib.aclosing(self._resumed(run.task_id, context, None, waits=False)) as rest:
                async for event in rest:
                    yield event

    async def _resumed(
        self, task_id: str, context: ServerCallContext, after: int | None, *, waits: bool
    ) -> AsyncGenerator[Event, None]:
        """What a client misses that has the events up to a version; see `BucketEventStream.resume`."""
        async with contextlib.aclosing(self._stream.resume(task_id, after, waits=waits)) as events:
            async for told in events:
                yield noted(context, task_id, told)

    # ------------------------------------------------------------------ starting a turn

    async def _begin(self, params: SendMessageRequest, context: ServerCallContext, *, whole_tasks: bool) -> _Run:
        """Starts a turn in a task of the host's own: a client that goes away stops nothing half-way."""
        with _refusals_counted():
            place = await self._place(params.message, context.user.user_name)
            task = asyncio.create_task(self._set_up(params, context, place, whole_tasks=whole_tasks))
            self._set_ups.add(task)
            task.add_done_callback(self._set_ups.discard)
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                task.add_done_callback(_hang_up)
                raise

    async def _place(self, message: Message, owner: str) -> Place:
        """A place for the turn of a message. A repeat takes none, so it has its outcome when there is none as well.

        Raises:
            Repeated: There is no place, and the message has started a task before.
            A2AError: There is no place.
        """
        try:
            return self._admission.admit(owner)
        except UnsupportedOperationError:
            repeated = await self._ledger.started_by(message)
            if repeated is not None:
                raise Repeated(repeated) from None
            raise

    async def _set_up(
        self, params: SendMessageRequest, context: ServerCallContext, place: Place, *, whole_tasks: bool
    ) -> _Run:
        """Claims, starts the agent and waits for its first event; any failure before that surrenders the claim.

        The place is given back when the run ends, or is told to.
        """
        try:
            if params.configuration.HasField("task_push_notification_config"):  # before anything is claimed
                await self._check_push(params.configuration.task_push_notification_config)
            active, request = await self._setup_active_task(params, context)
            await bound(active)
            claimed: Claim = context.state[CLAIM_STATE]
            theirs = active.subscribe(request=request, replace_status_update_with_task=whole_tasks)
            if whole_tasks:
                events = _unnumbered(theirs)
            else:
                events = self._stream.numbered(claimed.ref.task_id, claimed.turn, theirs)
            claimed.on_stop(place.leave)
            # A further turn begins without an event of the host's: its task is there, and so is the message, stored.
            at_once = params.configuration.return_immediately and whole_tasks and claimed.turn > 1
            first = await self._first_event(events, claimed, at_once=at_once)
        except BaseException:
            place.leave()
            claim: Claim | None = context.state.get(CLAIM_STATE)
            if claim is not None and claim.held and not claim.started:
                await self._ledger.surrender(claim)
            raise
        return _Run(cast("str", request.task_id), first, events)

    async def _first_event(self, events: AsyncGenerator[Told, None], claim: Claim, *, at_once: bool) -> Told | None:
        """The first event of the turn; with `at_once` None as soon as the agent runs, and nobody listens any more."""
        waiting = asyncio.ensure_future(anext(events, None))
        begun = asyncio.Event()
        if at_once:
            claim.on_start(begun.set)
        either: list[asyncio.Future[Any]] = [waiting, asyncio.ensure_future(begun.wait())]
        await asyncio.wait(either, timeout=START_WITHIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        either[1].cancel()
        if not waiting.done() and not claim.started:
            waiting.cancel()
            await self._ledger.surrender(claim)
            raise InternalError("the agent could not be started in time; send again")
        if begun.is_set() and not waiting.done():
            waiting.cancel()
            await asyncio.wait({waiting})
            return None
        try:
            return await waiting
        except Fenced:  # lost before its first event: the caller looks at what is stored
            return None

    async def surrender_unstarted(self) -> None:
        """Gives back the claims whose agents have not started: `Drain` stops no work."""
        await asyncio.gather(*(self._ledger.surrender(c) for c in self._table if not c.started))

    # ------------------------------------------------------------------ the other methods

    @_in_a2a_terms
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """Reads a task; one that a dead host left running is ended first."""
        return cast("Task | None", await super().on_get_task(params, context))

    @_in_a2a_terms
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Lists tasks, newest status first."""
        return cast("ListTasksResponse", await super().on_list_tasks(params, context))

    @_in_a2a_terms
    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Stores CANCELED, which ends the run wherever it is, and answers with the stored task.

        Raises:
            TaskNotFoundError: There is no such task.
            TaskNotCancelableError: It was terminal already, or became so first.
        """
        del context
        record = await self._store.read(params.id)
        if record is None:
            raise TaskNotFoundError
        if not record.terminal:
            record = await self._store.cancel(params.id)
            if record is not None and record.task.status.state == TaskState.TASK_STATE_CANCELED:
                return record.copy_task()
        raise TaskNotCancelableError

    @_in_a2a_terms
    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Streams a task: first as it is stored, then what is new, until its turn ends.

        With a Last-Event-ID it goes on from there instead, as long as the journal of the turn is there.

        Raises:
            TaskNotFoundError: There is no such task.
            UnsupportedOperationError: It is terminal, and the client names no event before its end.
        """
        record = await self._store.read(params.id)
        if record is None:
            raise TaskNotFoundError
        after = resumes_after(context, params.id)
        if record.terminal and (after is None or after >= record.meta.seq):
            raise UnsupportedOperationError(f"Task {params.id} is in terminal state: {state_name(record.task)}")
        async with contextlib.aclosing(self._resumed(params.id, context, after, waits=True)) as events:
            async for event in events:
                yield event

    # ------------------------------------------------------------------ push configurations

    async def _check_push(self, config: TaskPushNotificationConfig) -> None:
        if self._check_push_url is not None:
            await self._check_push_url(config.url)

    @_in_a2a_terms
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Stores where the news of a task go, in place of what was stored under the same id.

        Raises:
            TaskNotFoundError: There is no such task.
            InvalidParamsError: Nothing is sent to that URL, or the task has too many configurations.
        """
        if self._agent_card.capabilities.push_notifications:  # the SDK refuses it otherwise
            await self._check_push(params)
        stored: TaskPushNotificationConfig = await super().on_create_task_push_notification_config(params, context)
        return stored

    @_in_a2a_terms
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """One configuration; without an id (A2A 0.3) the one that was stored without one."""
        if not params.id:
            params.id = params.task_id
        found: TaskPushNotificationConfig = await super().on_get_task_push_notification_config(params, context)
        return found

    @_in_a2a_terms
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """All configurations of a task."""
        found: ListTaskPushNotificationConfigsResponse = await super().on_list_task_push_notification_configs(
            params, context
        )
        return found

    @_in_a2a_terms
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Removes a configuration; it is no error if there is none."""
        await super().on_delete_task_push_notification_config(params, context)

    async def aclose(self) -> None:
        """Stops every run and waits for the set-ups under way."""
        await super().aclose()
        await asyncio.gather(*self._set_ups, return_exceptions=True)


@contextlib.contextmanager
def _refusals_counted() -> Iterator[None]:
    try:
        yield
    except Exception as e:
        if (reason := reason_of(e)) is not None:
            telemetry.claims_refused.add(1, {"reason": reason})
        raise


def _hang_up(task: asyncio.Task[_Run]) -> None:
    """Unsubscribes a client that went away while its turn was being set up; the turn goes on."""
    if task.cancelled() or task.exception() is not None:
        return
    closing = asyncio.ensure_future(task.result().rest.aclose())
    closing.add_done_callback(lambda t: t.cancelled() or t.exception())
