"""Hosts that die, are stopped, or freeze: what was answered stays, and what was running ends and frees its context."""

import asyncio
from urllib.parse import quote

import httpx
import pytest

from tests.integration.conftest import LEASE, SCRIPTED
from tests.support.a2a_http import Refused
from tests.support.waiting import until

SEND_AGAIN = {"CONTEXT_BUSY", "STORE_UNAVAILABLE"}
"""Why a message is refused while a context is busy, and by a host that has woken up, or was held up, before its next
heartbeat."""


@pytest.fixture(params=["gcs", "file"])
def place(request, make_place):
    return make_place(request.param)


async def test_kill_between_two_steps_loses_nothing(place, hosts, connect, fresh, tmp_path):
    """kill -9 after every answer: each task reads back as it was answered, and the journal holds every message."""
    host, answered = hosts(place), []
    for text in ("hello", "write notes.txt kept", "read journal.md"):
        answered.append(await connect(host).send(text, context=fresh))
        host.kill()
        host.restart()
    client = connect(host)
    assert [(await client.get(task.id)).raw for task in answered] == [task.raw for task in answered]
    assert answered[-1].text == "1. hello\n2. write notes.txt kept\n3. read journal.md\n"
    assert set(await place.keys()) == {
        f"contexts/{fresh}/context.json",
        *(f"contexts/{fresh}/{task.id}/task.json" for task in answered),
        *(f"contexts/{fresh}/{task.id}/workspace.tar.gz" for task in answered),
        *(f"tasks/{task.id}/contextId.txt" for task in answered),
    }
    assert (await place.read(f"tasks/{answered[0].id}/contextId.txt")).decode() == fresh
    stored = await place.read_json(f"contexts/{fresh}/{answered[0].id}/task.json")
    assert (stored["id"], stored["status"]["state"]) == (answered[0].id, "TASK_STATE_COMPLETED")
    await _opens_with_tar(place, f"contexts/{fresh}/{answered[-1].id}/workspace.tar.gz", answered[-1].text, tmp_path)


async def _opens_with_tar(place, key, journal, directory):
    """The system's own tar opens the archive, whose object is application/gzip and has no Content-Encoding."""
    (directory / "w.tar.gz").write_bytes(await place.read(key))
    (directory / "w").mkdir()
    tar = await asyncio.create_subprocess_exec("tar", "xzf", directory / "w.tar.gz", "-C", directory / "w")
    assert await tar.wait() == 0
    assert (directory / "w/journal.md").read_text() == journal
    assert (directory / "w/notes.txt").read_text() == "kept"
    async with place.open() as store:
        assert (await store.head(key)).content_type == "application/gzip"
    if place.env:
        bucket = place.uri.removeprefix("gs://")
        url = f"{place.env['STORAGE_EMULATOR_HOST']}/storage/v1/b/{bucket}/o/{quote(key, safe='')}"
        async with httpx.AsyncClient(timeout=60) as http:
            resource = (await http.get(url)).json()
        assert resource["contentType"] == "application/gzip"
        assert not resource.get("contentEncoding")


async def test_a_question_survives_kill(place, hosts, connect, fresh):
    """Park, kill -9, start again: new tasks are still refused, the answer completes the task, with its history."""
    host = hosts(place)
    asked = await connect(host).send("ask why?", context=fresh)
    host.kill()
    client = connect(host.restart())
    with pytest.raises(Refused) as refused:
        await client.send("hello", context=fresh)
    assert refused.value.data["activeTaskId"] == asked.id
    again = await client.send("ask and how?", task=asked.id)
    host.kill()
    client = connect(host.restart())
    done = await client.send("like this", task=asked.id)
    assert again.state == "input-required"
    assert (done.id, done.state, done.text) == (asked.id, "completed", "journal.md holds 3 messages")
    assert done.said == ["ask why?", "ask and how?", "like this"]


async def test_killed_in_mid_run(place, hosts, connect, fresh, tmp_path):
    """kill -9 while a task runs: after the lease it is FAILED with what it had made, and its context is free."""
    host, other = hosts(place, count=2, agent=SCRIPTED, lease_seconds=LEASE)
    a, b = connect(host), connect(other)
    await a.send("hello", context=fresh)
    task = (await a.send(f"hold {tmp_path / 'never'}", context=fresh, at_once=True)).id
    await until(lambda: _artifacts(b, task), what="the artifact on the other host")
    host.kill()
    after = await until(lambda: _accepted(b, fresh), what="the end of the lease")
    ended = await b.get(task)
    assert (ended.state, ended.artifacts) == ("failed", {"early": "before"})
    assert "stopped before the task was done" in ended.text
    assert after.text == "journal.md holds 2 messages"  # that of the completed task, and its own
    assert (await connect(host.restart()).get(task)).raw == ended.raw


async def _artifacts(client, task):
    return (await client.get(task)).artifacts


async def _accepted(client, context):
    """The answer to a message once the context takes one; until then every refusal says to send again."""
    try:
        return await client.send("hello", context=context)
    except Refused as refused:
        if refused.data.get("reason") not in SEND_AGAIN:
            raise
        return None


async def test_stopped_in_mid_run_and_told_to_fail(place, hosts, connect, fresh, tmp_path):
    """SIGTERM with on_shutdown=fail: the task is terminal and its context free, with no lease to wait for."""
    host, other = hosts(place, count=2, agent=SCRIPTED, on_shutdown="fail")
    b = connect(other)
    task = (await connect(host).send(f"hold {tmp_path / 'never'}", context=fresh, at_once=True)).id
    await until(lambda: _artifacts(b, task))
    assert host.terminate() == 0
    ended = await b.get(task)
    assert (ended.state, ended.artifacts) == ("failed", {"early": "before"})
    assert (await b.send("hello", context=fresh)).text == "journal.md holds 1 message"


async def test_stopped_in_mid_run(place, hosts, connect, fresh, tmp_path):
    """SIGTERM: the task is parked with its files, the context says so, and another host goes on with it."""
    host, other = hosts(place, count=2, agent=SCRIPTED)
    b = connect(other)
    task = (await connect(host).send(f"hold {tmp_path / 'never'}", context=fresh, at_once=True)).id
    await until(lambda: _artifacts(b, task))
    assert len(await place.heartbeats()) == 2
    assert host.terminate() == 0
    assert (await b.get(task)).state == "input-required"
    with pytest.raises(Refused) as refused:
        await b.send("hello", context=fresh)
    assert refused.value.data["state"] == "TASK_STATE_INPUT_REQUIRED"
    done = await b.send("read held.txt", task=task)
    assert (done.state, done.text) == ("completed", str(tmp_path / "never"))
    assert done.artifacts["early"] == "before"
    assert len(await place.heartbeats()) == 1  # the stopped host took its own with it


async def test_a_host_that_was_suspended_past_its_lease_moves_nothing_backwards(place, hosts, connect, fresh, tmp_path):
    """While it slept its task was settled and the next one begun: awake again, it changes neither, and works on."""
    host, other = hosts(place, count=2, agent=SCRIPTED, lease_seconds=LEASE)
    a, b, ticks = connect(host), connect(other), tmp_path / "ticks"
    task = (await a.send(f"tick {ticks}", context=fresh, at_once=True)).id
    await until(ticks.exists)
    host.suspend()
    next_task = await until(lambda: _begun(b, fresh, tmp_path / "gate"), what="the end of the lease")
    ended = await b.get(task)
    assert ended.state == "failed"
    before = await place.versions(f"contexts/{fresh}/{task}/")
    host.resume()
    await until(lambda: ticks.read_text().endswith("stopped\n"), what="the end of the agent on the stale host")
    await until(lambda: "heartbeat.lapsed" in host.errors())
    await until(lambda: _accepted(a, f"{fresh}-other"), what="work on the host that woke up")
    assert (await a.get(task)).raw == ended.raw
    with pytest.raises(Refused) as refused:
        await a.send("hello", context=fresh)
    assert refused.value.data["activeTaskId"] == next_task
    (tmp_path / "gate").touch()
    done = await until(lambda: _done(b, next_task))
    assert (done.state, done.artifacts) == ("completed", {"early": "before"})
    assert await place.versions(f"contexts/{fresh}/{task}/") == before


async def _begun(client, context, gate):
    try:
        return (await client.send(f"hold {gate}", context=context, at_once=True)).id
    except Refused as refused:
        if refused.data.get("reason") not in SEND_AGAIN:
            raise
        return None


async def _done(client, task):
    read = await client.get(task)
    return read if read.state in ("completed", "failed", "canceled") else None


async def test_an_agent_that_blocks_the_event_loop_keeps_its_task(place, hosts, connect, fresh):
    """Longer than the lease, while another host looks at it all the time: the heartbeat has a thread of its own."""
    host, other = hosts(place, count=2, agent=SCRIPTED, lease_seconds=LEASE)
    a, b = connect(host), connect(other)
    answer = asyncio.create_task(a.send(f"block {LEASE + 2}", context=fresh))
    task = await until(lambda: _listed(b, fresh))
    seen = [(await b.get(task)).state]
    while not answer.done():
        seen.append((await b.get(task)).state)
        await asyncio.wait({answer}, timeout=0.1)
    assert ((await answer).state, (await answer).text) == ("completed", "blocked")
    assert set(seen) <= {"submitted", "working", "completed"}
    assert (await b.get(task)).raw == (await answer).raw


async def _listed(client, context):
    return next((task["id"] for task in (await client.list(contextId=context))["tasks"]), None)


async def test_a_turn_that_never_ends_is_ended(place, hosts, connect, fresh):
    """With max_run_seconds a hung task fails, says why, and frees its context."""
    client = connect(hosts(place, max_run_seconds=3))
    hung = await client.send("sleep 60", context=fresh)
    assert (hung.state, (await client.get(hung.id)).raw) == ("failed", hung.raw)
    assert hung.text
    assert (await client.send("hello", context=fresh)).state == "completed"
