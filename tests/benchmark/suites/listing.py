"""The first page of ListTasks, 50 tasks, newest first, of a store that holds so many ended tasks in all.

Each store is asked by itself, without a server around it: this product's listing over a directory and over the
emulator, a2a-sdk's `TaskStore.list` over its own stores. Of this product's tasks only those of the page have a
task.json, as the listing reads no other; all have the pointer that a host writes. Requests are those that the
emulator's gateway counted. Memory is the highest sum of Python's allocations during a listing.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
import tracemalloc
import uuid
from pathlib import Path

from a2a.types.a2a_pb2 import ListTasksRequest, Task, TaskState

from a2a_gcs.layout import TaskRef, task_key
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.pointers import put_pointer
from a2a_gcs.task_json import format_task_json
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.tasks.listing import DEFAULT_PAGE, list_tasks
from tests.benchmark import environments
from tests.benchmark.subjects import gateway
from tests.support import postgres
from tests.support.host_process import environment
from tests.support.preloaded import REPOSITORY

TITLE = "ListTasks"
DIRECTORY, EMULATOR = "a2a-gcs, directory", "a2a-gcs, emulator"
PAGE, MEMORY, LISTS, READS = "first page", "first page: memory", "first page: lists", "first page: reads"
ON_DISK, ELSEWHERE = (100, 10_000, 100_000), (100, 1000, 10_000)
ON_DISK_SMOKE, ELSEWHERE_SMOKE = (100, 300, 1000), (100, 300)
WRITERS = 32
PEER = Path(__file__).parents[1] / "peers" / "sdk_listing.py"
DONE = TaskState.Name(TaskState.TASK_STATE_COMPLETED)


def run(bench):
    on_disk, elsewhere = (ON_DISK_SMOKE, ELSEWHERE_SMOKE) if bench.smoke else (ON_DISK, ELSEWHERE)
    asyncio.run(_on_disk(bench, on_disk))
    asyncio.run(_on_the_emulator(bench, elsewhere))
    with postgres.serving(durable=True) as database:
        for size in elsewhere:
            _stores_of_the_sdk(bench, size, database)
    bench.reason(
        PAGE,
        "A listing goes through the pointers of all tasks, a thousand a request, and reads the tasks of its page one "
        "by one; a database has an index, and a store in memory the tasks.",
    )
    size, page = elsewhere[-1], f"for a page of {DEFAULT_PAGE} of {elsewhere[-1]:,} tasks"
    bench.aim(f"Lists {page}", bench.median(LISTS, EMULATOR, size), at_most=12)
    bench.aim(f"Reads {page}", bench.median(READS, EMULATOR, size), at_most=50)
    middle, largest = (bench.median(MEMORY, DIRECTORY, size) for size in on_disk[-2:])
    grown = f"Memory of a page of {on_disk[-1]:,} tasks, over that of {on_disk[-2]:,}"
    bench.aim(
        grown,
        largest / middle,
        at_most=1.2,
        why="From 20,000 tasks on sixteen listings go side by side, and each holds a page of a thousand: that is the "
        "most, whatever the number of tasks.",
    )
    if not bench.smoke:
        few, many = (bench.median(PAGE, DIRECTORY, size) for size in on_disk[-2:])
        bench.aim(f"Time of a page of {on_disk[-1]:,} tasks, over that of {on_disk[-2]:,}", many / few, at_most=12)


async def _on_disk(bench, sizes):
    async with LocalStore(bench.directory / "store", durable=False) as store:
        for first, last in zip((0, *sizes), sizes, strict=False):
            await _fill(store, first, last)
            await _first_page(store)
            for _ in bench.alternate([DIRECTORY], f"{last:,} tasks in a directory"):
                bench.record(PAGE, DIRECTORY, await _seconds(store), "s", size=last)
            tracemalloc.start()
            await _first_page(store)
            bench.record(MEMORY, DIRECTORY, tracemalloc.get_traced_memory()[1] / 1e6, "MB", size=last)
            tracemalloc.stop()


async def _on_the_emulator(bench, sizes):
    with gateway() as (emulator, place):
        async with place.open() as store:
            bucket = place.uri.removeprefix("gs://")
            for first, last in zip((0, *sizes), sizes, strict=False):
                await _fill(store, first, last)
                await _first_page(store)
                for _ in bench.alternate([EMULATOR], f"{last:,} tasks on the emulator"):
                    bench.record(PAGE, EMULATOR, await _seconds(store), "s", size=last)
                before = max(request["seq"] for request in emulator.requests(bucket=bucket))
                await _first_page(store)
                asked = [request["operation"] for request in emulator.requests(bucket=bucket, after=before)]
                lists = asked.count("objects.list")
                bench.record(LISTS, EMULATOR, lists, "requests", size=last)
                bench.record(READS, EMULATOR, len(asked) - lists, "requests", size=last)


async def _fill(store, first, last):
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


async def _first_page(store):
    async def settled(record):
        return record

    page = await list_tasks(store, TaskRecords(store), settled, ListTasksRequest())
    assert len(page.tasks) == DEFAULT_PAGE
    return page


async def _seconds(store):
    began = time.perf_counter()
    await _first_page(store)
    return time.perf_counter() - began


# ------------------------------------------------------------------ a2a-sdk


def _stores_of_the_sdk(bench, size, database):
    sqlite = f"sqlite+aiosqlite:///{bench.directory / f'tasks-{size}.db'}"
    with contextlib.ExitStack() as stack:
        wheres = {
            "a2a-sdk, in memory": "memory",
            "a2a-sdk, SQLite": sqlite,
            "a2a-sdk, PostgreSQL": f"postgresql+asyncpg{database(f'tasks-{size}')}",
        }
        asked = {name: stack.enter_context(_asking(where, size)) for name, where in wheres.items()}
        for ask in asked.values():
            ask()
        for name in bench.alternate(asked, f"{size:,} tasks in a2a-sdk's stores"):
            bench.record(PAGE, name, asked[name](), "s", size=size)


@contextlib.contextmanager
def _asking(where, size):
    """A filled store in a process of its own; yields what has it list once, and tells the seconds."""
    command = [environments.python("a2a-sdk"), PEER, where, str(size)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, **pipes, env=environment(PYTHONPATH=str(REPOSITORY))) as process:
        assert process.stdout.readline() == "ready\n"

        def ask():
            process.stdin.write("list\n")
            return float(process.stdout.readline())

        yield ask
        process.stdin.close()
