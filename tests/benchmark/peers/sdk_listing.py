"""One of a2a-sdk's task stores with so many ended tasks: lists the first page of 50 for each line that it reads.

`python sdk_listing.py memory|<SQLAlchemy URL> <tasks>` says `ready`, and then after each listing the seconds it took.
"""

from __future__ import annotations

import asyncio
import sys
import time

from a2a.auth.user import UnauthenticatedUser
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import ListTasksRequest, Task, TaskState

from tests.benchmark.peers.sdk_server import store_of

CONTEXT = ServerCallContext(user=UnauthenticatedUser())
PAGE = 50


def task(number):
    made = Task(id=f"{number * 7919 % 1_000_003:08d}-{number}", context_id=f"context-{number // 3}")
    made.status.state = TaskState.TASK_STATE_COMPLETED
    made.status.timestamp.FromSeconds(number)
    return made


async def fill(store, count):
    """As `save` would, but in one transaction: filling is not what is measured."""
    if not hasattr(store, "async_session_maker"):
        for number in range(count):
            await store.save(task(number), CONTEXT)
        return
    owner = store.owner_resolver(CONTEXT)
    async with store.async_session_maker.begin() as session:
        session.add_all(store._to_orm(task(number), owner) for number in range(count))


async def main(where, count):
    store = await store_of(where)
    await fill(store, count)
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        page = await store.list(ListTasksRequest(), CONTEXT)
        seconds = time.perf_counter() - began
        assert (len(page.tasks), page.total_size) == (min(count, PAGE), count)
        print(seconds, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
