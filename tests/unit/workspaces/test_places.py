"""The path of a context: the same turn after turn and process after process, and never two turns in it."""

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from a2a_gcs.workspaces.workdir import WorkDirs

HOST = """
import subprocess, sys
from pathlib import Path
from a2a_gcs.workspaces.workdir import WorkDirs
dirs = WorkDirs(Path(sys.argv[1]))
at = dirs.occupy("", "c", "t")
(at.path / "work").write_text("in progress")
agent = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, pass_fds=[dirs.lock_of(at.path)])
print(at.path, agent.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(root):
    dirs = WorkDirs(root)
    yield dirs
    dirs.close()


class Other:
    """Another process in the place of the context, with an agent that outlives it."""

    def __init__(self, root):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        path, agent = self.process.stdout.readline().split()
        self.path = Path(path)
        self._agent = os.pidfd_open(int(agent))

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end_agent(self):
        """Also its end is waited for, by whoever its parent is by now."""
        if self._agent is not None:
            signal.pidfd_send_signal(self._agent, signal.SIGKILL)
            select.select([self._agent], [], [])
            os.close(self._agent)
            self._agent = None


@pytest.fixture
def host(root):
    host = Other(root)
    yield host
    host.end_agent()
    host.kill()


def test_the_next_turn_has_the_same_path_and_finds_nothing_there(dirs):
    """Also when it follows before the directory of the last one is discarded, which is elsewhere by then."""
    first = dirs.occupy("", "c", "t1")
    (first.path / "file").write_text("1")
    away = dirs.vacate(first.place)
    second = dirs.occupy("", "c", "t2")
    assert second.path == first.path
    assert list(second.path.iterdir()) == []
    assert (away / "file").read_text() == "1"


def test_what_is_opened_by_the_old_turn_is_not_the_new_directory(dirs):
    """A process that was left behind goes on in the directory that it knows, under another name."""
    first = dirs.occupy("", "c", "t1")
    stale = os.open(first.path, os.O_RDONLY)
    dirs.vacate(first.place)
    second = dirs.occupy("", "c", "t2")
    os.close(os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=stale))
    os.close(stale)
    assert list(second.path.iterdir()) == []


def test_contexts_and_roots_have_paths_of_their_own(dirs):
    """Two owners may use one context id."""
    paths = {
        dirs.occupy(root, context, "t").path for root in ("", "users/a", "users/b") for context in ("c", "d", "..")
    }
    assert len(paths) == 9


def test_a_second_turn_at_once_works_elsewhere(dirs, other):
    """In this process or another: the place is taken, and what is there is left alone."""
    first = dirs.occupy("", "c", "t1")
    (first.path / "mine").touch()
    for again in (dirs, other):
        second = again.occupy("", "c", "t2")
        assert second.place is None
        assert second.path != first.path
        assert list(second.path.iterdir()) == []
    assert [path.name for path in first.path.iterdir()] == ["mine"]


def test_hosts_of_one_work_directory_take_turns_at_one_path(dirs, other):
    """A session that an agent filed under the path is found on whichever host goes on."""
    first = dirs.occupy("", "c", "t1")
    dirs.vacate(first.place)
    assert other.occupy("", "c", "t2").path == first.path


def test_the_place_of_an_agent_that_did_not_stop_is_nobodys(root):
    """Not while the process lives; whatever the agent makes there meanwhile is gone with it."""
    dirs = WorkDirs(root)
    first = dirs.occupy("", "c", "t1")
    dirs.vacate(first.place, free=False)
    assert dirs.occupy("", "c", "t2").place is None
    first.path.mkdir()
    (first.path / "late").touch()
    dirs.close()
    assert [path.name for path in (root / "places").iterdir()] == []


def test_the_place_of_a_dead_host_is_free_once_its_agents_are_gone(host, dirs):
    """While the agent lives the lock lives: the new turn is elsewhere. Then it starts from an empty directory."""
    host.kill()
    assert dirs.occupy("", "c", "t2").place is None
    host.end_agent()
    third = dirs.occupy("", "c", "t3")
    assert third.path == host.path
    assert list(third.path.iterdir()) == []
    [left] = third.left
    assert (left / "work").read_text() == "in progress"


def test_a_start_removes_what_the_dead_left(host, root):
    """Places that nobody has are gone; those of the living stay."""
    WorkDirs(root).close()
    assert (host.path / "work").exists()
    host.end_agent()
    host.kill()
    WorkDirs(root).close()
    assert list((root / "places").iterdir()) == []


@pytest.mark.parametrize("become", ["gone", "link", "file", "closed"])
def test_whatever_an_agent_made_of_its_directory_it_can_be_left(unprivileged, become):
    """Removed, replaced, or without a mode that lets anybody in: the next turn has an empty one."""
    dirs = WorkDirs(unprivileged / "work")
    first = dirs.occupy("", "c", "t1")
    outside = unprivileged / "outside"
    outside.mkdir()
    if become == "closed":
        first.path.chmod(0)
    else:
        first.path.rmdir()
        if become == "link":
            first.path.symlink_to(outside)
        elif become == "file":
            first.path.touch()
    dirs.vacate(first.place)
    second = dirs.occupy("", "c", "t2")
    assert second.path == first.path
    assert second.path.is_dir()
    assert not second.path.is_symlink()
    assert outside.is_dir()
    dirs.close()


def test_a_lock_of_a_place_that_is_gone_is_none(dirs, other, monkeypatch):
    """Whoever opened it before its place was given up has to look again: somebody else may hold a new one."""
    first = dirs.occupy("", "c", "t1")
    real, between = fcntl.flock, []

    def flock(fd, how):
        if not between:
            between.append(dirs.vacate(first.place))
            between.append(other.occupy("", "c", "t2").place)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    third = dirs.occupy("", "c", "t3")
    assert between[1] is not None
    assert third.place is None


def test_many_processes_never_share_a_place(root):
    """Two take and leave it as fast as they can; a file made exclusively shows that each was alone."""
    script = """
import sys
from pathlib import Path
from a2a_gcs.workspaces.workdir import WorkDirs
dirs, had = WorkDirs(Path(sys.argv[1])), 0
for n in range(300):
    at = dirs.occupy("", "c", str(n))
    if at.place:
        had += 1
        (at.path / "alone").touch(exist_ok=False)
        assert [path.name for path in at.path.iterdir()] == ["alone"]
        dirs.vacate(at.place)
print(had)
dirs.close()
"""
    started = [
        subprocess.Popen([sys.executable, "-c", script, root], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert all(int(process.communicate()[0]) > 0 for process in started)
    assert [process.returncode for process in started] == [0, 0]


@pytest.mark.parametrize(
    "become",
    [
        "closed",
        "read-only",
        "closed lock",
        "unlocked",
        "locked by a directory",
        "locked by a link",
        "gone",
        "a file",
        "a link",
    ],
)
def test_whatever_an_agent_made_of_its_place_it_can_be_left(unprivileged, become):
    """What is around its directory, too: later turns have one, no lock stays open, and hosts can start there."""
    work = unprivileged / "work"
    dirs = WorkDirs(work)
    for number in range(2):
        turn = dirs.occupy("", "c", f"t{number}")
        assert list(turn.path.iterdir()) == []
        (turn.path / "file").touch()
        if turn.place is not None:
            spoil(turn.path.parent, become, unprivileged)
            dirs.vacate(turn.place)
            with pytest.raises(OSError, match="Bad file"):
                os.fstat(turn.place.lock)
    last = dirs.occupy("", "c", "t3")
    spoil(last.path.parent, become, unprivileged)
    dirs.close()
    assert [path.name for path in work.iterdir() if path.name.startswith("run-")] == []
    again = WorkDirs(work)
    assert list(again.occupy("", "c", "t4").path.iterdir()) == []
    again.close()
    assert (unprivileged / "outside" / "kept").exists()


def spoil(slot, become, unprivileged):
    """Does to a place what its agent may do."""
    outside = unprivileged / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "kept").touch()
    match become:
        case "closed":
            slot.chmod(0)
        case "read-only":
            slot.chmod(0o500)
        case "unlocked":
            (slot / "lock").unlink()
        case "closed lock":
            (slot / "lock").chmod(0)
        case "locked by a link":
            (slot / "lock").unlink()
            (slot / "lock").symlink_to(outside / "kept")
        case "locked by a directory":
            (slot / "lock").unlink()
            (slot / "lock").mkdir()
        case _:
            shutil.rmtree(slot)
    if become == "a file":
        slot.touch()
    elif become == "a link":
        slot.symlink_to(outside)


@pytest.fixture
def of_another_user(unprivileged):
    """Makes a directory that only root may remove, as a container does that works in a workspace."""
    try:
        os.seteuid(0)
    except PermissionError:
        pytest.skip("making files of another user takes root")
    os.seteuid(65534)

    def make(path):
        os.seteuid(0)
        try:
            (path / "theirs").mkdir(mode=0o755)
            (path / "theirs" / "file").touch()
        finally:
            os.seteuid(65534)

    yield make
    os.seteuid(65534)


@pytest.mark.parametrize("left", [True, False], ids=["after its turn", "in its turn"])
def test_what_another_user_has_made_keeps_no_host_from_starting(unprivileged, of_another_user, left):
    """It cannot be removed, so it stays; the host ends and others start all the same, and contexts have directories."""
    work = unprivileged / "work"
    for context in ("c", "c", "d"):
        dirs = WorkDirs(work)
        turn = dirs.occupy("", context, "t")
        assert list(turn.path.iterdir()) == []
        of_another_user(turn.path)
        if left and turn.place is not None:
            dirs.vacate(turn.place)
        dirs.close()
    assert len(list(work.rglob("theirs"))) > 0
