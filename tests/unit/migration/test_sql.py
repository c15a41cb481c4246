"""Databases that a2a-sdk's own stores wrote are read with all that they hold, and never written."""

import asyncio
import hashlib
import json
import sqlite3

import pytest
from a2a.compat.v0_3.model_conversions import core_to_compat_task_model
from a2a.types.a2a_pb2 import Task, TaskState
from google.protobuf.json_format import ParseDict

from a2a_gcs.errors import ConfigError
from a2a_gcs.layout import context_key
from a2a_gcs.migration.location import open_source
from a2a_gcs.migration.migration import Migration
from a2a_gcs.migration.report import MigrationRefused
from a2a_gcs.migration.source import Problem, context_of
from a2a_gcs.objectstore import MemoryStore, PrefixStore
from a2a_gcs.records import ContextRecord
from a2a_gcs.task_records import TaskRecords
from tests.support.legacy import save_in_sql


def made(task_id, state, at, context="c"):
    """A task with everything that a task can have."""
    said = {"messageId": f"{task_id}-1", "role": "ROLE_USER", "parts": [{"text": "hé"}], "metadata": {"k": [1, "x"]}}
    return ParseDict(
        {
            "id": task_id,
            "contextId": context,
            "status": {
                "state": state,
                "timestamp": f"2025-01-01T00:00:{at:02}.250Z",
                "message": {"messageId": f"{task_id}-s", "role": "ROLE_AGENT", "parts": [{"text": "so"}]},
            },
            "history": [{**said, "taskId": task_id, "contextId": context}],
            "artifacts": [
                {"artifactId": "a", "name": "n", "parts": [{"data": {"n": 1}}, {"url": "https://x.invalid/f"}]}
            ],
            "metadata": {"deep": {"er": [True, None, 1.5]}},
        },
        Task(),
    )


TASKS = [
    made("one", "TASK_STATE_COMPLETED", 1),
    made("two", "TASK_STATE_WORKING", 2),
    made("three", "TASK_STATE_INPUT_REQUIRED", 3),
    made("four", "TASK_STATE_COMPLETED", 4, context="d"),
]


@pytest.fixture
def database(tmp_path):
    """Path of a database file, and its URL for stores of the SDK."""
    path = tmp_path / "old tasks.db"
    return path, f"sqlite+aiosqlite:///{path}"


async def run(url, target, *, dry=False, table="tasks", **options):
    source = open_source(url, table=table)
    try:
        migration = Migration(source, target, **options)
        return await migration.run(await migration.plan(), dry=dry)
    finally:
        await source.close()


async def stored(target, task_id):
    return (await TaskRecords(target).find(task_id)).task


@pytest.mark.parametrize("form", ["plain", "versioned", "0.3"])
async def test_a_database_of_the_sdk_moves_with_all_it_holds(database, form):
    path, url = database
    conversion = core_to_compat_task_model if form == "0.3" else None
    await asyncio.to_thread(save_in_sql, url, TASKS, versioned=form == "versioned", conversion=conversion)
    before = hashlib.sha256(path.read_bytes()).hexdigest()

    target = MemoryStore()
    report = await run(f"sqlite:///{path}", target)
    assert (report.contexts, report.moved, report.failed, report.problems) == (2, 4, 1, [])
    for task in TASKS:
        after = await stored(target, task.id)
        if task.id == "two":
            assert after.status.state == TaskState.TASK_STATE_FAILED
            assert [message.message_id for message in after.history] == ["two-1", "two-s"]
            assert after.artifacts == task.artifacts
        else:
            assert after == task
    record = ContextRecord.parse("c", (await target.get(context_key("c"))).body)
    assert (record.active.task_id, record.last_completed) == ("three", None)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before

    again = await run(url, target)
    assert (again.moved, again.present, again.problems) == (0, 4, [])


def write_rows(path, rows, columns="id, context_id, status"):
    """A table of an early release, which had fewer columns."""
    with sqlite3.connect(path) as connection:
        kinds = ", ".join(f"{name} {'JSON' if name == 'status' else 'VARCHAR'}" for name in columns.split(", "))
        connection.execute(f"CREATE TABLE old ({kinds})")
        connection.executemany(f"INSERT INTO old VALUES ({', '.join('?' * len(columns.split(', ')))})", rows)
    connection.close()


async def test_rows_that_are_no_tasks_are_told_and_the_rest_moves(database):
    path, _ = database
    good = json.dumps({"state": "completed", "timestamp": "2025-01-01T00:00:00"})
    rows = [
        ("a", "c", good),
        ("b", "", good),
        ("x", "c", '{"state": "paused"}'),
        ("y", "c", "{"),
        ("z" * 300, "c", good),
    ]
    write_rows(path, rows)
    target = MemoryStore()
    report = await run(f"sqlite:///{path}", target, table="old")
    assert (report.moved, report.minted) == (2, 1)
    assert [problem.what[:9] for problem in report.problems] == ["row 'x' o", "row 'y' o", "row 'zzzz"]
    assert all(isinstance(problem, Problem) and problem.why for problem in report.problems)
    assert (await stored(target, "b")).context_id == context_of("b")


async def test_owners_do_not_see_each_others_tasks(database):
    """Several owners below one root are refused; each below its own, or one of them, is what can be had."""
    _, url = database
    for owner, task in (("alice@example.org", TASKS[0]), ("bob", TASKS[3]), ("", TASKS[2])):
        await asyncio.to_thread(save_in_sql, url, [task], owner=owner)
    target = MemoryStore()
    with pytest.raises(MigrationRefused, match="3 owners"):
        await run(url, target)
    assert (await target.list("")).objects == []

    await run(url, target, by_owner=True, root="agents/w")
    keys = {"/".join(info.key.split("/")[:4]) for info in (await target.list("")).objects}
    assert {key for key in keys if "users" in key} == {"agents/w/users/alice%40example.org", "agents/w/users/bob"}
    assert (await stored(PrefixStore(target, "agents/w"), "three")).id == "three"

    one = MemoryStore()
    assert (await run(url, one, owner="bob")).moved == 1
    assert (await stored(one, "four")).id == "four"


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("sqlite:////nowhere/x.db", "no SQLite database"),
        ("sqlite://", "no SQLite database"),
        ("sqlite:///{path}", "no table 'tasks'"),
        ("postgresql:/", "no database URL"),
        ("mysql://h/d", "--from takes"),
        ("file:/nowhere/at/all", "no directory"),
        ("s3://bucket", "--from takes gs://"),
    ],
)
def test_what_is_no_source_is_bad_usage_that_names_the_forms(database, where, why):
    path, _ = database
    write_rows(path, [])
    with pytest.raises(ConfigError, match=why):
        open_source(where.format(path=path))


def test_a_password_is_shown_nowhere(database):
    for where in ("postgresql://me:hunter2@127.0.0.1:1/db", "postgresql://me:hunter2@[/db"):
        with pytest.raises(Exception, match=r"^(?!.*hunter2)"):
            open_source(where)
