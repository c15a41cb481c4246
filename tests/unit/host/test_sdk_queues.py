"""What waits of a run: next to nothing, and nobody outside holds it up."""

import asyncio

from a2a.server.agent_execution import AgentExecutor
from a2a.server.agent_execution.active_task import ActiveTask
from a2a.server.context import ServerCallContext
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.server.tasks.task_manager import TaskManager
from a2a.types.a2a_pb2 import Task

from a2a_gcs.host.sdk_queues import WAITING, SubscriberQueue, bound
from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.hosts import CANCELED, COMPLETED, WORKING
from tests.support.turn_host import TurnHost, emits, makes, parked_or_ended, says

TASK = Task(id="t")
MANY = 1000


def run_of_the_sdk():
    manager = TaskManager(InMemoryTaskStore(), ServerCallContext(), "t", "c", None)
    return ActiveTask(AgentExecutor, "t", manager)


async def filled(queue, subscribers=()):
    """How many events a queue takes while nobody reads."""
    taken = 0

    async def fill():
        nonlocal taken
        for _ in range(MANY):
            await queue.enqueue_event((makes(), TASK))
            taken += 1

    filling = asyncio.create_task(fill())
    steps = 0
    while steps < 50:  # nothing has moved for so many steps of the loop
        before = taken
        await asyncio.sleep(0)
        steps = 0 if taken > before else steps + 1
    filling.cancel()
    for subscriber in subscribers:
        await subscriber.close(immediate=True)
    await queue.close(immediate=True)
    return taken


async def test_the_queue_of_the_sdk_alone_fills_without_end():
    """A thousand pairs of event and task, before and behind its dispatcher: when this fails, `bound` can go."""
    queue = run_of_the_sdk()._event_queue_subscribers
    assert await filled(queue, [await queue.tap(evict_on_full=True)]) == MANY


async def test_a_bound_one_holds_up_who_puts_in_more():
    """One with each subscriber, one on the way, and one in the hands of the dispatcher."""
    run = run_of_the_sdk()
    await bound(run)
    queue = run._event_queue_subscribers
    assert await filled(queue, [await queue.tap(evict_on_full=True)]) == 2 * WAITING + 1


async def test_a_run_is_bound_once():
    """The queue that subscribers of a turn listen to stays when the next turn of the task begins."""
    run = run_of_the_sdk()
    await bound(run)
    first = run._event_queue_subscribers
    await bound(run)
    assert run._event_queue_subscribers is first
    await run.aclose()


async def test_subscribers_get_everything_in_order_and_tasks_with_status_updates_alone():
    """Each at its own pace: who is behind is waited for, not dropped."""
    queue = SubscriberQueue()
    subscribers = [await queue.tap(), await queue.tap()]
    events = [says(WORKING, "n") if n % 2 else makes(text=str(n)) for n in range(50)]

    async def put():
        for event in events:
            await queue.enqueue_event((event, TASK))

    async def read(subscriber, steps):
        got = []
        while len(got) < len(events):
            got.append(await subscriber.dequeue_event())
            subscriber.task_done()
            for _ in range(steps):
                await asyncio.sleep(0)
        return got

    _, quick, slow = await asyncio.gather(put(), read(subscribers[0], 0), read(subscribers[1], 20))
    assert quick == slow == [(event, TASK if n % 2 else None) for n, event in enumerate(events)]
    await queue.close(immediate=True)


async def test_a_subscriber_that_leaves_lets_the_others_go_on():
    """Also while an event waits for it alone."""
    queue = SubscriberQueue()
    stays, leaves = await queue.tap(), await queue.tap()

    async def read():
        return [await stays.dequeue_event() for _ in range(20)]

    reading = asyncio.create_task(read())
    putting = asyncio.create_task(asyncio.wait_for(_put(queue, 20), 10))
    while not leaves.queue.full():  # noqa: ASYNC110 - the SDK's queue tells nobody
        await asyncio.sleep(0)
    await leaves.close(immediate=True)
    await putting
    assert len(await asyncio.wait_for(reading, 10)) == 20
    await queue.close(immediate=True)


async def _put(queue, count):
    for _ in range(count):
        await queue.enqueue_event((makes(), TASK))


async def test_a_client_that_does_not_read_on_holds_up_neither_the_agent_nor_the_end(tmp_path):
    """The task is stored as completed while the client still has its first event in hand; it then gets the whole."""
    chunks = [makes(text="x" * 10_000, append=n > 0) for n in range(MANY)]
    host = TurnHost(MemoryStore(), "host", emits(*chunks, says(COMPLETED)), tmp_path)
    events = host.send_stream()
    first = await anext(events)
    await asyncio.wait_for(parked_or_ended(host, first.id), 60)
    stored = await host.tasks.read(first.id)
    assert stored.task.status.state == COMPLETED
    assert len(stored.task.artifacts[0].parts) == MANY
    assert [event async for event in events][-1].status.state == COMPLETED
    await host.close()


async def test_a_client_that_does_not_read_on_does_not_hold_up_a_cancel(tmp_path):
    """Nor does an agent that never comes to an end."""

    async def endless(_context, queue):
        await queue.enqueue_event(makes())
        while True:
            await queue.enqueue_event(makes(append=True))

    host = TurnHost(MemoryStore(), "host", endless, tmp_path)
    events = host.send_stream()
    first = await anext(events)
    canceled = await asyncio.wait_for(host.cancel(first.id), 60)
    assert canceled.status.state == CANCELED
    await asyncio.wait_for(host.agent.left.wait(), 60)
    await events.aclose()
    await host.close()
