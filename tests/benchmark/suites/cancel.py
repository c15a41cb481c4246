"""Two hosts share a place. A task runs on one of them, silently, and is canceled through the other.

`answered` is when the client has the canceled task, `stopped` when the agent on the first host has been ended, both
counted from the cancel. A few tasks run at a time, and each is canceled at a moment of its own, as what decides is how
often a host looks after its tasks. With a2a-sdk on PostgreSQL, two servers on one database, the answer is the same, and
whether the agent stops is looked at for twice as long as the aim allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from tests.benchmark.load import Refused, clients_of
from tests.benchmark.subjects import gateway, host, sdk_servers, together
from tests.support.places import Place

TITLE = "Cancel through another host"
AIM_SECONDS = 2.0
PATIENCE_SECONDS = 2 * AIM_SECONDS
LOOK_SECONDS = 0.005
SDK = "a2a-sdk, PostgreSQL"
REASONS = {
    "answered": "CANCELED is in the bucket before a cancel is answered, and stops the agent on the other host; a2a-sdk "
    "changes a row, and the agent runs on."
}


def run(bench):
    with contextlib.ExitStack() as stack:
        _, bucket = stack.enter_context(gateway())
        places = {"a2a-gcs, emulator": bucket, "a2a-gcs, directory": Place(f"file:{bench.directory / 'store'}")}
        groups = {name: together(host(place, bench.directory) for _ in range(2)) for name, place in places.items()}
        groups[SDK] = sdk_servers(bench.directory, 2)
        pairs = dict(zip(groups, stack.enter_context(together(groups.values())), strict=True))
        asyncio.run(_measure(bench, pairs))
    for name in places:
        slowest = max(bench.results.of("agent stopped", name).values)
        bench.aim(f"Slowest stop of an agent ({name})", slowest, at_most=AIM_SECONDS, unit="s")


async def _measure(bench, pairs):
    each = 2 if bench.smoke else 5
    ran_on = []
    async with contextlib.AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(clients_of(servers)) for name, servers in pairs.items()}
        for name in bench.alternate(clients):
            cancels = [_cancel(bench, *clients[name]) for _ in range(1 if name == SDK else each)]
            for answered, stopped in await asyncio.gather(*cancels):
                bench.record("answered", name, answered, "s")
                if stopped is None:
                    ran_on.append(name)
                else:
                    bench.record("agent stopped", name, stopped, "s")
    for name in sorted(set(ran_on)):
        bench.note(
            f"{name}: in {ran_on.count(name)} of {ran_on.count(name) + _stops(bench, name)} cases the agent still ran "
            f"{PATIENCE_SECONDS:g} s after its task had been told as canceled; nothing tells the server that runs it."
        )


def _stops(bench, name):
    with contextlib.suppress(KeyError):
        return len(bench.results.of("agent stopped", name).values)
    return 0


async def _cancel(bench, running, other):
    """Seconds until the answer, and until the agent has stopped; None if it has not within PATIENCE_SECONDS."""
    mark = bench.directory / f"stopped-{bench.random.getrandbits(64):x}"
    task = await running.begin(f"wait {mark}")
    await asyncio.sleep(bench.random.random())
    began = time.monotonic()
    canceled = await other.call(other.dialect.cancel, {"id": task["id"]})
    answered = time.monotonic() - began
    if (state := other.dialect.state(canceled)) != "canceled":
        raise Refused(f"the canceled task is {state}")
    while not mark.exists() and time.monotonic() - began < PATIENCE_SECONDS:  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(LOOK_SECONDS)
    return answered, time.monotonic() - began if mark.exists() else None
