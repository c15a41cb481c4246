"""A cleaner of temporary files below a living host: later turns work, and nobody else gets what is the host's."""

import fcntl
import os
import shutil

import pytest
from structlog.testing import capture_logs

from a2a_gcs.workspaces import removal, workdir
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.workdir import WorkDirs


def is_locked(path):
    """Whether anybody holds the flock of a file or directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def run_of(dirs):
    """The process's own part of the work directory."""
    path = dirs.create("c", "t")
    return path.parent


def test_a_work_directory_is_locked_as_long_as_its_host_lives(root):
    """systemd-tmpfiles passes over directories that are, with all below them."""
    dirs = WorkDirs(root)
    run = run_of(dirs)
    assert (is_locked(root), is_locked(run)) == (True, True)
    dirs.close()
    assert not is_locked(root)


@pytest.mark.parametrize("what", ["all", "run", "lock", "places", "gate"])
async def test_what_was_removed_is_made_again(dirs, root, what):
    """The next turn has its directory, at the path of its context and beside it, and this process holds it."""
    run = run_of(dirs)
    removed = {"all": root, "run": run, "lock": root / f"{run.name}.lock", "places": root / "places"}
    removed["gate"] = root / ".lock"
    shutil.rmtree(removed[what]) if removed[what].is_dir() else removed[what].unlink()
    with capture_logs() as logs:
        at = dirs.occupy("", "c", "t")
        beside = dirs.create("c", "t")
    (at.path / "work").write_text("done")
    assert (at.path.parent.parent, beside.parent) == (root / "places", run)
    assert [line["event"] for line in logs] == (["workspace.directory_gone"] if what != "gate" else [])
    assert all(is_locked(path) for path in (root, run, root / f"{run.name}.lock", at.path.parent / "lock"))
    away = dirs.vacate(at.place)
    assert (away / "work").read_text() == "done"
    await dirs.discard(away)
    assert not away.exists()


@pytest.mark.parametrize("made_again", [False, True])
def test_a_host_whose_lock_was_removed_is_not_taken_for_dead(dirs, root, made_again):
    """Another host that starts leaves its directories alone, before and after it has its lock again."""
    path = dirs.create("c", "t")
    (path / "work").write_text("in progress")
    (root / f"{path.parent.name}.lock").unlink()
    if made_again:
        dirs.create("c", "other")
    WorkDirs(root).close()
    assert (path / "work").read_text() == "in progress"
    dirs.create("c", "yet another")
    assert is_locked(root / f"{path.parent.name}.lock")
    WorkDirs(root).close()
    assert (path / "work").read_text() == "in progress"


def test_two_hosts_whose_work_directory_was_removed_meet_in_the_new_one(dirs, root):
    """And share neither a part of it nor the place of a context."""
    other = WorkDirs(root)
    shutil.rmtree(root)
    mine, theirs = dirs.occupy("", "c", "t"), other.occupy("", "c", "t2")
    assert mine.place is not None
    assert theirs.place is None
    assert run_of(dirs) != run_of(other)
    other.close()
    WorkDirs(root).close()
    assert mine.path.is_dir()


def test_a_turn_that_lost_its_directory_moves_nobody_elses(dirs, root):
    """The next turn of its context has the path by now."""
    lost = dirs.occupy("", "c", "t1")
    shutil.rmtree(root)
    following = dirs.occupy("", "c", "t2")
    assert following.path == lost.path
    (following.path / "work").write_text("in progress")
    assert dirs.lock_of(following.path) == following.place.lock
    assert not dirs.vacate(lost.place).exists()
    assert (following.path / "work").read_text() == "in progress"
    assert is_locked(following.path.parent / "lock")


def test_a_turn_that_lost_its_lock_moves_nobody_elses(dirs, root):
    """Not that of another host either, and the end of its own host removes nothing there."""
    lost = dirs.occupy("", "c", "t1")
    (lost.path.parent / "lock").unlink()
    other = WorkDirs(root)
    following = other.occupy("", "c", "t2")
    (following.path / "work").write_text("in progress")
    dirs.vacate(lost.place, free=False)
    assert (following.path / "work").read_text() == "in progress"
    dirs.close()
    assert (following.path / "work").read_text() == "in progress"
    other.close()


def test_a_work_directory_that_is_a_link_by_now_is_not_followed(dirs, root, tmp_path):
    """Anybody may make a name below /tmp."""
    shutil.rmtree(root)
    (tmp_path / "elsewhere").mkdir()
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError):
        dirs.occupy("", "c", "t")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_host_ends_though_nothing_is_left(root):
    """What it closes after its directories must be closed too."""
    dirs = WorkDirs(root)
    dirs.occupy("", "c", "t")
    shutil.rmtree(root)
    dirs.close()
    assert not root.exists()


def test_no_removal_keeps_a_host_from_mending(dirs, root, monkeypatch):
    """Gigabytes of the dead, or of a host that ends, take long; who makes its directories again waits for neither."""
    dead = root / f"run-{'0' * 32}"
    dead.mkdir()
    waited = []

    def remove(name, parent):
        waited.append((os.fsdecode(name), is_locked(root / ".lock")))
        removal.remove(name, parent)

    monkeypatch.setattr(workdir, "remove", remove)
    other = WorkDirs(root)
    own = run_of(other)
    other.close()
    assert waited == [(dead.name, False), (own.name, False)]
    assert not dead.exists()
    assert not own.exists()


def test_a_work_directory_that_an_agent_has_closed_fails_its_turns_alone(unprivileged):
    """What cannot be looked at cannot be worked in: that is said of the workspace, as all that is wrong with it."""
    dirs = WorkDirs(unprivileged / "work")
    (unprivileged / "work").chmod(0o000)
    for make in (lambda: dirs.occupy("", "c", "t"), lambda: dirs.create("c", "t")):
        with pytest.raises(WorkspaceError, match="Permission denied"):
            make()
    (unprivileged / "work").chmod(0o700)
    assert dirs.occupy("", "c", "t").place is not None
    dirs.close()
