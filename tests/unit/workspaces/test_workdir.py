"""Working directories: fresh, unshared, removable whatever is in them, and cleaned up after the dead."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.workdir import WorkDirs

IDS = ["plain", "..", ".", "/", "/etc", "../../x", "", "\U0001f600" * 60, "a\0b", "x" * 240, "new\nline", "\udcff"]

HOST = """
import sys
from pathlib import Path
from a2a_gcs.workspaces.workdir import WorkDirs
path = WorkDirs(Path(sys.argv[1])).create("c", "t")
(path / "work").write_text("in progress")
print(path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "made" / "work"


@pytest.fixture
def host(root):
    """Starts another process that works in a directory below `root`; returns it and the directory."""
    started = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOST, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_every_directory_is_new_and_empty_whatever_the_ids(dirs, root):
    """Opaque ids never lead out of the process's own part, and equal ids never share a directory."""
    made = [dirs.create(context, task) for context in IDS for task in [*IDS, *IDS[:1]]]

    assert len(set(made)) == len(made) == len(IDS) * (len(IDS) + 1)
    assert {path.parent for path in made} == {made[0].parent}
    assert made[0].parent.parent == root
    for path in made:
        assert list(path.iterdir()) == []
        assert stat.S_IMODE(path.lstat().st_mode) == 0o700


def test_nobody_else_may_look(dirs, root):
    """The root and this process's part of it are for the owner alone."""
    path = dirs.create("c", "t")

    for directory in [root, path.parent, path]:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


async def test_the_next_turn_finds_nothing_of_the_last(dirs):
    """After a discard, the same ids get another path, and the old one is gone."""
    first = dirs.create("c", "t")
    (first / "left over").write_text("x")

    await dirs.discard(first)
    second = dirs.create("c", "t")

    assert not first.exists()
    assert second != first
    assert list(second.iterdir()) == []


async def test_discard_removes_what_modes_and_depth_protect(unprivileged):
    """Read-only and closed directories, files of mode 000, and trees deeper than Python's stack go away."""
    dirs = WorkDirs(unprivileged / "work")
    path = dirs.create("c", "t")
    (path / "ro" / "inner").mkdir(parents=True)
    (path / "ro" / "inner" / "f").write_text("x")
    (path / "ro" / "inner" / "f").chmod(0o000)
    (path / "ro" / "inner").chmod(0o555)
    (path / "ro").chmod(0o555)
    (path / "closed").mkdir()
    (path / "closed" / "f").write_text("x")
    (path / "closed").chmod(0o000)
    here = os.open(path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    path.chmod(0o000)

    await dirs.discard(path)

    assert not path.exists()
    dirs.close()


async def test_discard_touches_nothing_that_links_point_to(dirs, tmp_path):
    """Links to files and directories outside are unlinked, not followed; nor is a link in the directory's place."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    (outside / "file").chmod(0o400)
    first, second = dirs.create("c", "t"), dirs.create("c", "t")
    (first / "to directory").symlink_to(outside)
    (first / "to file").symlink_to(outside / "file")
    (first / "hard").hardlink_to(outside / "file")
    second.rmdir()
    second.symlink_to(outside)

    await dirs.discard(first)
    await dirs.discard(second)

    assert (outside / "file").read_text() == "stays"
    assert stat.S_IMODE((outside / "file").stat().st_mode) == 0o400
    assert not first.exists()
    assert not second.is_symlink()


async def test_discard_is_for_what_create_made(dirs, tmp_path, root):
    """Any other path is a mistake of the caller, and stays; a second discard is none."""
    path = dirs.create("c", "t")
    for other in [tmp_path, root, path.parent, path / "inside", path.parent / ".."]:
        with pytest.raises(ValueError, match="no working directory"):
            await dirs.discard(other)

    await dirs.discard(path)
    await dirs.discard(path)

    assert tmp_path.exists()
    assert path.parent.exists()


def test_what_the_dead_left_is_removed_and_the_living_are_left_alone(host, root):
    """kill -9 of one host: the next to start removes its directory, while a third one's work stays."""
    living, living_path = host()
    dead, dead_path = host()
    assert living_path.parent != dead_path.parent
    assert (dead_path / "work").exists()  # a start does not take the living for dead
    os.kill(dead.pid, signal.SIGKILL)
    dead.wait()

    dirs = WorkDirs(root)

    assert not dead_path.parent.exists()
    assert (living_path / "work").read_text() == "in progress"
    assert living.poll() is None
    assert len(list(root.glob("run-*"))) == 4  # two directories and their locks
    dirs.close()


def test_other_things_in_the_root_are_not_ours_to_remove(root):
    """A root that holds somebody's files loses none of them, whatever their names look like."""
    root.mkdir(parents=True)
    for name in ["home", "run-", "run-xyz", "run-" + "g" * 32, "places/home", "places/home/workspace"]:
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("mine")

    WorkDirs(root).close()

    assert (root / "places" / "home" / "workspace" / "file").exists()
    assert {path.name for path in root.iterdir()} == {
        *(".lock", "places"),
        *("home", "run-", "run-xyz", "run-" + "g" * 32),
    }
    assert (root / "run-xyz" / "file").read_text() == "mine"


def test_close_leaves_nothing_and_ends_it(root):
    """After close, which may come twice, there is no directory and none can be made."""
    dirs = WorkDirs(root)
    dirs.create("c", "t")
    dirs.occupy("", "c", "t")

    dirs.close()
    dirs.close()

    assert {path.name for path in root.iterdir()} == {".lock", "places"}
    assert list((root / "places").iterdir()) == []
    with pytest.raises(WorkspaceError, match="closed"):
        dirs.create("c", "t")
