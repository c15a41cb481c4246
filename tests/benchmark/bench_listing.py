"""`python -m tests.benchmark.bench_listing`: ListTasks over many tasks; requests by the gateway's meter, and time."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
import tracemalloc
import uuid
from pathlib import Path

from a2a.types.a2a_pb2 import ListTasksRequest, Task, TaskState

from a2a_gcs.layout import TaskRef, task_key
from a2a_gcs.objectstore import GCSStore, LocalStore, RetryingStore
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.pointers import put_pointer
from a2a_gcs.task_json import format_task_json
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.tasks.listing import DEFAULT_PAGE, list_tasks
from fake_gcs.process import FakeGcs

FEW, MANY = 10_000, 100_000
WRITERS = 32
TIMES = 3
DONE = TaskState.Name(TaskState.TASK_STATE_COMPLETED)


async def fill(store, first, last):
    """Tasks number `first` to `last`, each newer than the one before; only those that a page shows get a task.json."""
    numbers = iter(range(first, last))

    async def write():
        for n in numbers:
            ref = TaskRef(f"context-{n // 3}", str(uuid.uuid4()))
            await put_pointer(store, ref, IF_ABSENT, DONE, n * 1000)
            if n >= last - DEFAULT_PAGE:
                task = Task(id=ref.task_id, context_id=ref.context_id)
                task.status.state = TaskState.TASK_STATE_COMPLETED
                task.status.timestamp.FromSeconds(n)
                await store.put(task_key(ref), format_task_json(task, {}), IF_ABSENT)

    await asyncio.gather(*(write() for _ in range(WRITERS)))


async def first_page(store):
    async def settled(record):
        return record

    return await list_tasks(store, TaskRecords(store), settled, ListTasksRequest())


async def seconds(store):
    """The least of a few tries: by the clock, and of the processor, which other work on the machine disturbs less."""
    found, busy = [], []
    for _ in range(TIMES):
        start, used = time.perf_counter(), time.process_time()
        await first_page(store)
        found.append(time.perf_counter() - start)
        busy.append(time.process_time() - used)
    return min(found), min(busy)


async def on_the_emulator():
    with FakeGcs.start() as emulator:
        bucket = emulator.create_bucket()
        async with RetryingStore(GCSStore(bucket, emulator=emulator.url)) as store:
            await fill(store, 0, FEW)
            before = max(r["seq"] for r in emulator.requests(bucket=bucket))
            page = await first_page(store)
            asked = emulator.requests(bucket=bucket, after=before)
    lists = sum(r["operation"] == "objects.list" for r in asked)
    print(f"emulator, {page.total_size:7,d} tasks: {lists} lists and {len(asked) - lists} reads for {len(page.tasks)}")


async def on_disk(directory):
    took = {}
    async with LocalStore(directory, durable=False) as store:
        for first, last in itertools.pairwise((0, FEW, MANY)):
            await fill(store, first, last)
            took[last] = await seconds(store)
            tracemalloc.start()
            page = await first_page(store)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            clock, busy = took[last]
            print(f"local,    {page.total_size:7,d} tasks: {clock:.2f} s, {busy:.2f} s of CPU, {peak / 1e6:.1f} MB")
    clock, busy = (took[MANY][i] / took[FEW][i] for i in (0, 1))
    print(f"local,    {clock:.1f} times the time, {busy:.1f} times the CPU, for {MANY // FEW} times the tasks")


def main():
    asyncio.run(on_the_emulator())
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(on_disk(Path(directory)))


if __name__ == "__main__":
    main()
