"""Isolation by construction: each call is answered by the stack of its own root (ARCHITECTURE, *Who may call*).

Another owner's, tenant's or agent's task is simply not there: nothing below one
root can name a key below another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler as SdkRequestHandler
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
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
)

from a2a_gcs.errors import ConfigError, InvalidId
from a2a_gcs.host.empty_parts import filled
from a2a_gcs.host.errors import to_a2a_error
from a2a_gcs.host.request_handler import RequestHandler
from a2a_gcs.host.stack import Ground, HostedAgent, Shared, Stack
from a2a_gcs.host.versions import is_03
from a2a_gcs.layout import callers_of, root_of
from a2a_gcs.ledger.settle import Settler
from a2a_gcs.objectstore import ObjectStore
from a2a_gcs.root_shapes import Hosting, Survey

E = TypeVar("E", bound=Event)

_KEPT = 1000
"""Stacks of roots that are kept though nothing runs below them."""


class Roots:
    """The stacks of one host, made when a root is first called for."""

    def __init__(self, shared: Shared, *, authenticated: bool) -> None:
        self._shared = shared
        self._authenticated = authenticated
        self._grounds: dict[str, Ground] = {}
        self._stacks: dict[str, Stack] = {}

    def of(self, agent: HostedAgent, context: ServerCallContext) -> Stack:
        """The stack for a call. Raises InvalidId where tenant or owner cannot be a path segment."""
        owner = context.user.user_name if self._authenticated else ""
        if self._authenticated and not owner:
            raise InvalidId(owner, "of the caller is empty: nobody has authenticated this call")
        root = root_of(agent=agent.name, tenant=context.tenant, owner=owner)
        stack = self._stacks.pop(root, None) or Stack(self._shared, agent, self._ground(root))
        self._stacks[root] = stack  # the most recently used one last
        self._forget_idle()
        return stack

    def settler_of(self, root: str) -> Settler:
        """The settler of a root, also of one that nobody has called for here."""
        return self._ground(root).settler

    def __iter__(self) -> Iterator[Stack]:
        return iter(list(self._stacks.values()))

    async def aclose(self) -> None:
        """Stops every run of every root."""
        for stack in list(self._stacks.values()):
            await stack.handler.aclose()
            await stack.tasks.aclose()
            await stack.snapshots.close()
        await asyncio.gather(*(ground.index.aclose() for ground in self._grounds.values()))

    def _ground(self, root: str) -> Ground:
        if root not in self._grounds:
            self._grounds[root] = Ground(self._shared, root)
        return self._grounds[root]

    def _forget_idle(self) -> None:
        if len(self._stacks) <= _KEPT:
            return
        for root, stack in list(self._stacks.items())[:-1]:
            if root and stack.idle:
                del self._stacks[root]
                self._grounds.pop(root).table.leave()
                return


async def refuse_other_roots(bucket: ObjectStore, *, several_agents: bool, authenticated: bool) -> None:
    """Looks for data below a root that no call to this host can reach.

    Turning authentication on, or hosting a second agent, moves the root: what was
    stored before would silently be gone.

    Raises:
        ConfigError: There is such data; the message says what to do.
        StoreError: The bucket could not be read.
    """
    hosting = Hosting(several_agents=several_agents, authenticated=authenticated)
    found = await Survey(bucket).elsewhere(hosting)
    if found is None:
        return
    whence = f"--from-root {found.root} " if found.root else ""
    raise ConfigError(
        f"the bucket holds data below {found.prefix}, but with these settings everything is kept below "
        f"{hosting.root}: it could not be seen. Serve it as before, move it, with all hosts stopped, by "
        f"`a2a-gcs migrate {whence}--to-root {hosting.moved(found.root)} --store URI`, "
        "or use another prefix: --store gs://bucket/prefix"
    )


def links_below(agents: Iterable[HostedAgent], root: str) -> Callable[[E], E]:
    """What makes of an event below a root the one that a client gets, where no call tells for whom.

    Args:
        agents: Those of this host.
        root: As `root_of` makes it; of an agent that is not hosted here, events stay as they are.
    """
    name, tenant, _ = callers_of(root)
    for agent in agents:
        if agent.name == name and agent.links is not None:
            return partial(agent.links.shown, tenant=tenant)
    return lambda event: event


class RootedHandler(SdkRequestHandler):
    """One agent's requests, each handed to the stack of its root."""

    def __init__(self, roots: Roots, agent: HostedAgent) -> None:
        self._roots = roots
        self._agent = agent
        self._agent_card = agent.card  # the SDK's adapters look for it here

    def _shown(self, event: E, context: ServerCallContext) -> E:
        """An answer as clients get it: what is beside the task has an address, and 0.3 can tell every part."""
        shown = event if self._agent.links is None else self._agent.links.shown(event, context.tenant)
        return filled(shown) if is_03(context) else shown

    def _of(self, context: ServerCallContext) -> RequestHandler:
        try:
            return self._roots.of(self._agent, context).handler
        except InvalidId as e:
            raise to_a2a_error(e) from e

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        answer: Task | Message = await self._of(context).on_message_send(params, context)
        return self._shown(answer, context)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        async with contextlib.aclosing(self._of(context).on_message_send_stream(params, context)) as events:
            async for event in events:
                yield self._shown(event, context)

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        async with contextlib.aclosing(self._of(context).on_subscribe_to_task(params, context)) as events:
            async for event in events:
                yield self._shown(event, context)

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        answer: Task | None = await self._of(context).on_get_task(params, context)
        return answer and self._shown(answer, context)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        answer: ListTasksResponse = await self._of(context).on_list_tasks(params, context)
        for task in answer.tasks:
            if (shown := self._shown(task, context)) is not task:
                task.CopyFrom(shown)
        return answer

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        answer: Task | None = await self._of(context).on_cancel_task(params, context)
        return answer and self._shown(answer, context)

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        answer: TaskPushNotificationConfig = await self._of(context).on_create_task_push_notification_config(
            params, context
        )
        return answer

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        answer: TaskPushNotificationConfig = await self._of(context).on_get_task_push_notification_config(
            params, context
        )
        return answer

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        answer: ListTaskPushNotificationConfigsResponse = await self._of(
            context
        ).on_list_task_push_notification_configs(params, context)
        return answer

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        await self._of(context).on_delete_task_push_notification_config(params, context)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        answer: AgentCard = await self._of(context).on_get_extended_agent_card(params, context)
        return answer
