"""What other servers have kept is served after `a2a-gcs migrate --from`, also if it was killed on the way."""

import asyncio
import json
import signal

import pytest
from a2a.types.a2a_pb2 import Task
from google.protobuf.json_format import ParseDict

from a2a_gcs.migration.files import BucketFiles
from a2a_gcs.migration.migration import Migration
from a2a_gcs.migration.old_layout import OldLayout
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.task_records import TaskRecords
from fake_gcs.faults import Fault
from tests.support.a2a_http import A2AClient, Refused
from tests.support.host_process import environment
from tests.support.host_thread import serve_in_thread
from tests.support.hosts import Clock
from tests.support.legacy import gemini, keep, packed, packed_in_tar, save_in_sql, workspace
from tests.support.moving import picture
from tests.support.postgres import serving
from tests.support.preloaded import fork
from tests.support.waiting import until

POINTS = [
    "*/context.json",
    "contexts/c/two/workspace.tar.gz",
    "tasks/three/contextId.txt",
    "contexts/c/three/task.json",
    "contexts/c/context.json",
]
"""Before these writes a run is killed, one after the other."""


async def fill(store, clock=None):
    """Tasks as gemini-cli's a2a-server has kept them."""
    for task_id, state, context, text in (
        ("one", "completed", "c", "first"),
        ("two", "completed", "c", "second"),
        ("three", "working", "c", "third"),
        ("four", "input-required", "d", "asked"),
        ("five", "completed", None, "alone"),
    ):
        if clock is not None:
            clock.now += 1
        pack = packed_in_tar if task_id == "two" else packed
        await keep(store, task_id, pack(gemini(state, context)), workspace(notes_txt=text))


def begun(source, place, out):
    """A running `migrate --from` over a place; what it prints goes to a file."""
    words = ["migrate", "--from", source, "--store", place.uri, "--json"]
    with out.open("wb") as stdout, out.with_suffix(".errors").open("wb") as errors:
        env = environment(**place.env)
        return fork(words, stdout=stdout.fileno(), stderr=errors.fileno(), cwd=out.parent, env=env)


def told(source, place, out):
    """What it prints when it goes through."""
    status = begun(source, place, out).wait(60)
    assert status == 0, out.read_text() + out.with_suffix(".errors").read_text()
    return json.loads(out.read_text())


async def test_tasks_of_gemini_cli_go_on(tmp_path):
    """The next task finds the last completed files, the waiting task its answer; all are listed with their states."""
    clock = Clock()
    old, new = MemoryStore(now=clock), MemoryStore()
    await fill(old, clock)
    migration = Migration(OldLayout(BucketFiles(old), "old"), new)
    await migration.run(await migration.plan())
    with serve_in_thread(new, work_dir=tmp_path) as host:
        async with A2AClient(host.url) as client:
            listed = {task["id"]: task["status"]["state"] for task in (await client.list())["tasks"]}
            assert {state.removeprefix("TASK_STATE_") for state in listed.values()} == {
                "COMPLETED",
                "FAILED",
                "INPUT_REQUIRED",
            }
            assert set(listed) == {"one", "two", "three", "four", "five"}
            assert "migrated while running" in json.dumps((await client.get("three")).raw)
            assert (await client.send("read notes.txt", context="c")).artifacts["read"].strip() == "second"
            with pytest.raises(Refused, match="four"):
                await client.send("read notes.txt", context="d")
            assert (await client.send("read notes.txt", task="four")).artifacts["read"].strip() == "asked"
            assert (await client.send("read notes.txt", context="d")).artifacts["read"].strip() == "asked"


async def test_a_run_that_was_killed_on_the_way_is_completed_by_the_same_command(make_place, emulator, tmp_path):
    """kill -9 at writes of each sort, over the real rules: what is there in the end is what one run would have made."""
    old, broken, whole = make_place("gcs"), make_place("gcs"), make_place("gcs")
    async with old.open() as store:
        await fill(store)
    for point in POINTS:
        bucket = broken.uri.removeprefix("gs://")
        with emulator.faults(Fault("drop", operation="objects.insert", bucket=bucket, key=point, times=None)) as [
            fault
        ]:
            process = begun(old.uri, broken, tmp_path / "killed")
            await until(lambda fault=fault: fault.served, what=f"the write of {point}")
            process.send_signal(signal.SIGKILL)
            process.wait(60)
    told(old.uri, broken, tmp_path / "repeated")
    assert told(old.uri, whole, tmp_path / "whole")["moved"] == 5
    async with broken.open() as after, whole.open() as expected:
        assert await picture(after, "") == await picture(expected, "")
    versions = await broken.versions()
    again = told(old.uri, broken, tmp_path / "again")
    assert (again["moved"], again["alreadyThere"], again["problems"]) == (0, 5, [])
    assert await broken.versions() == versions


@pytest.fixture(scope="module")
def postgres():
    with serving() as make_database:
        yield make_database


@pytest.mark.parametrize("versioned", [False, True])
async def test_a_postgresql_database_of_the_sdk_moves(make_place, postgres, tmp_path, versioned):
    """Both of the SDK's stores; nothing of the database is changed, and its URL may name the SDK's driver."""
    where = postgres(f"versioned_{versioned}")
    tasks = [
        ParseDict(
            {
                "id": f"t{n}",
                "contextId": "c",
                "status": {"state": state, "timestamp": f"2025-01-01T00:00:0{n}Z"},
                "history": [{"messageId": f"m{n}", "role": "ROLE_USER", "parts": [{"text": "hé"}]}],
                "artifacts": [{"artifactId": "a", "parts": [{"data": {"n": n}}]}],
                "metadata": {"deep": {"er": [True, None, 1.5]}},
            },
            Task(),
        )
        for n, state in enumerate(["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_INPUT_REQUIRED"])
    ]
    url = f"postgresql+psycopg{where}"
    await asyncio.to_thread(save_in_sql, url, tasks, versioned=versioned)
    place = make_place("file")
    assert told(f"postgresql+asyncpg{where}", place, tmp_path / "out")["moved"] == 3
    async with place.open() as store:
        for task in tasks:
            assert (await TaskRecords(store).find(task.id)).task == task
