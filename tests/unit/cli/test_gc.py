"""`a2a-gcs gc`: what it prints, asks and refuses; what it removes is tested in `tests/unit/retention`."""

import asyncio
import json

import pytest

from a2a_gcs.layout import workspace_key
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.records import Pin
from tests.support.behind import keys, within
from tests.support.hosts import INPUT_REQUIRED, Bucket

NOW = ("--longest-run-hours", "0")


@pytest.fixture
def uri(tmp_path):
    """A store with a context of two tasks, alone and below users/alice; no host runs."""
    uri = f"file:{tmp_path / 'store'}"

    async def fill():
        async with open_store(uri) as store:
            for below in (store, PrefixStore(store, "users/alice")):
                host = await Bucket(below).host("h")
                for _ in range(2):
                    claim = await host.start("ctx")
                    info = await below.put(workspace_key(claim.ref), b"files", IF_ABSENT)
                    await host.end(claim, pin=Pin(info.version, info.crc32c))
                await host.index.drained()
                await host.die()

    asyncio.run(fill())
    return uri


@pytest.fixture
def gc(run, uri):
    """Runs it; its status, and what it says."""

    def call(*arguments, **env):
        result = run("gc", "--store", uri, *arguments, **env)
        return result.exit_code, result.stdout.strip(), result.stderr.strip()

    return call


def test_without_rules_only_leftovers_go(gc, uri):
    """Tasks and contexts are kept for ever unless somebody says otherwise."""
    before = keys(uri)
    assert gc(*NOW) == (0, "nothing to remove", "")
    assert keys(uri) == before


def test_a_dry_run_says_what_would_go(gc, uri):
    """The same counts as the run."""
    before = keys(uri)
    status, told, _ = gc(*NOW, "--retain-tasks-days", "0", "--dry-run")
    assert status == 0
    assert told.startswith("would remove 3 objects (")
    assert told.endswith(" bytes): 1 task")
    assert keys(uri) == before
    assert gc(*NOW, "--retain-tasks-days", "0")[1] == told.replace("would remove", "removed")
    assert len(keys(uri)) == len(before) - 3


def test_rules_come_from_the_environment_too(gc, uri):
    """As a scheduled job has them; failed tasks are kept as long as completed ones."""
    env = {"A2A_GCS_RETAIN_CONTEXTS_DAYS": "0", "A2A_GCS_LONGEST_RUN_HOURS": "0"}
    status, told, _ = gc("--all-roots", "--json", **env)
    counts = json.loads(told)
    assert status == 0
    assert (counts["root"], counts["dryRun"]) == (None, False)
    assert (counts["contexts"], counts["tasks"], counts["objects"], counts["changed"]) == (2, 4, 14, 0)
    assert keys(uri) == []


@pytest.mark.parametrize(
    ("options", "left"), [((), "users/alice/"), (("--root", "users/alice"), ("contexts/", "tasks/"))]
)
def test_one_root_at_a_time(gc, uri, options, left):
    """The bucket's prefix itself, or the one that is named."""
    gc(*NOW, "--retain-contexts-days", "0", *options)
    assert len(keys(uri)) == 7
    assert all(key.startswith(left) for key in keys(uri))


def test_an_owner_is_deleted_after_a_question(run, uri):
    """A no changes nothing; `--yes` does not ask."""
    before = keys(uri)
    arguments = ["gc", "--store", uri, "--delete-root", "users/alice"]
    refused = run(*arguments, input="n\n")
    assert refused.exit_code == 1
    assert "Delete all contexts below users/alice" in refused.stderr
    assert keys(uri) == before
    done = run(*arguments, "--yes", "--json")
    assert json.loads(done.stdout)["contexts"] == 1
    assert keys(uri) == [key for key in before if not key.startswith("users/")]


def test_a_context_is_deleted(gc, uri):
    """One of the root that is named; another time it is not there."""
    assert gc("--delete-context", "ctx", "--yes")[1].endswith("1 context, 2 tasks")
    assert [key for key in keys(uri) if not key.startswith("users/")] == []
    status, told, error = gc("--delete-context", "ctx", "--yes")
    assert (status, told) == (1, "nothing to remove")
    assert error == "error: there is no context 'ctx' below this root"


def test_what_runs_is_named(gc, uri):
    """And the rest is done."""

    async def begin(store):
        host = await Bucket(store).host("h")
        await host.park(await host.start("waits"), INPUT_REQUIRED)
        claim = await host.start("runs")
        await host.index.drained()
        await host.beat()
        return claim.ref

    ref = within(uri, begin)
    status, told, error = gc("--delete-root", "/", "--yes")
    assert status == 1
    assert f"its task {ref.task_id!r} runs" in error
    assert told.endswith("2 contexts, 3 tasks")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--root", "users/a", "--all-roots"), "exclude each other"),
        (("--delete-root", "users/a", "--root", "users/b"), "exclude each other"),
        (("--delete-context", "c", "--all-roots"), "takes one root"),
        (("--root", "user/a"), "--root: 'user/a' is no root"),
        (("--delete-root", "", "--yes"), "--delete-root: '' is no root; / is the bucket's prefix itself"),
        (("--root", ""), "--root: '' is no root"),
        (("--store", "memory"), "is its host's alone"),
    ],
)
def test_what_makes_no_sense_is_refused(gc, arguments, says):
    """With the status of a wrong call."""
    status, _, error = gc(*arguments)
    assert status == 2
    assert says in error
