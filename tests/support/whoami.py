"""An agent that answers with the user for whom it is called."""

from __future__ import annotations

from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import Part


class WhoAmI(AgentExecutor):
    async def execute(self, context, event_queue):
        user = context.call_context.user
        task = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
        said = f"{user.user_name}:{user.is_authenticated}"
        await task.complete(task.new_agent_message([Part(text=said)]))

    async def cancel(self, context, event_queue):
        pass
