"""Drives hosts, clients and faults at random, from one seed.

What is done, when and to whom is drawn beforehand for every actor; only what it is done to (which task,
as tasks come to be) is looked up at run time. `python -m tests.chaos.driver [SEED [SECONDS [MUTANT]]]` runs it
alone and prints what the checker says.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fake_gcs.faults import Fault
from fake_gcs.process import FakeGcs
from tests.chaos.checker import check
from tests.chaos.clients import state_of, task_of
from tests.chaos.world import World

HOSTS = {"a": 0.0, "b": -2.0, "c": 5.5}
"""Each with how many hours its clock is wrong."""

CONTEXTS = ("red", "green", "blue", "gray")
CLIENTS = 7

UPSETS = 2
"""Kinds of upsets that a run has to have."""

ROUND_SECONDS = 5.0
"""For how long a run goes on that has not had everything yet, before it is looked at again."""


@dataclass(frozen=True)
class Plan:
    """How wild it gets.

    Attributes:
        seconds: How long clients and chaos go on.
        more: For how long they go on in addition at most, until all has happened without which a run proves nothing:
            what comes of the draws depends on the machine.
        faults: Whether the gateway and the wires misbehave.
        upsets: Whether hosts are killed, stopped and cut off.
    """

    seconds: float = 30.0
    more: float = 0.0
    faults: bool = True
    upsets: bool = True


async def drive(world, seed, plan=Plan()):
    """Runs the chaos, then sees that every context takes a task. Returns the trace."""
    await asyncio.gather(*(world.host(n, clock=hours, store_budget_seconds=4) for n, hours in HOSTS.items()))
    world.notes["seed"] = seed
    if plan.faults:
        _misbehave(world, seed)
    clients = [random.Random(f"{seed} client {i}") for i in range(CLIENTS)]
    upsets = [random.Random(f"{seed} upsets")] if plan.upsets else []
    until = time.monotonic() + plan.seconds
    at_most = until + plan.more
    async with asyncio.timeout(plan.seconds + plan.more + 120):
        while True:
            actors = [_client(world, draws, until) for draws in clients] + [_upsets(world, d, until) for d in upsets]
            await asyncio.gather(*actors)
            if until >= at_most or not missing(world.clients.calls, world.events, plan):
                break
            until = min(time.monotonic() + ROUND_SECONDS, at_most)
        await aftermath(world)
    return await world.trace()


def missing(calls, events, plan):
    """What a run lacks in which nothing went wrong and nothing went well, and which so proves nothing; empty: nothing.

    A task for every three seconds planned is little also for a busy machine.
    """
    told = [told for call in calls for told in call["told"]]
    lacks = {"completed", "failed", "canceled", "input-required"} - {t.get("state") for t in told}
    if plan.upsets and len({event["what"] for event in events} - {"start", "heal", "ended", "cont"}) < UPSETS:
        lacks.add("upsets")
    if len({t["task"] for t in told if t.get("task")}) <= plan.seconds / 3:
        lacks.add("tasks")
    return lacks


# ---------------------------------------------------------------------- faults


def _misbehave(world, seed):
    """The faults of the gateway, for all hosts, and those of the wires, for each."""
    every = {"bucket": world.bucket, "times": None, "seed": seed}
    for fault in (
        Fault("status", "objects.insert", status=429, probability=0.02, **every),
        Fault("status", status=503, probability=0.02, **every),
        Fault("commit_and_drop", "objects.insert", probability=0.04, **every),
        Fault("drop", probability=0.01, **every),
        Fault("delay", probability=0.03, seconds=0.4, **every),
        Fault("delay", "objects.insert", key="*/task.json", probability=0.02, seconds=2.5, **every),
        Fault("stall", probability=0.004, seconds=2.0, **every),
    ):
        world.fault(fault)
    for host in world.hosts.values():
        draws = random.Random(f"{seed} wire {host.name}")
        host.wire.chance = _late(draws)


def _late(draws):
    """Some writes break off and land seconds later, when their sender has long tried again."""

    def chance(request):
        if request.method != "POST" or "/hosts/" in request.key:
            return None
        return draws.uniform(0.2, 6.0) if draws.random() < 0.02 else None

    return chance


async def _upsets(world, draws, until):
    """Kills, ends, suspends and cuts off one host after another; most of the time two are there."""
    while time.monotonic() < until:
        await _pause(draws.uniform(0.5, 2.5), until)
        host = world.hosts[draws.choice(list(HOSTS))]
        how = draws.choices(("kill", "term", "blink", "freeze", "part"), (3, 3, 2, 2, 2))[0]
        nap = draws.uniform(0.3, 1.5) if how == "blink" else world.lease + draws.uniform(0.5, 3.0)
        if time.monotonic() > until:
            return
        if how in ("kill", "term"):
            await (host.kill() if how == "kill" else host.terminate())
            await host.start()
        elif how == "part":
            host.cut()
            await _pause(nap, until)
            host.heal()
        else:
            host.suspend()
            await _pause(nap, until)
            host.resume()


async def _pause(seconds, until):
    await asyncio.sleep(max(0.0, min(seconds, until - time.monotonic())))


# ---------------------------------------------------------------------- clients


async def _client(world, draws, until):
    """One client: acts, thinks, acts again, now and then on two hosts at once. It never waits past the end."""
    actions = ("send", "stream", "at_once", "retry", "answer", "cancel", "subscribe", "get", "list", "stream")
    while time.monotonic() < until:
        action = draws.choices(actions, (3, 4, 2, 2, 4, 1.5, 4, 3, 1, 2))[0]
        context, hosts = draws.choice(CONTEXTS), draws.sample(list(HOSTS), 2 if draws.random() < 0.3 else 1)
        pick, text, leaves = draws.random(), _words(draws), draws.random() < 0.4
        patience, think = draws.uniform(0.3, 2.0) if leaves else 15.0, draws.expovariate(4.0)
        serving = {_serving(world, name) for name in hosts} - {None}
        try:
            async with asyncio.timeout(min(patience, until + 3 - time.monotonic())):
                await asyncio.gather(*(_act(world, host, action, context, (pick, text)) for host in serving))
        except TimeoutError:
            pass  # the client has gone
        await _pause(think, until)


def _serving(world, name):
    """The host of that name, or another one while it is not there."""
    if world.hosts[name].serves:
        return world.hosts[name]
    return next((h for h in world.hosts.values() if h.serves), None)


def _words(draws):
    count, pause = draws.choices((draws.randint(1, 12), 40), (6, 1))[0], draws.choice((0, 20, 100, 250))
    return draws.choices(
        (f"work {count} {pause}", f"ask {count} {pause}", f"fail {count}", f"silent {draws.uniform(0.1, 2.5):.1f}"),
        (6, 4, 1, 2),
    )[0]


async def _act(world, host, action, context, drawn):
    clients, (pick, text) = world.clients, drawn
    if action == "send":
        await clients.send(host, text, context=context)
    elif action == "at_once":
        await clients.send(host, text, context=context, at_once=True)
    elif action == "stream":
        await clients.stream(host, text, context=context)
    elif action == "list":
        await clients.list(host, context)
    elif action == "retry":
        sent = [c for c in clients.calls if c["kind"] == "send" and not c["task"] and c["context"] == context][-6:]
        if sent:
            again = sent[int(pick * len(sent))]
            await clients.send(host, again["text"], context=context, message_id=again["message_id"])
    elif task := _task(clients.calls, context, pick, waiting=action == "answer"):
        if action == "answer":
            await clients.stream(host, text, task=task)
        elif action == "subscribe":
            await clients.subscribe(host, task)
        else:
            await getattr(clients, action)(host, task)


def _task(calls, context, pick, *, waiting):
    """A task of a context that some call was told of: mostly the newest, or one that waits for an answer."""
    tasks, states = {}, {}
    for call in calls:
        for told in call["told"]:
            if told.get("task"):
                known = told.get("context") or call.get("context") or tasks.get(told["task"])
                tasks[told["task"]] = known
                states[told["task"]] = told.get("state") or states.get(told["task"])
    found = [t for t, c in tasks.items() if c == context]
    if waiting:
        found = [t for t in found if states[t] == "input-required"]
    return found[-1 - int(pick**3 * min(len(found), 4))] if found else None


# ---------------------------------------------------------------------- afterwards


async def aftermath(world):
    """All faults end, every host dies at work; a fresh one then has to get every context to go on."""
    world.faultless()
    for host in world.hosts.values():
        host.wire.chance = None
        host.wire.forget()
        if host.stopped:
            host.resume()
        host.heal()
    work = zip(CONTEXTS, itertools.cycle(world.hosts.values()), strict=False)
    sending = [world.clients.send(host, "silent 60", context=context, at_once=True) for context, host in work]
    await asyncio.wait(map(asyncio.ensure_future, sending), timeout=3.0)
    await asyncio.gather(*(h.kill() for h in world.hosts.values()))
    world.notes["ended_at"] = time.time()
    world.phase = "after"
    fresh = await world.host("fresh")
    await asyncio.gather(*(_revive(world, fresh, context) for context in CONTEXTS))


async def _revive(world, host, context):
    """Sends until the context takes a task; answers what waits there."""
    deadline = time.monotonic() + 6 * world.lease + 20
    while time.monotonic() < deadline:
        call = await world.clients.send(host, "work 1", context=context)
        if state_of(call) == "completed":
            return
        data = (call["error"] or {}).get("data") or {}
        if data.get("reason") == "CONTEXT_BUSY" and data.get("state") == "TASK_STATE_INPUT_REQUIRED":
            await world.clients.send(host, "work 1", task=data["activeTaskId"])
        await asyncio.sleep(0.3)


def summary(trace):
    """How much happened, in one line: a run in which nothing did proves nothing."""
    calls = Counter(c["kind"] for c in trace["calls"])
    ends = Counter(state_of(c) for c in trace["calls"] if c["ended"])
    errors = Counter((c["error"]["data"] or {}).get("reason", c["error"]["code"]) for c in trace["calls"] if c["error"])
    upsets = Counter(e["what"] for e in trace["events"])
    tasks = {t for c in trace["calls"] if (t := task_of(c))}
    return (
        f"seed {trace.get('seed')}: {len(trace['writes'])} writes, {len(tasks)} tasks, calls {dict(calls)}, "
        f"told last {dict(ends)}, errors {dict(errors)}, hosts {dict(upsets)}"
    )


async def main(seed=1, seconds=30.0, mutant=""):
    with FakeGcs.start(options=("--log-level", "warning")) as gateway:
        directory = Path(tempfile.mkdtemp(prefix="chaos-"))
        async with World(gateway, directory, mutant=mutant) as world:
            trace = await drive(world, seed, Plan(seconds=seconds))
        (directory / "trace.json").write_text(json.dumps(trace))
        found = check(trace)
        print(summary(trace), *found, f"{len(found)} violations; {directory}", sep="\n")  # noqa: T201


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(*(int(x) for x in given[:1]), *(float(x) for x in given[1:2]), *given[2:3]))
