"""`a2a-gcs migrate`: what it prints, counts and refuses; how a root moves is tested in `test_relocation`."""

import asyncio
import json

import pytest

from a2a_gcs.layout import workspace_key
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.behind import keys, within
from tests.support.hosts import Bucket


@pytest.fixture
def uri(tmp_path):
    """A store in which a host that is gone has left two tasks of one context."""
    uri = f"file:{tmp_path / 'store'}"

    async def fill():
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "notes.txt").write_text("kept")
        async with open_store(uri) as store:
            host = await Bucket(store).host("h")
            for _ in range(2):
                claim = await host.start("ctx")
                saved = await Snapshots(store).save(tmp_path / "tree", workspace_key(claim.ref), replaces=0)
                await host.end(claim, pin=saved.pin)
            await host.die()

    asyncio.run(fill())
    return uri


def test_it_moves_and_tells_what_it_moved(run, uri):
    """Counts for people; another run finds nothing, and is a success too."""
    before = keys(uri)
    result = run("migrate", "--store", uri, "--to-root", "users/alice%40example.org")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("moved 7 objects (")
    assert result.stdout.endswith(
        "2 tasks of 1 contexts) from the bucket's prefix itself to users/alice%40example.org; "
        "copied 7, 0 were copied already\n"
    )
    assert keys(uri) == [f"users/alice%40example.org/{key}" for key in before]
    again = run("migrate", "--store", uri, "--to-root", "users/alice%40example.org")
    assert (again.exit_code, again.stdout) == (
        0,
        "nothing is stored below the bucket's prefix itself: there is nothing to move\n",
    )
    back = run("migrate", "--store", uri, "--from-root", "users/alice%40example.org/", "--to-root", "/")
    assert back.exit_code == 0
    assert keys(uri) == before


def test_a_dry_run_counts_and_changes_nothing(run, uri):
    """The same counts, as one line of JSON."""
    before = keys(uri)
    result = run("migrate", "--store", uri, "--to-root", "agents/writer", "--dry-run", "--json")
    counts = json.loads(result.stdout)
    size = counts.pop("bytes")
    assert size > 500
    assert counts == {
        "from": "",
        "to": "agents/writer",
        "contexts": 1,
        "tasks": 2,
        "objects": 7,
        "alreadyCopied": 0,
        "copied": 0,
        "deleted": 0,
        "dryRun": True,
    }
    assert keys(uri) == before
    done = json.loads(run("migrate", "--store", uri, "--to-root", "agents/writer", "--json").stdout)
    assert (done["copied"], done["deleted"], done["bytes"]) == (7, 7, size)


def test_it_refuses_while_a_host_runs(run, uri):
    """Status 1, the host is named, nothing is moved; with --force it is, and a dry run only reads."""

    async def live(store):
        await Bucket(store).host("busy-host")

    within(uri, live)
    before = keys(uri)
    result = run("migrate", "--store", uri, "--to-root", "users/alice")
    assert result.exit_code == 1
    assert "busy-host" in result.stderr
    assert keys(uri) == before
    assert run("migrate", "--store", uri, "--to-root", "users/alice", "--dry-run").exit_code == 0
    assert run("migrate", "--store", uri, "--to-root", "users/alice", "--force").exit_code == 0
    assert keys(uri)[0] == "hosts/busy-host.json"


def test_it_refuses_where_there_is_other_data(run, uri):
    """Status 1, and one line that names both keys."""

    async def other(store):
        await store.put("users/alice/contexts/ctx/context.json", b"{}", OVERWRITE)

    within(uri, other)
    result = run("migrate", "--store", uri, "--to-root", "users/alice")
    assert result.exit_code == 1
    assert "users/alice/contexts/ctx/context.json is there already" in result.stderr


@pytest.mark.parametrize(
    ("root", "says"),
    [
        ("alice", "users/<owner>"),
        ("users", "users/<owner>"),
        ("users/a/agents/b", "in this order"),
        ("tenants//users/a", "no root"),
        ("agents/a/agents/b", "no root"),
        ("tasks/t", "no root"),
        ("users/alice@example.org", "users/alice%40example.org".removeprefix("users/")),
        ("/", "nothing to move"),
        ("", "--to-root: '' is no root; / is the bucket's prefix itself"),
    ],
)
def test_a_root_that_is_none_is_bad_usage(run, uri, root, says):
    """Status 2; the message tells the form, or how the id is stored."""
    before = keys(uri)
    result = run("migrate", "--store", uri, "--to-root", root)
    assert result.exit_code == 2
    assert says in result.stderr
    assert keys(uri) == before


def test_a_store_in_memory_has_nothing_to_move(run):
    """Status 2."""
    assert run("migrate", "--store", "memory", "--to-root", "users/a").exit_code == 2
