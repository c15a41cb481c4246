"""A host is killed (kill -9) while it runs silent tasks in several contexts, over a bucket of the emulator.

Counted from the kill: until the task is told as failed by a GetTask, until its context takes a new task, and until a
stream of somebody who subscribed on the other host ends. Each is asked for ten times a second, and by that host alone:
another one, or the killed one itself, started again at once. Numbers are given in seconds and in leases; the lease is a
setting, 30 s by default and 3 s at least. The default one takes a single round, with several tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import aiohttp

from tests.benchmark.load import Client, Refused, clients_of
from tests.benchmark.sends import SHORT
from tests.benchmark.subjects import gateway, host, sdk_servers, together
from tests.support.places import Place

TITLE = "Recovery after kill -9"
DEFAULT_LEASE, SHORT_LEASE = 30, 3
AIM_SECONDS = 60
ANOTHER, SAME = "another host", "the same host, started again"
ASK_SECONDS = 0.1
TASKS = 3


def run(bench):
    leases = (SHORT_LEASE,) if bench.smoke else (DEFAULT_LEASE, SHORT_LEASE)
    with contextlib.ExitStack() as stack:
        emulator, place = stack.enter_context(gateway())
        places = [Place(f"gs://{emulator.create_bucket()}", place.env) for _ in leases]
        groups = [
            together(host(own, bench.directory, lease_seconds=lease) for _ in range(2))
            for lease, own in zip(leases, places, strict=True)
        ]
        *pairs, sdk = stack.enter_context(together([*groups, sdk_servers(bench.directory, 2)]))
        pairs = dict(zip(leases, pairs, strict=True))
        asyncio.run(_measure(bench, pairs, sdk))
    longest = max(max(one.values) for one in bench.results.series if one.unit == "s")
    bench.aim(
        "Longest until a context takes a new task, or its old one is failed", longest, at_most=AIM_SECONDS, unit="s"
    )


async def _measure(bench, pairs, sdk):
    """The default lease, the short one and the SDK side by side: nearly all of it is waiting."""
    slow = [_ours(bench, DEFAULT_LEASE, pairs[DEFAULT_LEASE], ANOTHER)] if DEFAULT_LEASE in pairs else []
    await asyncio.gather(*slow, _short_rounds(bench, pairs[SHORT_LEASE]), _sdk(bench, sdk))


async def _short_rounds(bench, servers):
    for who in bench.alternate((ANOTHER, SAME)):
        await _ours(bench, SHORT_LEASE, servers, who)


async def _ours(bench, lease, servers, who):
    victim, other = (server.process for server in servers)
    if not victim.running:
        await asyncio.to_thread(victim.restart)
    async with Client(victim.url) as client, Client(other.url) as observer:
        tasks = [await client.begin("wait") for _ in range(TASKS)]
        following = []
        if who == ANOTHER:
            following = [asyncio.create_task(_last_state(observer, task["id"])) for task in tasks]
            await asyncio.sleep(ASK_SECONDS)
        began = time.monotonic()
        victim.kill()
        if who == SAME:
            await asyncio.to_thread(victim.restart)
        async with Client((victim if who == SAME else other).url) as asked:
            found = await asyncio.gather(
                *(_told_as_failed(asked, task["id"]) for task in tasks),
                *(_accepted(asked, task["contextId"]) for task in tasks),
                *following,
            )
    what = ["task is failed"] * TASKS + ["context takes a new task"] * TASKS + ["stream has ended"] * len(following)
    subject = f"a2a-gcs, lease {lease} s, {who}"
    for name, moment in zip(what, found, strict=True):
        bench.record(f"until the {name}", subject, moment - began, "s")
        if who == ANOTHER:  # the start of a process is no part of a lease
            bench.record(f"until the {name}, in leases", subject, (moment - began) / lease, "leases")


async def _told_as_failed(client, task_id):
    while client.dialect.state(await client.get(task_id)) != "failed":  # noqa: ASYNC110 - asks another process
        await asyncio.sleep(ASK_SECONDS)
    return time.monotonic()


async def _accepted(client, context_id):
    while True:
        try:
            await client.send(SHORT, contextId=context_id)
        except Refused as refused:
            if "is running" not in str(refused):
                raise
            await asyncio.sleep(ASK_SECONDS)
        else:
            return time.monotonic()


async def _last_state(client, task_id):
    state = ""
    async for event in client.subscribe(task_id):
        told = event.get("statusUpdate") or event.get("task")
        state = client.dialect.state(told) if told else state
    assert state == "failed", state
    return time.monotonic()


async def _sdk(bench, servers):
    """What a2a-sdk makes of the same, within a bound: there is nothing that would end the task."""
    bound = 5 if bench.smoke else DEFAULT_LEASE
    async with clients_of(servers) as (client, observer):
        task = await client.begin("wait")
        servers[0].process.kill()
        following = asyncio.create_task(_last_state(observer, task["id"]))
        done, _ = await asyncio.wait({following}, timeout=bound)
        state = observer.dialect.state(await observer.get(task["id"]))
        beside = await observer.send("5 64", contextId=task["contextId"])
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError, AssertionError):
            await following
    ended = "had ended" if done else "still waited, without having heard anything of it"
    bench.note(
        f"a2a-sdk on PostgreSQL, two servers, one of them killed: {bound} s later the other one tells the task as "
        f"{state}, and a stream of it {ended}. It has no leases, so this stays so until somebody ends the task. "
        f"A further task of the context is {observer.dialect.state(beside)} all the same: a running one is no obstacle."
    )
