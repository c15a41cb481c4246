"""What a2a-sdk 1.3.0 keeps of a run for its subscribers, bounded.

The SDK queues each event together with a copy of the whole task: up to 1,024
of them on the way to its subscribers, and 1,024 more for each. They fill within one step of the
event loop whenever the SDK's consumer has waited for the bucket while the agent went
on: 1,000 events of a task of 4 MB were 4 GB (measured). The SDK leaves no room to choose these
queues, so the one of a run is put in place of its own before the run begins:

- It holds one event for each subscriber, and one on the way to them. A subscriber that is behind is not dropped: the
  consumer waits for it, and in the end the agent. That is safe as subscribers are in this process alone: `ReadAhead`,
  which always reads on, and lets go of the run when the client on its other side does not; and a send, which waits
  for nothing else. Clients that follow a task are served by `tasks.stream`, without the SDK's queues.
- The copy of the task is dropped where no subscriber looks at it: all but status updates.

To be tried again with every a2a-sdk after 1.3.0: `tests/unit/host/test_sdk_queues.py` tells whether it still is so.
"""

from __future__ import annotations

from typing import Any, cast

from a2a.server.agent_execution.active_task import ActiveTask
from a2a.server.events.event_queue import Event
from a2a.server.events.event_queue_v2 import EventQueueSink, EventQueueSource
from a2a.types.a2a_pb2 import TaskStatusUpdateEvent

WAITING = 1
"""Events that wait in one queue; a status update has a copy of its task beside it."""


class SubscriberQueue(EventQueueSource):
    """Hands the events of a run to its subscribers, and holds up who puts in more while one of them is behind."""

    def __init__(self) -> None:
        super().__init__(max_queue_size=WAITING, create_default_sink=False)

    async def enqueue_event(self, event: Event) -> None:
        """Takes what the SDK puts in: an event and its task, as a pair."""
        told, task = cast("Any", event)
        pair = (told, task if isinstance(told, TaskStatusUpdateEvent) else None)
        await super().enqueue_event(cast("Any", pair))

    async def tap(self, max_queue_size: int = WAITING, evict_on_full: bool = False) -> EventQueueSink:  # noqa: FBT001, FBT002
        """A subscriber's queue: small, whatever is asked for, and never dropped."""
        del max_queue_size, evict_on_full
        return await super().tap(WAITING)


async def bound(active: ActiveTask) -> None:
    """Gives a run its queue, if it has none yet. To be called before anything is asked of it."""
    theirs = active._event_queue_subscribers  # noqa: SLF001 - it cannot be given one
    if not isinstance(theirs, SubscriberQueue):
        active._event_queue_subscribers = SubscriberQueue()  # noqa: SLF001
        await theirs.close(immediate=True)
