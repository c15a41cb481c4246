"""A root that was moved goes on under its new setting: files, waiting tasks, parts, and what was listed."""

import itertools
import json
import random
import re
import shlex
import subprocess

import pytest

from a2a_gcs.errors import Unavailable
from a2a_gcs.layout import parse_task, workspace_key
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.workspaces.snapshots import WHOLE
from tests.support.a2a_http import A2AClient
from tests.support.auth_hosts import TOKEN, TOKENS
from tests.support.faulty_store import FaultyStore
from tests.support.host_process import COMMAND, HostProcess, environment
from tests.support.host_thread import serve_in_thread
from tests.support.moving import KEPT, fill, move, picture

STEPS = [("compose", 1), ("compose", 20), ("put", 1), ("put", 2), ("delete", 1), ("delete", 20)]
AGENTS = ({"name": "writer", "agent": "demo"},)


def command(place, *arguments):
    """Runs `a2a-gcs`: status, stdout and stderr."""
    done = subprocess.run(
        [COMMAND, *arguments, "--store", place.uri],
        env=environment(**place.env),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


async def leave_tasks(client):
    """A context whose last completed task left files, and one whose task waits."""
    await client.send("write notes.txt first", context="c")
    failed = await client.send("fail on purpose", context="c")
    last = await client.send("write notes.txt second", context="c")
    waiting = await client.send("ask what?", context="w")
    return failed, last, waiting


async def expect_continued(client, failed, last, waiting):
    """What was left is all there, and goes on."""
    assert [(await client.get(one.id)).state for one in (failed, last, waiting)] == [
        "failed",
        "completed",
        "input-required",
    ]
    assert (await client.send("read notes.txt", context="c")).artifacts["read"].strip() == "second"
    answered = await client.send("an answer", task=waiting.id)
    assert answered.state == "completed"
    assert (await client.send("read journal.md", context="w")).artifacts["read"].count("\n") == 3
    assert {task["id"] for task in (await client.list())["tasks"]} >= {failed.id, last.id, waiting.id}


@pytest.mark.parametrize("kind", ["file", "gcs"])
async def test_the_command_that_serve_names_makes_it_start_again(hosts, make_place, tmp_path, kind):
    """Authentication is turned on: serve refuses, `migrate` as named moves, and the owner goes on."""
    place = make_place(kind)
    host = hosts(place)
    async with A2AClient(host.url) as client:
        left = await leave_tasks(client)
        status, _, errors = command(place, "migrate", "--to-root", "users/alice")
        assert status == 1
        assert "hosts run over this bucket" in errors
    host.terminate()

    refused = HostProcess(place, log=tmp_path / "refused", **TOKENS)
    with pytest.raises(AssertionError, match="did not start"):
        refused.start()
    [named] = re.findall(r"`a2a-gcs (migrate [^`]*) --store URI`", refused.errors().replace("\n", " "))
    status, out, errors = command(place, *shlex.split(named.replace("<owner>", "alice")), "--json")
    assert status == 0, errors
    assert json.loads(out)["tasks"] == 4

    async with A2AClient(hosts(place, **TOKENS).url) as client:
        client.http.headers["Authorization"] = f"Bearer {TOKEN}"
        await expect_continued(client, *left)
    assert all(key.startswith("users/alice/") for key in await place.keys())


@pytest.mark.parametrize("kind", ["file", "gcs"])
async def test_a_move_that_broke_off_is_completed(make_place, tmp_path, kind):
    """Over a directory and over GCS's rules, at some writes of each sort; in memory it is tried at each."""
    place = make_place(kind)
    async with place.open() as store:
        for (op, nth), when in zip(STEPS, itertools.cycle(("after", "before")), strict=False):
            root = f"tenants/{op}-{nth}-{when}"
            old = PrefixStore(store, root)
            await fill(tmp_path, old)
            before = await picture(old, "")
            faulty = FaultyStore(store)
            fault = faulty.fail(op, nth=nth, when=when)
            with pytest.raises(Unavailable):
                await move(faulty, root, f"{root}/users/alice")
            assert fault.served
            await move(store, root, f"{root}/users/alice")
            assert await picture(store, root) == {}
            after = await picture(store, f"{root}/users/alice")
            del after[KEPT]
            assert after == before


async def test_a_root_in_memory_goes_on_as_an_agents(tmp_path):
    """From the bucket's prefix itself to agents/writer, once a second agent may come."""
    store = MemoryStore()
    with serve_in_thread(store, work_dir=tmp_path / "a") as host:
        async with A2AClient(host.url) as client:
            left = await leave_tasks(client)
    await move(store, "", "agents/writer")
    with serve_in_thread(store, work_dir=tmp_path / "b", agents=AGENTS) as host:
        async with A2AClient(f"{host.url}/writer") as client:
            await expect_continued(client, *left)


async def test_a_workspace_in_parts_is_moved_with_its_parts(hosts, make_place, tmp_path):
    """Composed archives keep their bytes and tables: the next task changes a file, and uploads few parts."""
    place = make_place("gcs")
    host = hosts(place)
    text = random.Random(3).randbytes((WHOLE * 3) // 4).hex()
    async with A2AClient(host.url) as client:
        await client.send(f"write large.txt {text}", context="c")
    host.terminate()
    before = await place.objects()
    assert any("/parts/" in key for key in before)
    status, _, errors = command(place, "migrate", "--to-root", "users/alice")
    assert status == 0, errors

    after = {key.removeprefix("users/alice/"): info for key, info in (await place.objects()).items()}
    assert set(after) == set(before)
    [ref] = [parse_task(key) for key in before if parse_task(key)]
    archive = workspace_key(ref)
    assert after[archive].crc32c == before[archive].crc32c
    assert after[archive].metadata["tail"] == before[archive].metadata["tail"]
    async with A2AClient(hosts(place, **TOKENS).url) as client:
        client.http.headers["Authorization"] = f"Bearer {TOKEN}"
        assert (await client.send("write small.txt x", context="c")).state == "completed"
    parts = set(await place.keys("users/alice/contexts/c/parts/"))
    new = parts - {f"users/alice/{key}" for key in before}
    assert 1 <= len(new) < len(parts) / 2
