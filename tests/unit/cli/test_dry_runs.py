"""Commands that are asked only to look write nothing: no object, no version of one, and no store where none is."""

import asyncio

import pytest

from a2a_gcs.layout import TaskRef, pointer_key, task_key, workspace_key
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE
from a2a_gcs.records import Pin
from tests.support.hosts import Bucket
from tests.support.legacy import gemini, keep_file, packed

LOOKS = [
    "contexts",
    "tasks",
    "show left",
    "doctor",
    "gc --dry-run --longest-run-hours 0 --retain-tasks-days 0 --retain-contexts-days 0",
    "gc --dry-run --all-roots --longest-run-hours 0 --retain-failed-days 0",
    "gc --dry-run --delete-context ctx",
    "gc --dry-run --delete-root users/alice",
    "migrate --dry-run --to-root users/alice",
    "migrate --dry-run --from file:{old}",
    "workspace ls left",
]


@pytest.fixture
def old(tmp_path):
    keep_file(tmp_path / "old", "one", packed(gemini("working", "moved")), at=1_700_000_000)
    return tmp_path / "old"


@pytest.fixture
def store(tmp_path):
    """What every command has something to do with: ended and running tasks of a dead host, damage, and leftovers."""
    directory = tmp_path / "store"

    async def fill():
        async with open_store(f"file:{directory}") as opened:
            host = await Bucket(opened).host("h")
            claim = await host.start("ctx")
            info = await opened.put(workspace_key(claim.ref), b"files", IF_ABSENT)
            await host.end(claim, pin=Pin(info.version, info.crc32c))
            await host.start("runs")
            await opened.put(pointer_key("left"), b"nowhere", OVERWRITE)
            await opened.put(task_key(TaskRef("damaged", "damaged")), b"{", OVERWRITE)
            await host.index.drained()
            await host.die()

    asyncio.run(fill())
    return directory


def objects(directory):
    """All that is stored, with its version."""

    async def read():
        async with open_store(f"file:{directory}") as opened:
            return [(i.key, i.version, i.metadata) for i in (await opened.list("")).objects]

    return asyncio.run(read())


@pytest.mark.parametrize("command", LOOKS)
def test_looking_changes_nothing(run, store, old, command):
    """Whatever is found; the probes of `doctor` are gone again."""
    before = objects(store)
    result = run(*command.format(old=old).split(), "--store", f"file:{store}")
    assert result.exit_code in {0, 1}, result.stderr
    assert objects(store) == before


@pytest.mark.parametrize("command", LOOKS)
@pytest.mark.parametrize("there", [True, False])
def test_looking_makes_no_store(run, tmp_path, old, command, there):
    """Neither a directory, nor what makes a store of one that is there for something else."""
    directory = tmp_path / "slip"
    if there:
        directory.mkdir()
        (directory / "mine.txt").write_text("mine")
    result = run(*command.format(old=old).split(), "--store", f"file:{directory}")
    assert result.exit_code == (0 if "--from" in command else 2), result.output
    assert [path.name for path in tmp_path.rglob("*") if "old" not in path.parts and path != directory] == (
        ["mine.txt"] if there else []
    )
    assert directory.exists() is there
