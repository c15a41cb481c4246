"""`a2a-gcs migrate --from`: what it prints, counts and refuses; what it makes is tested in `unit/migration`."""

import asyncio
import json
import sqlite3

import pytest

from a2a_gcs.objectstore import open_store
from tests.support.hosts import Bucket
from tests.support.legacy import gemini, keep_file, packed, workspace


@pytest.fixture
def old(tmp_path):
    """A copy of a bucket in the old layout."""
    keep_file(tmp_path / "old", "one", packed(gemini("completed", "c")), workspace(notes_txt="kept"), at=1_700_000_000)
    keep_file(tmp_path / "old", "two", packed(gemini("working", "c")), at=1_700_000_001)
    keep_file(tmp_path / "old", "three", packed(gemini("input-required")), at=1_700_000_002)
    return f"file:{tmp_path / 'old'}"


@pytest.fixture
def target(tmp_path):
    return f"file:{tmp_path / 'new'}"


def keys(uri):
    async def listed():
        async with open_store(uri) as store:
            return [info.key for info in (await store.list("")).objects]

    return asyncio.run(listed())


def test_it_moves_and_tells_what_it_moved(run, old, target):
    """For people; a second run moves nothing, and is a success too."""
    result = run("migrate", "--from", old, "--store", target)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        f"moved 3 of 3 tasks in 2 contexts, with 1 workspace ({len(workspace(notes_txt='kept'))} bytes); "
        "1 ended as failed, as nothing runs them; 1 given a context, as they had none\n"
    )
    before = keys(target)
    assert len(before) == 3 + 3 + 1 + 2
    again = run("migrate", "--from", old, "--store", target)
    assert (again.exit_code, again.stdout.split(";")[:2]) == (
        0,
        ["moved 0 of 3 tasks in 2 contexts, with 0 workspaces (0 bytes)", " 3 there already"],
    )
    assert keys(target) == before


def test_a_dry_run_counts_the_same_and_writes_nothing(run, old, target):
    """As one line of JSON."""
    dry = json.loads(run("migrate", "--from", old, "--store", target, "--dry-run", "--json").stdout)
    assert keys(target) == []
    done = json.loads(run("migrate", "--from", old, "--store", target, "--json").stdout)
    assert dry.pop("dryRun") is True
    assert done.pop("dryRun") is False
    assert dry == done
    assert done == {
        "from": old,
        "root": "",
        "contexts": 2,
        "tasks": 3,
        "moved": 3,
        "alreadyThere": 0,
        "failed": 1,
        "mintedContexts": 1,
        "workspaces": 1,
        "bytes": done["bytes"],
        "problems": [],
    }


def test_what_cannot_be_moved_is_status_1_and_named(run, old, target, tmp_path):
    """Each with its reason on stderr, or in the JSON; the rest is moved."""
    keep_file(tmp_path / "old", "broken", b"no gzip")
    result = run("migrate", "--from", old, "--store", target, "--root", "users/alice%40example.org")
    assert result.exit_code == 1
    assert result.stdout.startswith("moved 3 of 3 tasks")
    assert result.stderr.startswith("not moved: tasks/broken/metadata.tar.gz: it is not gzipped")
    assert {key.partition("/contexts/")[0].partition("/tasks/")[0] for key in keys(target)} == {
        "users/alice%40example.org"
    }
    again = run("migrate", "--from", old, "--store", target, "--root", "users/alice%40example.org", "--json")
    [problem] = json.loads(again.stdout)["problems"]
    assert problem["what"] == "tasks/broken/metadata.tar.gz"


def test_it_refuses_while_a_host_runs(run, old, target):
    """Status 1, the host is named, nothing is written; with --force it is, and a dry run only reads."""

    async def live():
        async with open_store(target) as store:
            await Bucket(store).host("busy-host")

    asyncio.run(live())
    result = run("migrate", "--from", old, "--store", target)
    assert result.exit_code == 1
    assert "busy-host" in result.stderr
    assert keys(target) == ["hosts/busy-host.json"]
    assert run("migrate", "--from", old, "--store", target, "--dry-run").exit_code == 0
    assert run("migrate", "--from", old, "--store", target, "--force").exit_code == 0


def test_an_empty_source_is_told(run, target, tmp_path):
    """Status 0."""
    (tmp_path / "empty").mkdir()
    result = run("migrate", "--from", f"file:{tmp_path / 'empty'}", "--store", target)
    assert (result.exit_code, result.stdout) == (0, "there are no tasks to move\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--from, to bring in"),
        (("--from", "file:/x", "--to-root", "users/a"), "--from, to bring in"),
        (("--from", "file:/nowhere/at/all"), "no directory"),
        (("--from", "file:"), "--from takes gs://"),
        (("--from", "s3://b"), "gs://bucket[/prefix], file:<dir>"),
        (("--from", "sqlite:////nowhere/at.all"), "no SQLite database"),
        (("--from", "{old}", "--root", "alice"), "users/<owner>"),
    ],
)
def test_bad_usage_is_told(run, old, target, words, says):
    """Status 2."""
    result = run("migrate", *(word.format(old=old) for word in words), "--store", target)
    assert result.exit_code == 2
    assert says in result.stderr
    assert keys(target) == []


def test_a_store_in_memory_is_no_target(run, old):
    """Status 2."""
    assert run("migrate", "--from", old, "--store", "memory").exit_code == 2


def test_a_database_may_have_another_table_and_several_owners(run, target, tmp_path):
    """--table, --owner and --by-owner; without one of the two, several owners are refused."""
    path = tmp_path / "tasks.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (id VARCHAR, context_id VARCHAR, owner VARCHAR, status JSON)")
        rows = [("t1", "c", "alice", '{"state": "completed"}'), ("t2", "c", "bob", '{"state": "completed"}')]
        connection.executemany("INSERT INTO mine VALUES (?, ?, ?, ?)", rows)
    connection.close()
    words = ("migrate", "--from", f"sqlite:///{path}", "--table", "mine", "--store", target)
    refused = run(*words)
    assert refused.exit_code == 1
    assert "--by-owner" in refused.stderr
    assert keys(target) == []
    assert run(*words, "--owner", "bob").exit_code == 0
    assert "tasks/t2/contextId.txt" in keys(target)
    assert run(*words, "--by-owner").exit_code == 0
    assert {"users/alice/tasks/t1/contextId.txt", "users/bob/tasks/t2/contextId.txt"} < set(keys(target))
    nested = run(*words, "--by-owner", "--root", "agents/w/users/alice")
    assert (nested.exit_code, "names one owner already" in nested.stderr) == (2, True)


def test_one_owner_who_cannot_have_a_root_stops_nobody_else(run, target, tmp_path):
    """Reported, and the others' tasks are moved."""
    path = tmp_path / "tasks.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE tasks (id VARCHAR, context_id VARCHAR, owner VARCHAR, status JSON)")
        rows = [("t1", "c", "a" * 241, '{"state": "completed"}'), ("t2", "c", "bob", '{"state": "completed"}')]
        connection.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?)", rows)
    connection.close()
    result = run("migrate", "--from", f"sqlite:///{path}", "--by-owner", "--store", target)
    assert result.exit_code == 1
    assert "not moved: task t1: its owner cannot have a root" in result.stderr
    assert {key.split("/tasks")[0] for key in keys(target) if "/tasks/" in key} == {"users/bob"}


def test_what_a_source_calls_its_tasks_does_nothing_to_a_terminal(run, target, tmp_path):
    """A name of the source is escaped where it is told."""
    keep_file(tmp_path / "old", "\x1b]0;owned\x07\u202e", b"no archive")
    result = run("migrate", "--from", f"file:{tmp_path / 'old'}", "--store", target)
    assert result.exit_code == 1
    assert result.stderr.rstrip("\n").isprintable()
    assert "\\x1b]0;owned\\x07\\u202e" in result.stderr
