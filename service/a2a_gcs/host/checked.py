"""A request handler that looks at every request before another one gets it, on every binding."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
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
from google.protobuf.message import Message as Proto

Check = Callable[[Proto, ServerCallContext], None]
"""Raises an A2AError for a request that is not to be handled."""

REACHED_STATE = "a2a_gcs.reached"
"""Key of `ServerCallContext.state`: the request was understood. What fails without it is the request's own fault."""


class CheckedHandler(RequestHandler):
    """Another handler, behind checks.

    Args:
        inner: Answers what passes.
        checks: Each is made on every request, in this order.
    """

    def __init__(self, inner: RequestHandler, checks: Iterable[Check]) -> None:
        self._inner = inner
        self._checks = tuple(checks)

    def _pass(self, params: Proto, context: ServerCallContext) -> None:
        context.state[REACHED_STATE] = True
        for check in self._checks:
            check(params, context)

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        self._pass(params, context)
        return await self._inner.on_message_send(params, context)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        self._pass(params, context)
        async with contextlib.aclosing(self._inner.on_message_send_stream(params, context)) as events:
            async for event in events:
                yield event

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        self._pass(params, context)
        async with contextlib.aclosing(self._inner.on_subscribe_to_task(params, context)) as events:
            async for event in events:
                yield event

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        self._pass(params, context)
        return await self._inner.on_get_task(params, context)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        self._pass(params, context)
        return await self._inner.on_list_tasks(params, context)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        self._pass(params, context)
        return await self._inner.on_cancel_task(params, context)

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        self._pass(params, context)
        return await self._inner.on_create_task_push_notification_config(params, context)

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        self._pass(params, context)
        return await self._inner.on_get_task_push_notification_config(params, context)

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        self._pass(params, context)
        return await self._inner.on_list_task_push_notification_configs(params, context)

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        self._pass(params, context)
        await self._inner.on_delete_task_push_notification_config(params, context)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        context.state[REACHED_STATE] = True
        return await self._inner.on_get_extended_agent_card(params, context)
