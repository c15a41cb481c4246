"""Directories that are kept for the next turn: who gets them, and who does not."""

import os
import socket

import pytest

from a2a_gcs.layout import TaskRef, workspace_key
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.errors import SnapshotMissing
from a2a_gcs.workspaces.snapshots import Snapshots
from a2a_gcs.workspaces.warm import WarmDirs
from a2a_gcs.workspaces.workdir import WorkDirs
from a2a_gcs.workspaces.workspaces import Workspaces
from tests.support.faulty_store import FaultyStore
from tests.unit.workspaces.trees import describe

A, B = TaskRef("ctx", "a"), TaskRef("ctx", "b")
BUDGET = 1 << 20


@pytest.fixture
async def store():
    async with FaultyStore(MemoryStore()) as store:
        yield store


@pytest.fixture
def workdirs(tmp_path):
    dirs = WorkDirs(tmp_path / "work")
    yield dirs
    dirs.close()


@pytest.fixture
def warm():
    return WarmDirs(BUDGET)


@pytest.fixture
def workspaces(store, workdirs, warm):
    return Workspaces(Snapshots(store, pause=0.0), workdirs, warm)


async def turn(workspaces, ref, files, start=None):
    """A turn that writes files and ends well. Its pin, and the directory it had."""
    work = workspaces.create(ref)
    if start is not None:
        await work.restore(*start)
    for name, content in files.items():
        (work.path / name).write_text(content)
    saved = await work.save(replaces=0, owner="h/1")
    work.offer(saved.pin)
    await work.close()
    return saved.pin, work.path


def downloads(store):
    return store.count("get") + store.count("stream")


async def test_an_unmodified_directory_downloads_nothing(workspaces, store):
    """The next turn finds the tree, in the very directory, at a path of its own; the archive is only looked for."""
    pin, path = await turn(workspaces, A, {"f": "one", "g": "two"})
    inode, tree = path.stat().st_ino, describe(path)
    work = workspaces.create(B)
    await work.restore(A, pin)
    assert (work.path.stat().st_ino, describe(work.path)) == (inode, tree)
    assert work.path != path
    assert not path.exists()
    assert downloads(store) == 0
    assert store.count("head") == 1


async def test_what_follows_is_still_incremental(workspaces, store):
    """A turn that changes nothing in a directory that was kept uploads nothing: it is a copy."""
    pin, _ = await turn(workspaces, A, {"f": "one"})
    before = len(store.calls)
    again, _ = await turn(workspaces, B, {}, start=(A, pin))
    assert [call for call, _ in store.calls[before:]] == ["head", "compose"]
    assert again.crc32c == pin.crc32c


def edit(path):
    """A same-size edit with the times put back."""
    before = (path / "f").stat()
    (path / "f").write_text("two")
    os.utime(path / "f", ns=(before.st_atime_ns, before.st_mtime_ns))


def socket_in(path):
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path)
        made.bind("s")
        os.chdir("/")


CHANGES = {
    "edited": edit,
    "removed": lambda path: (path / "f").unlink(),
    "added": lambda path: (path / "new").write_text("x"),
    "mode": lambda path: (path / "f").chmod(0o600),
    "an ignored file": lambda path: (path / ".netrc").write_text("secret"),
    "a socket": socket_in,
    "gone": lambda path: path.rename(path.with_name("elsewhere")),
    "a link": lambda path: (path.rename(path.with_name("elsewhere")), path.symlink_to("elsewhere")),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_directory_that_was_touched_is_not_used(change, workspaces, store):
    """Whatever a process that the agent left behind has done there since: the tree comes from the bucket."""
    pin, path = await turn(workspaces, A, {"f": "one"})
    CHANGES[change](path)
    work = workspaces.create(B)
    await work.restore(A, pin)
    assert [p.name for p in work.path.iterdir()] == ["f"]
    assert (work.path / "f").read_text() == "one"
    assert downloads(store) == 1
    assert not path.exists() or change == "a link"


async def test_an_edit_in_the_tick_of_the_save_is_found(workspaces, store, monkeypatch):
    """Files that were young at the save are read, as their stamps may not tell."""
    monkeypatch.setattr("a2a_gcs.workspaces.manifest.TICK", 1 << 62)
    pin, path = await turn(workspaces, A, {"f": "one"})
    monkeypatch.setattr("a2a_gcs.workspaces.warm.unchanged", lambda *_: True)  # as if no stamp had changed
    (path / "f").write_text("two")
    work = workspaces.create(B)
    await work.restore(A, pin)
    assert (work.path / "f").read_text() == "one"
    assert downloads(store) == 1


async def test_only_the_very_archive_counts(workspaces, store):
    """Another generation, checksum, task, context or root of the same names gets nothing of it."""
    pin, path = await turn(workspaces, A, {"f": "one"})
    for ref, other in [
        (A, Pin(pin.generation + 1, pin.crc32c)),
        (A, Pin(pin.generation, "AAAAAA==")),
        (B, pin),
        (TaskRef("other", "a"), pin),
    ]:
        work = workspaces.create(B)
        with pytest.raises(SnapshotMissing):
            await work.restore(ref, other)
        assert list(work.path.iterdir()) == []
    assert path.exists()


async def test_another_root_never_gets_it(workspaces, workdirs, warm, store):
    """Two owners may use the same ids, and even have equal pins: the directory is the one's whose it was."""
    pin, path = await turn(workspaces, A, {"f": "one"})
    other = Workspaces(Snapshots(store, pause=0.0), workdirs, warm, root="users/other")
    assert await other.take(workspace_key(A), pin, path.with_name("x")) is None
    assert path.exists()


@pytest.mark.parametrize("how", ["deleted", "another"])
async def test_an_archive_that_is_gone_is_told_also_where_its_tree_is_at_hand(how, workspaces, store):
    """Every host says the same: SnapshotMissing, and the directory goes."""
    pin, path = await turn(workspaces, A, {"f": "one"})
    if how == "deleted":
        await store.delete(workspace_key(A))
    else:
        await store.put(workspace_key(A), b"another", OVERWRITE)
    work = workspaces.create(B)
    with pytest.raises(SnapshotMissing):
        await work.restore(A, pin)
    assert not path.exists()


async def test_a_directory_serves_one_turn(workspaces, store):
    """Two turns that start from one archive never meet in a directory."""
    pin, _ = await turn(workspaces, A, {"f": "one"})
    first, second = workspaces.create(B), workspaces.create(B)
    await first.restore(A, pin)
    (first.path / "f").write_text("mine")
    await second.restore(A, pin)
    assert (second.path / "f").read_text() == "one"


@pytest.mark.parametrize("name", [".netrc", "pipe"])
async def test_a_directory_that_holds_more_than_its_archive_is_not_kept(name, workspaces):
    """What stays out of a snapshot must not reach the next turn by another way."""
    work = workspaces.create(A)
    (work.path / "f").write_text("one")
    if name == "pipe":
        os.mkfifo(work.path / name)
    else:
        (work.path / name).write_text("secret")
    saved = await work.save(replaces=0, owner="h/1")
    work.offer(saved.pin)
    await work.close()
    assert not work.path.exists()


async def test_a_turn_that_did_not_end_well_leaves_nothing(workspaces):
    """Without a pin to keep it for, or with another than was saved last, the directory is removed."""
    for keep in (None, Pin(99, "x")):
        work = workspaces.create(A)
        (work.path / "f").write_text("one")
        await work.save(replaces=0, owner="h/1")
        if keep is not None:
            work.offer(keep)
        await work.close()
        assert not work.path.exists()


async def test_the_least_recently_used_go_first(store, workdirs):
    """Within the budget all stay; over it the oldest go, and one that is larger than all of it is not kept."""
    warm = WarmDirs(10 * 8192)
    workspaces = Workspaces(Snapshots(store, pause=0.0), workdirs, warm)
    made = [await turn(workspaces, TaskRef("ctx", f"t{n}"), {f"f{i}": "x" for i in range(4)}) for n in range(3)]
    assert [path.exists() for _, path in made] == [False, True, True]
    work = workspaces.create(B)
    await work.restore(TaskRef("ctx", "t1"), made[1][0])
    _, large = await turn(workspaces, TaskRef("ctx", "t3"), {f"f{i}": "x" for i in range(11)})
    assert not large.exists()
    assert made[2][1].exists()


async def test_directories_that_hold_nothing_are_not_kept_without_end(store, workdirs):
    """They take nothing of the budget, so their number is bounded too: the oldest go."""
    workspaces = Workspaces(Snapshots(store, pause=0.0), workdirs, WarmDirs(BUDGET, most=2))
    made = [await turn(workspaces, TaskRef("ctx", f"t{n}"), {}) for n in range(4)]
    assert [path.exists() for _, path in made] == [False, False, True, True]


async def test_the_next_turn_may_follow_before_this_one_has_tidied_up(workspaces, store):
    """The directory is there from the moment that anybody can be told of the pin, and is not removed afterwards."""
    work = workspaces.create(A)
    (work.path / "f").write_text("one")
    saved = await work.save(replaces=0, owner="h/1")
    work.offer(saved.pin)
    following = workspaces.create(B)
    await following.restore(A, saved.pin)
    await work.close()
    assert (following.path / "f").read_text() == "one"
    assert downloads(store) == 0
