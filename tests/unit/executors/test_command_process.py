"""Programs under their supervisor: real processes, and what is left of them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from a2a_gcs.clock import boottime
from a2a_gcs.executors import command_supervisor
from a2a_gcs.executors.command_process import Ended, Lease, NotStarted, running
from tests.support.host_process import environment
from tests.support.processes import NAMES, alive, started, tree
from tests.support.waiting import until

FOR_EVER = Lease(lambda: boottime() + 3600, every=0.05)
ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture
def run(tmp_path):
    """Starts programs; `with` ends them."""

    def run(*argv, **changes):
        options = {"directory": tmp_path, "environment": ENVIRONMENT, "stdin": None, "grace": 30.0, "lease": FOR_EVER}
        return running(argv, **options | changes)

    return run


def sh(script):
    return "/bin/sh", "-c", script


async def gone(pids):
    await until(lambda: not any(map(alive, pids)), what=f"the end of {pids}")


@pytest.mark.parametrize(
    ("script", "ended", "says"),
    [
        ("exit 0", Ended(0), "ended with status 0"),
        ("exit 10", Ended(10), "ended with status 10"),
        ("exit 255", Ended(255), "ended with status 255"),
        ("kill -SEGV $$", Ended(None, signal.SIGSEGV), "was killed by SIGSEGV"),
        ("kill -KILL $$", Ended(None, signal.SIGKILL), "was killed by SIGKILL"),
        ("exit 143", Ended(143), "ended with status 143, as a shell does whose command was killed by SIGTERM"),
    ],
)
async def test_how_a_program_ended_is_told_in_words(run, script, ended, says):
    """Exit statuses and signals are different things, also where a shell mixes them."""
    async with run(*sh(script)) as program:
        assert await program.ended() == ended
    assert str(ended) == says


async def test_it_gets_the_directory_the_environment_and_the_standard_streams(run, tmp_path):
    """And nothing else: no other variable, no descriptor but the three, nor what its supervisor keeps."""
    (tmp_path / "input").write_text("given")
    ours, kept = os.pipe()
    script = "import os, sys; print(sys.stdin.read(), os.getcwd(), sorted(os.environ), os.listdir('/proc/self/fd'))"
    command = (sys.executable, "-I", "-c", script)
    async with run(*command, environment={"ONE": "1"}, stdin=tmp_path / "input", keeps=kept) as program:
        out = (await program.stdout.read()).decode()
    os.close(ours)
    os.close(kept)
    names = "['LC_CTYPE', 'ONE']" if "LC_CTYPE" in out else "['ONE']"  # Python sets it for itself
    assert out == f"given {tmp_path.resolve()} {names} ['0', '1', '2', '3']\n"  # 3 is the listing's own


async def test_what_the_supervisor_keeps_is_kept_until_nothing_runs(run):
    """Also once the host has let go of it; so the lock of a place outlives a host that is killed."""
    ours, kept = os.pipe()
    os.set_blocking(ours, False)
    async with run(*sh("sleep 600"), keeps=kept):
        os.close(kept)
        with pytest.raises(BlockingIOError):  # somebody has the other end
            os.read(ours, 1)
    assert os.read(ours, 1) == b""
    os.close(ours)


async def test_signals_have_their_usual_effect_in_it(run):
    """What the supervisor does not listen to is not ignored by the program."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1):
        async with run(*sh(f"kill -{number} $$; exit 0")) as program:
            assert await program.ended() == Ended(None, number)


async def test_a_program_that_cannot_be_executed_says_why(run, tmp_path):
    """Not at the start, which is the supervisor's, but at its end."""
    script = tmp_path / "script"
    script.write_bytes(b"\x7fno program")
    script.chmod(0o755)
    async with run(str(script)) as program:
        with pytest.raises(NotStarted, match="Exec format error"):
            await program.ended()


@pytest.mark.parametrize(
    ("argument", "says"), [("x" * 200_000, "Argument list too long; a long message needs"), ("a\0b", "null byte")]
)
async def test_an_argument_that_no_program_can_get(run, argument, says):
    """Too long for the system, or with a NUL."""
    with pytest.raises(NotStarted, match=says):
        async with run("/bin/echo", argument):
            pass


@pytest.mark.parametrize("how", ["stop", "leave", "cancel"])
async def test_nothing_is_left_however_it_ends(run, tmp_path, how):
    """Told to stop, left by an error, or canceled with its host's task: also what forked and called setsid ends."""

    async def work():
        async with run(*tree("plain", tmp_path)) as program:
            pids.extend(await until(lambda: started(tmp_path)))
            if how == "leave":
                raise KeyError
            if how == "stop":
                program.stop()
            ready.set()
            return await program.ended()

    pids, ready = [], asyncio.Event()
    task = asyncio.create_task(work())
    if how == "cancel":
        await ready.wait()
        task.cancel()
    with contextlib.suppress(KeyError, asyncio.CancelledError):
        assert await task == Ended(None, signal.SIGTERM)
    assert len(pids) == len(NAMES)
    assert not any(map(alive, pids))


async def test_term_reaches_every_process(run, tmp_path):
    """Each gets the chance to end by itself, also the one that left session and group; then nobody waits."""
    async with run(*tree("polite", tmp_path)) as program:
        await until(lambda: started(tmp_path))
        program.stop()
        assert await program.ended() == Ended(0)
    assert {path.name for path in tmp_path.glob("*-heard")} == {f"{name}-heard" for name in NAMES}


async def test_kill_follows_term_after_the_grace(run, tmp_path):
    """For those that ignore it."""
    async with run(*tree("deaf", tmp_path), grace=0.3) as program:
        pids = await until(lambda: started(tmp_path))
        began = time.monotonic()
        program.stop()
        assert await program.ended() == Ended(None, signal.SIGKILL)
        assert time.monotonic() - began >= 0.3
    assert not any(map(alive, pids))


async def test_a_second_stop_does_not_wait_for_the_grace(run, tmp_path):
    """Whoever asks twice has no patience left."""
    async with run(*tree("deaf", tmp_path), grace=3600) as program:
        await until(lambda: started(tmp_path))
        program.stop()
        program.stop()
        assert await program.ended() == Ended(None, signal.SIGKILL)


async def test_a_stopped_process_hears_term_too(run, tmp_path):
    """SIGSTOP does not hold up the end until the grace is over."""
    async with run(*tree("plain", tmp_path), grace=3600) as program:
        for pid in await until(lambda: started(tmp_path)):
            os.kill(pid, signal.SIGSTOP)
        program.stop()
        assert await program.ended() == Ended(None, signal.SIGTERM)


async def test_what_it_leaves_in_the_background_ends_with_it(run, tmp_path):
    """The turn is over when the program is; its status counts."""
    async with run(*tree("leaves", tmp_path)) as program:
        assert await program.ended() == Ended(0)
        assert not any(map(alive, started(tmp_path, NAMES[:2])))
        assert await program.stdout.read() == b""


CHAIN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    while not os.path.exists("begun"):
        time.sleep(0.01)
    os._exit(3)
open("begun", "w").close()
end = time.monotonic() + 60  # should it ever escape
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


def working_in(directory):
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if path.readlink() == directory and alive(int(path.parent.name)):
                found.append(path.parent.name)
    return found


async def test_a_tree_that_goes_on_forking_is_caught(run, tmp_path):
    """Every process starts another and ends, as fast as it can: they are stopped before they are killed."""
    async with run(sys.executable, "-I", "-S", "-c", CHAIN, grace=0.1) as program:
        assert await program.ended() == Ended(3)
    assert not working_in(tmp_path)


GIVES_UP = """
import runpy, sys
names = runpy.run_path({script!r})["main"].__globals__
names["GIVE_UP_SECONDS"], kill, calls = 0.0, names["Family"].kill, []

def works_late(self):
    calls.append(self)
    if len(calls) > 5:
        kill(self)

names["Family"].kill = works_late
names["main"](sys.argv[1:])
"""


async def test_a_supervisor_that_has_given_up_goes_on(run, tmp_path, monkeypatch):
    """It reports what is left when its time is over, and ends only when that has."""
    script = tmp_path / "gives_up.py"
    script.write_text(GIVES_UP.format(script=command_supervisor.__file__))
    monkeypatch.setattr(command_supervisor, "__file__", str(script))
    async with run(*tree("deaf", tmp_path)) as program:
        pids = await until(lambda: started(tmp_path))
        program.stop()
        program.stop()
        assert (await program.ended()).left
    await gone(pids)


HOST = """
import asyncio, sys
from pathlib import Path
from a2a_gcs.clock import boottime
from a2a_gcs.executors.command_process import Lease, running

async def main(directory, *argv):
    lease = Lease(lambda: boottime() + 3600, every=60)
    async with running(argv, directory=Path(directory), environment={}, stdin=None, grace=3600, lease=lease) as program:
        await program.ended()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_it_ends_at_once_when_its_host_dies(tmp_path, number):
    """However that dies, and however long its lease still is; the supervisor goes last."""
    command = [sys.executable, "-c", HOST, tmp_path, *tree("deaf", tmp_path)]
    host = await asyncio.create_subprocess_exec(*command, env=environment())
    pids = await until(lambda: started(tmp_path))
    (supervisor,) = children(host.pid)
    host.send_signal(number)
    await host.wait()
    await gone([*pids, supervisor])


async def test_it_ends_when_its_host_falls_silent(run, tmp_path):
    """The lease that the last beat told of is over, as it is when the host is suspended: everything is killed."""
    until_then = boottime() + 3600
    async with run(*tree("deaf", tmp_path), grace=3600, lease=Lease(lambda: until_then, every=0.05)) as program:
        pids = await until(lambda: started(tmp_path))
        until_then = boottime() + 0.5
        assert await program.ended() == Ended(None, signal.SIGKILL)
        assert boottime() >= until_then
    assert not any(map(alive, pids))


async def test_it_goes_on_while_the_lease_is_renewed(run, tmp_path):
    """Longer than any one lease."""
    lease = Lease(lambda: boottime() + 3.0, every=0.05)  # a busy machine may hold a beat up for a second
    async with run(*sh("sleep 4; echo done"), lease=lease) as program:
        assert await program.stdout.read() == b"done\n"
        assert await program.ended() == Ended(0)


async def test_it_ends_with_its_supervisor(run, tmp_path):
    """Should somebody kill that one, the program is killed too, and is said to have been."""
    async with run(*sh(f"echo $PPID; exec {sys.executable} -S -c 'import time; time.sleep(600)'")) as program:
        supervisor = int(await program.stdout.readline())
        (child,) = children(supervisor)
        os.kill(supervisor, signal.SIGKILL)
        assert await program.ended() == Ended(None, signal.SIGKILL)
    await gone([child])


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in listed.stdout.split()]


def test_the_supervisor_needs_only_the_standard_library():
    """It runs as a script without site-packages, so that it starts in milliseconds and nothing of ours breaks it."""
    script = f"import runpy, sys; runpy.run_path({command_supervisor.__file__!r}); print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert "a2a_gcs" not in shown.stdout
    assert "asyncio" not in shown.stdout
