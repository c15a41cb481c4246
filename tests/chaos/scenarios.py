"""Directed scenarios: each brings two hosts to the moment at which one rule of the protocol counts.

Every one of them passes on the product, and leaves a trace without a violation. What a broken host does in
it shows in the trace, or fails an assertion here where only a deadline can tell.
"""

from __future__ import annotations

import asyncio
import json
import time

from fake_gcs.faults import Fault
from tests.chaos.clients import state_of, task_of
from tests.support.waiting import until

SOON = 30.0
CANCEL_SECONDS = 2.0
"""A cancel takes effect within 2 s, wherever the task runs; a busy machine adds its own."""
BUSY = 4.0


def background(work):
    """Runs a call beside the scenario."""
    return asyncio.create_task(work)


async def started(world, host, text, context, **options):
    """A task whose agent is at work; its id."""
    call = await world.clients.send(host, text, context=context, at_once=True, **options)
    task = task_of(call)
    assert task, f"it was not accepted: {call}"
    await until(lambda: [e for e in world.agent_log() if e["task"] == task], what="the agent's start")
    return task


async def accepted(world, host, context, text="work 1", seconds=None):
    """Sends until a new task is accepted; its id. The limit is I6's."""
    limit = seconds or 2 * world.lease + 15
    deadline = time.monotonic() + limit
    while True:
        call = await world.clients.send(host, text, context=context, at_once=not text.startswith("work"))
        if task_of(call) and not call["error"]:
            return task_of(call)
        assert time.monotonic() < deadline, f"context {context} took no task within {limit} s: {call['error']}"
        await asyncio.sleep(0.2)


async def closed(world, context, task, state="", seconds=SOON):
    """Waits until a task's turn has ended in the bucket; its metadata."""

    def look():
        record = world.record(context, task)
        return record if record and record["open"] == "0" and state in record["state"] else None

    return await until(look, seconds=seconds, what=f"the end of {task}")


async def stopped(world, task, host, seconds):
    """Waits until the task's agent has stopped on a host."""

    def look():
        return [e for e in world.agent_log() if (e["task"], e["host"], e["what"]) == (task, host.name, "stop")]

    await until(look, seconds=seconds, what=f"the stop of the agent of {task} on {host.name}")


async def first_task(world, context, known=()):
    """The id of a task that the bucket shows in a context, besides the known ones."""
    await until(lambda: world.tasks(context).keys() - set(known), what=f"a task in {context}")
    return (world.tasks(context).keys() - set(known)).pop()


async def chunks(world, task, count):
    """Waits until the agent has sent so many chunks."""
    await until(
        lambda: any(e.get("chunk", 0) >= count for e in world.agent_log() if e["task"] == task), what=f"{count} chunks"
    )


def creates(request):
    return request.query.get("ifGenerationMatch") == "0"


def completes(request):
    return b"TASK_STATE_COMPLETED" in request.body


def looks_at(request):
    return request.query.get("alt") != "media"


# ---------------------------------------------------------------------- a day without trouble


async def story(world):
    """Tasks of every kind in one context, on two hosts, one after the other, with subscribers on both."""
    a, b = await world.start("a", "b")
    clients, context = world.clients, "tale"
    first = await clients.send(a, "work 5 50", context=context)
    asking = background(clients.stream(a, "ask 6 150", context=context))
    task = await first_task(world, context, {task_of(first)})
    await asyncio.gather(asking, clients.subscribe(a, task), clients.subscribe(b, task))
    listening = background(clients.subscribe(a, task))
    await asyncio.gather(clients.stream(b, "work 6 150", task=task), listening)
    await clients.send(a, "fail 2", context=context)
    again = await clients.send(b, "work 5 50", context=context, message_id=first["message_id"])
    assert task_of(again) == task_of(first), f"a repeat was answered with another task: {again}"
    await clients.send(b, "work 1", context=context)
    await canceled_midway(world, a, b, context)
    last = await clients.send(a, "work 1", context=context)
    assert state_of(last) == "completed", f"the story ends badly: {last}"


async def canceled_midway(world, running, other, context):
    """A streaming task, followed from another host, and canceled there."""
    known = set(world.tasks(context))
    stream = background(world.clients.stream(running, "work 60 60", context=context))
    task = await first_task(world, context, known)
    following = [background(world.clients.subscribe(host, task)) for host in (running, other)]
    await chunks(world, task, 20)
    await world.clients.cancel(other, task)
    await asyncio.gather(stream, *following)


# ---------------------------------------------------------------------- claims


async def rush(world, rounds=2):
    """20 messages to one fresh context at once: exactly one is accepted, and completes."""
    a, b = await world.start("a", "b")
    for n in range(rounds):
        calls = await asyncio.gather(
            *(world.clients.send((a, b)[i % 2], "silent 1", context=f"rush-{n}") for i in range(20))
        )
        states = [state_of(call) for call in calls if call["told"]]
        assert states == ["completed"], f"of 20 messages these were accepted: {states}"


async def claim_whose_save_is_late(world):
    """A host dies with the creation of its task on the way; the context is taken over; then the creation lands."""
    a, b = await world.start("a", "b")
    late = a.wire.script("late", "POST", "task.json", where=creates)
    a.wire.script("refuse", "POST", "task.json", times=1000)
    sending = background(world.clients.send(a, "silent 5", context="late", at_once=True))
    await until(late.reached.is_set, what="the creation of task.json")
    await a.kill()
    await sending
    task = await accepted(world, b, "late", "silent 3")
    late.release()
    await until(late.landed.is_set, what="the late creation")
    await closed(world, "late", task, "COMPLETED")


async def claim_given_up(world):
    """A claim is made, its answer is lost, and the host gives the request up: nobody else is blocked by it."""
    a, b = await world.start("a", "b", store_budget_seconds=2)
    lost = a.wire.script("lose", "POST", "context.json")
    refused = [a.wire.script("refuse", method, "context.json", times=1000) for method in ("POST", "GET")]
    refused[1].times = 0
    sending = background(world.clients.send(a, "work 1", context="given"))
    await until(lost.landed.is_set, what="the claim")
    refused[1].times = 1000
    call = await sending
    assert call["error"], f"it cannot have been accepted: {call}"
    a.wire.forget()
    await accepted(world, b, "given")


async def claim_given_up_and_settled(world):
    """The same, while the host takes back the pointer late, if it does at all."""
    a, b = await world.start("a", "b", store_budget_seconds=2)
    taking_back = a.wire.script("hold", "DELETE", "contextId.txt")
    lost = a.wire.script("lose", "POST", "context.json")
    refused = a.wire.script("refuse", "POST", "context.json", times=1000)
    looking = a.wire.script("refuse", "GET", "context.json", times=0)
    sending = background(world.clients.send(a, "work 1", context="back"))
    await until(lost.landed.is_set, what="the claim")
    looking.times = 1000
    await until(lambda: sending.done() or taking_back.reached.is_set(), what="the end of the claim")
    refused.times = looking.times = 0
    await accepted(world, b, "back")
    taking_back.release()
    await sending


async def message_answer(world):
    """Agents that answer with a Message leave the context free, and no task."""
    a, b = await world.start("a", "b", answers="message")
    for host in (a, b, a):
        call = await world.clients.send(host, "message hello", context="talk")
        assert [t["kind"] for t in call["told"]] == ["message"], f"no Message: {call}"


async def message_while_judged(world):
    """A claim is given back for a Message between somebody's look at it and the verdict: no task comes of it."""
    a, b = await world.start("a", "b", answers="message")
    releasing = a.wire.script("hold", "POST", "context.json", where=lambda r: not creates(r))
    first = background(world.clients.send(a, "message hello", context="judged"))
    await until(releasing.reached.is_set, what="the release")
    owner = json.loads(world.body("contexts/judged/context.json"))["active"]["owner"].partition("/")[0]
    judging = b.wire.script("hold", "GET", f"hosts/{owner}.json", where=lambda r: not looks_at(r))
    second = background(world.clients.send(b, "message hello", context="judged"))
    await until(judging.reached.is_set, what="the look at the heartbeat")
    releasing.release()
    await first
    await until(lambda: _lists_nothing(world, owner), what="a heartbeat without the claim")
    judging.release()
    await second


def _lists_nothing(world, host):
    """Whether a host's heartbeat was renewed after its claim was given back."""
    beat = json.loads(world.body(f"hosts/{host}.json"))
    return beat["next"] > 1 and not beat["open"]


async def repeat_before_the_task(world):
    """A host dies between its claim and its task; the client sends the same message to another host."""
    a, b = await world.start("a", "b")
    held = a.wire.script("hold", "POST", "task.json", where=creates)
    sending = background(world.clients.send(a, "work 1", context="again", message_id="m-1", at_once=True))
    await until(held.reached.is_set, what="the creation of task.json")
    await a.kill()
    await sending
    for _ in range(3):
        await world.clients.send(b, "work 1", context="again", message_id="m-1")
    await accepted(world, b, "again")


# ---------------------------------------------------------------------- turns


async def two_answers(world):
    """Two hosts answer one parked task at once: one wins, the other is refused."""
    a, b = await world.start("a", "b")
    task = task_of(await world.clients.send(a, "ask 1", context="asked"))
    held = b.wire.script("hold", "POST", "task.json")
    second = background(world.clients.send(b, "silent 2", task=task))
    await until(held.reached.is_set, what="the second answer's claim")
    first = background(world.clients.send(a, "silent 2", task=task))
    await until(lambda: world.record("asked", task)["turn"] == "2", what="the first answer's claim")
    held.release()
    calls = await asyncio.gather(first, second)
    assert [state_of(c) for c in calls] == ["completed", ""], f"both answers: {calls}"


async def answer_while_open(world):
    """An answer to a task whose turn was claimed just now, and whose state is input-required still."""
    a, b = await world.start("a", "b")
    task = task_of(await world.clients.send(a, "ask 1", context="open"))
    working = a.wire.script("hold", "POST", "task.json", where=lambda r: b'"TASK_STATE_WORKING"' in r.body)
    first = background(world.clients.send(a, "silent 1", task=task))
    await until(lambda: world.record("open", task)["turn"] == "2", what="the answer's claim")
    second = await world.clients.send(b, "silent 1", task=task)
    working.release()
    await first
    assert second["error"], f"a second answer was accepted: {second}"


async def parked_host_dies(world):
    """A parked task outlives its host, and is answered elsewhere."""
    a, b = await world.start("a", "b")
    task = task_of(await world.clients.send(a, "ask 2", context="parked"))
    await a.kill()
    deadline = time.monotonic() + world.lease + 3
    while time.monotonic() < deadline:
        await world.clients.get(b, task)
        await asyncio.sleep(0.5)
    call = await world.clients.send(b, "work 2", task=task)
    assert state_of(call) == "completed", f"the answer: {call}"


# ---------------------------------------------------------------------- stale hosts


async def killed_while_streaming(world):
    """kill -9 in the middle of a stream: the context is free in time, and what was journaled is kept."""
    a, b = await world.start("a", "b")
    stream = background(world.clients.stream(a, "work 1000 40", context="killed"))
    task = await first_task(world, "killed")
    await chunks(world, task, 60)
    await a.kill()
    await stream
    await accepted(world, b, "killed")
    call = await world.clients.get(b, task)
    assert state_of(call) == "failed", f"the task of the dead host: {call}"


async def late_end(world):
    """A task is canceled while the write that completes it is on its way."""
    a, b = await world.start("a", "b")
    held = a.wire.script("hold", "POST", "task.json", where=completes)
    stream = background(world.clients.stream(a, "work 3", context="ending"))
    await until(held.reached.is_set, what="the end of the task")
    task = next(iter(world.tasks("ending")))
    call = await world.clients.cancel(b, task)
    assert state_of(call) == "canceled", f"the cancel: {call}"
    held.release()
    await stream
    await until(held.landed.is_set, what="the held write")
    await stopped(world, task, a, SOON)
    call = await world.clients.get(a, task)
    assert state_of(call) == "canceled", f"a canceled task: {call}"


async def late_archive(world):
    """An archive's upload breaks off, is repeated, and the first one lands once the task is parked."""
    a, b = await world.start("a", "b")
    late = a.wire.script("late", "POST", "workspace.tar.gz")
    call = await world.clients.send(a, "ask 2", context="archive")
    assert late.reached.is_set(), "no upload was met"
    late.release()
    await until(late.landed.is_set, what="the late upload")
    call = await world.clients.send(b, "work 1", task=task_of(call))
    assert state_of(call) == "completed", f"the answer: {call}"


async def silent_agent_canceled(world):
    """An agent that says nothing stops within seconds of a cancel on another host."""
    a, b = await world.start("a", "b")
    task = await started(world, a, "silent 20", "silence")
    first = world.record("silence", task)
    await until(lambda: world.record("silence", task) != first, what="the last write before the silence")
    call = await world.clients.cancel(b, task)
    assert state_of(call) == "canceled", f"the cancel: {call}"
    await stopped(world, task, a, CANCEL_SECONDS + BUSY)


async def read_after_cancel(world):
    """Whoever asks the running host after a cancel elsewhere is not told of the state before."""
    a, b = await world.start("a", "b")
    task = await started(world, a, "silent 20", "reading")
    looking = a.wire.script("hold", "GET", "task.json", times=1000)
    await world.clients.cancel(b, task)
    reading = background(world.clients.get(a, task))
    await asyncio.wait({reading}, timeout=1.0)
    a.wire.forget()
    call = await reading
    assert looking.reached.is_set(), "the running host never looked at the record"
    assert state_of(call) == "canceled", f"after the cancel: {call}"


async def cancel_meets_progress(world):
    """A cancel's write is overtaken by the running host: nothing of what it stored is lost."""
    a, b = await world.start("a", "b")
    stream = background(world.clients.stream(a, "work 1000 40", context="overtaken"))
    task = await first_task(world, "overtaken")
    await chunks(world, task, 20)
    held = b.wire.script("hold", "POST", "task.json")
    canceling = background(world.clients.cancel(b, task))
    await until(held.reached.is_set, what="the cancel's write")
    before = world.record("overtaken", task)["seq"]
    await until(lambda: world.record("overtaken", task)["seq"] != before, what="a newer task.json")
    held.release()
    await asyncio.gather(stream, canceling)


async def parted_from_the_bucket(world):
    """A host that cannot reach the bucket for its lease stops its agents, and others take over."""
    a, b = await world.start("a", "b")
    task = await started(world, a, "silent 60", "parted")
    a.cut()
    await stopped(world, task, a, world.lease + BUSY)
    await accepted(world, b, "parted")
    a.heal()
    call = await world.clients.get(a, task)
    assert state_of(call) == "failed", f"the host that was cut off: {call}"


async def work_after_a_lapse(world):
    """A host whose lease has run out takes no work before it has renewed it: nobody would let it finish."""
    a, b = await world.start("a", "b")
    for method in ("GET", "POST"):
        a.wire.script("refuse", method, "hosts/", times=1000)

    async def refused():
        call = await world.clients.send(a, "work 1", context="lapsed", at_once=True)
        return call["error"] and call["error"]["data"].get("reason") == "STORE_UNAVAILABLE"

    await until(refused, what="a refusal, the lease having run out")
    a.wire.forget()
    task = await accepted(world, a, "lapsed", "silent 1")
    await world.clients.get(b, task)
    await closed(world, "lapsed", task, "COMPLETED")


# ---------------------------------------------------------------------- order, streams


async def end_is_held(world):
    """While the write that completes a task is on its way nobody hears of the end, on no host."""
    a, b = await world.start("a", "b")
    held = a.wire.script("hold", "POST", "task.json", where=completes)
    stream = background(world.clients.stream(a, "work 4 600", context="held"))
    task = await first_task(world, "held")
    following = background(world.clients.subscribe(b, task))
    await until(held.reached.is_set, what="the end of the task")
    await asyncio.wait({stream, following}, timeout=3.0, return_when=asyncio.FIRST_COMPLETED)
    held.release()
    await asyncio.gather(stream, following)


async def reader_between_batches(world):
    """A subscriber elsewhere misses a batch, and looks at the record only when the turn has ended."""
    a, b = await world.start("a", "b")
    stream = background(world.clients.stream(a, "work 8 500", context="between"))
    task = await first_task(world, "between")
    following = background(world.clients.subscribe(b, task))
    await until(lambda: any(t["kind"] == "artifact" for t in world.clients.calls[-1]["told"]), what="a chunk on b")
    held = b.wire.script("hold", "GET", "task.json", where=lambda r: looks_at(r) and "events" in b.wire.before.key)
    await until(held.reached.is_set, what="the reader's look at the record")
    await closed(world, "between", task, "COMPLETED")
    held.release()
    await asyncio.gather(stream, following)


async def lost_answers(world):
    """Writes whose answers are lost count as done: the task completes, and the context goes on."""
    a, _ = await world.start("a", "b")
    for n, key in enumerate(("context.json", "contextId.txt", "task.json", "workspace.tar.gz", ".events.json")):
        lost = a.wire.script("lose", "POST", key)
        call = await world.clients.stream(a, "work 3 200", context="lost")
        assert lost.landed.is_set(), f"no write of {key} was met"
        assert state_of(call) == "completed", f"task {n}, with the answer about {key} lost: {call}"


async def host_is_stopped(world):
    """SIGTERM parks a silent task with its files; the next host continues it."""
    a, b = await world.start("a", "b")
    task = await started(world, a, "silent 60", "deploy")
    seconds, status = await a.terminate()
    assert (status, seconds < 8 + BUSY) == (0, True), f"exit {status} after {seconds:.1f} s"
    assert world.record("deploy", task)["state"] == "TASK_STATE_INPUT_REQUIRED"
    call = await world.clients.send(b, "work 1", task=task)
    assert state_of(call) == "completed", f"the answer: {call}"


async def everything_at_once_is_drained(world):
    """SIGTERM meets a blocking send, streams here and elsewhere, a silent agent, a parked task and short work."""
    a, b = await world.start("a", "b")
    clients = world.clients
    waiting = task_of(await clients.send(a, "ask 2", context="drain-parked"))
    silent = await started(world, a, "silent 60", "drain-silent")
    blocking = background(clients.send(a, "silent 60", context="drain-send"))
    streaming = background(clients.stream(a, "work 1000 80", context="drain-stream"))
    task = await first_task(world, "drain-stream")
    here, there = (background(clients.subscribe(host, task)) for host in (a, b))
    await first_task(world, "drain-send")
    await chunks(world, task, 10)
    parked = world.record("drain-parked", waiting)
    short = background(clients.send(a, "silent 0.4", context="drain-short"))
    await first_task(world, "drain-short")
    seconds, status = await a.terminate()
    assert (status, seconds < 8 + BUSY) == (0, True), f"exit {status} after {seconds:.1f} s"
    calls = await asyncio.gather(blocking, streaming, here, there)
    assert [state_of(call) for call in calls] == ["input-required"] * 4, f"what the clients were told last: {calls}"
    assert all(call["ended"] for call in calls), "a stream was cut instead of finished"
    assert state_of(await short) == "completed", f"short work: {await short}"
    assert world.record("drain-parked", waiting) == parked, "a parked task was touched"
    for one in (task_of(calls[0]), task, silent, waiting):
        call = await clients.send(b, "work 2", task=one)
        assert state_of(call) == "completed", f"the next host: {call}"


async def drained_without_the_bucket(world, *, silently=False):
    """SIGTERM on a host that cannot reach the bucket: it ends in time all the same, and others end its task."""
    a, b = await world.start("a", "b")
    context = f"cut-{silently}"
    await started(world, a, "silent 60", context)
    a.cut(silently=silently)
    seconds, _ = await a.terminate()
    assert seconds < 8 + BUSY, f"it took {seconds:.1f} s"
    await accepted(world, b, context)


async def drained_in_silence(world):
    """The same, where the bucket does not refuse connections, but never answers."""
    await drained_without_the_bucket(world, silently=True)


async def silent_bucket(world):
    """A host whose bucket never answers stops its agents within its lease, and goes on once it is back."""
    a, b = await world.start("a", "b")
    task = await started(world, a, "silent 60", "hushed")
    a.cut(silently=True)
    await stopped(world, task, a, world.lease + BUSY)
    await accepted(world, b, "hushed")
    a.heal()
    await a.ready()
    assert state_of(await world.clients.get(a, task)) == "failed"
    await accepted(world, a, "hushed")


async def drained_with_deaf_agents(world):
    """SIGTERM meets agents that do not stop, as a coroutine and in a thread: their tasks are parked all the same."""
    a, b = await world.start("a", "b")
    tasks = [await started(world, a, "deaf 60", "deaf"), await started(world, a, "thread 60", "thread")]
    seconds, status = await a.terminate()
    assert (status, seconds < 8 + BUSY) == (0, True), f"exit {status} after {seconds:.1f} s"
    for task in tasks:
        call = await world.clients.send(b, "work 1", task=task)
        assert state_of(call) == "completed", f"the answer: {call}"


async def host_fails_its_tasks(world):
    """With on_shutdown = fail SIGTERM fails what runs, says why, and frees the context."""
    (host,) = await world.start("fails", on_shutdown="fail")
    (b,) = await world.start("b")
    stream = background(world.clients.stream(host, "silent 60", context="failing"))
    task = await first_task(world, "failing")
    await until(lambda: [e for e in world.agent_log() if e["task"] == task], what="the agent's start")
    await host.terminate()
    call = await stream
    assert (state_of(call), call["ended"]) == ("failed", True), f"the stream: {call}"
    assert "restarted" in call["told"][-1]["text"]
    await accepted(world, b, "failing", seconds=BUSY)


# ---------------------------------------------------------------------- deadlines, storage


async def ran_too_long(world):
    """A run that passes max_run_seconds fails, says so, and frees the context."""
    (host,) = await world.start("strict", max_run_seconds=2, max_wait_seconds=3)
    call = await world.clients.send(host, "silent 60", context="long")
    assert state_of(call) == "failed", f"a run of 60 s: {call}"
    assert "max_run_seconds" in call["told"][0]["text"]
    await accepted(world, host, "long", seconds=BUSY)


async def waited_too_long(world):
    """A parked task that passes max_wait_seconds fails for whoever looks, on any host, and frees the context."""
    (host,) = await world.start("strict", max_run_seconds=2, max_wait_seconds=3)
    (b,) = await world.start("b")
    task = task_of(await world.clients.send(host, "ask 1", context="waiting"))

    async def look():
        call = await world.clients.get(b, task)
        return call if state_of(call) == "failed" else None

    call = await until(look, what="the end of the wait")
    assert "max_wait_seconds" in call["told"][0]["text"]
    await accepted(world, b, "waiting", seconds=BUSY)


async def bucket_in_trouble(world):
    """While the bucket answers 503 a request fails with an error that says retry; afterwards it succeeds."""
    (host,) = await world.start("hasty", store_budget_seconds=2)
    world.fault(Fault("status", key="contexts/trouble/*", status=503, times=None, bucket=world.bucket))
    call = await world.clients.send(host, "work 1", context="trouble", message_id="m-trouble")
    assert (call["error"] or {}).get("data", {}).get("reason") == "STORE_UNAVAILABLE", f"the refusal: {call}"
    assert "again" in call["error"]["message"]
    world.faultless()
    await accepted(world, host, "trouble")


async def end_that_cannot_be_written(world):
    """A task whose end the bucket does not take goes on trying, and reports success only once it is stored."""
    (a,) = await world.start("a")
    refused = a.wire.script("refuse", "POST", "task.json", times=1000, where=completes)
    stream = background(world.clients.stream(a, "work 3", context="stubborn"))
    await until(refused.reached.is_set, what="the end of the task")
    done, _ = await asyncio.wait({stream}, timeout=3.0)
    assert not done, f"told before it was stored: {await stream}"
    a.wire.forget()
    assert state_of(await stream) == "completed"


# ---------------------------------------------------------------------- frozen, blocked


async def nobody_looks(world):
    """A task of a dead host that nobody touches is ended all the same, by the sweep of another host."""
    a, _ = await world.start("a", "b")
    task = await started(world, a, "silent 60", "unseen")
    await until(lambda: task in _listed(world), what="a heartbeat that lists the task")
    await a.kill()
    await closed(world, "unseen", task, "FAILED", seconds=world.lease + 3 * world.lease + SOON / 2)


def _listed(world):
    """The claims on all heartbeats, as text."""
    keys = {w["key"] for w in world.gateway.history(world.bucket, "hosts/")}
    return "".join((world.body(key) or b"").decode() for key in keys)


async def frozen_past_its_lease(world):
    """A host is suspended for longer than its lease; another one takes over; it wakes, and changes nothing."""
    a, b = await world.start("a", "b")
    stream = background(world.clients.stream(a, "work 1000 40", context="frozen"))
    task = await first_task(world, "frozen")
    following = background(world.clients.subscribe(b, task))
    await chunks(world, task, 20)
    a.suspend()
    other = await accepted(world, b, "frozen", "silent 2")
    assert state_of(await world.clients.get(b, task)) == "failed"
    a.resume()
    await stopped(world, task, a, SOON)
    call = await world.clients.get(a, task)
    assert state_of(call) == "failed", f"the host that woke: {call}"
    await closed(world, "frozen", other, "COMPLETED")
    await asyncio.gather(stream, following)


async def blocking_agent_canceled(world):
    """An agent that blocks its host's loop keeps its task, and a cancel elsewhere is stored at once."""
    a, b = await world.start("a", "b")
    sending = background(world.clients.stream(a, "block 6", context="blocked"))
    task = await first_task(world, "blocked")
    await until(lambda: [e for e in world.agent_log() if e["task"] == task and e["what"] == "tick"], what="the block")
    began = time.monotonic()
    call = await world.clients.cancel(b, task)
    assert state_of(call) == "canceled", f"the cancel: {call}"
    assert time.monotonic() - began < CANCEL_SECONDS + BUSY
    assert not [e for e in world.agent_log() if (e["task"], e["what"]) == (task, "stop")], "it did not block"
    await stopped(world, task, a, SOON)
    assert state_of(await sending) == "canceled"
