"""A workspace is saved as a whole; again with nothing changed; again with one file of 1 kB changed; and restored.

Trees of 10 MB, 250 MB and 1 GiB come from a fixed seed (files from 1 kB to 50 MB, half of the bytes do not compress);
the virtualenv is the one that runs this. Everything is in memory (tmpfs) where there is room, as a disk would measure
itself. All archives go into, and come from, a store in a directory, which stands for the bucket; restic writes a
repository beside it. Seconds include all that, but for joins: on GCS those are the bucket's work, here they copy all
bytes once more on this machine, and are shown by themselves. A cold restore unpacks an archive on a host that has
nothing; a warm one takes the directory that the host has kept, after a look at every file. Memory is what this
process took more than before all of it; of restic the most that its process had. 10 MB five times, 250 MB twice, the
others once, as `tar czf` of 1 GiB alone takes a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from a2a_gcs.layout import TaskRef, workspace_key
from a2a_gcs.objectstore.local import LocalStore
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.workspaces.snapshots import Snapshots
from a2a_gcs.workspaces.warm import WarmDirs
from a2a_gcs.workspaces.workdir import WorkDirs
from a2a_gcs.workspaces.workspaces import Workspaces
from tests.benchmark.trees import MIB, bytes_of, change_one, files_of, generate, place, virtualenv, walk

TITLE = "Workspaces: snapshot and restore"
REFERENCE = "tar czf"
CHUNK = 512 << 10
OURS, JOINS = "a2a-gcs", "joins, by the store"
FULL, NOTHING, ONE = "full snapshot", "snapshot, nothing changed", "snapshot, one file changed"
COLD, WARM, WALK = "restore, cold", "restore, warm", "walk alone"
PACKERS = {
    "tar czf": (["tar", "czf", "-"], ["tar", "xzf", "-"]),
    "tar | gzip -1": (["tar", "-I", "gzip -1", "-cf", "-"], ["tar", "xzf", "-"]),
    "tar | zstd -1": (["tar", "-I", "zstd -1 -q", "-cf", "-"], ["tar", "-I", "zstd -q", "-xf", "-"]),
}
RESTIC = "restic"
WHY_NOT_FIRST = "zstd takes less work than deflate; a workspace stays a .tar.gz, which any tar reads by itself."
SIZES = {10: None, 250: 2, 1074: 1}
"""MB of generated trees, and in how many rounds; None: in all. 1,074 MB are 1 GiB."""
ROOM = 8 << 30
_BY_FILE = "Parts of an archive are runs of whole files, as tar has to read them; restic cuts files by their content."
_HELD = "Parts are held until they are stored, four of them on their way at once beside those that are packed."
REASONS = {
    **{
        f"{tree}{what}": WHY_NOT_FIRST
        for tree in ("", "virtualenv: ")
        for what in (f"{FULL}: bytes uploaded", f"{FULL}: processor", COLD, f"{COLD}: processor")
    },
    **{f"{tree}{ONE}: bytes uploaded": _BY_FILE for tree in ("", "virtualenv: ")},
    "Memory above idle": _HELD,
}


def run(bench):
    subjects, Meter.idle = _subjects(bench), _status("VmRSS")
    with tempfile.TemporaryDirectory(dir=place(ROOM, bench.directory), prefix="a2a-gcs-bench-") as top:
        tree = Path(top, "tree")
        asyncio.run(_warm_up(subjects, tree))
        for size in [10] if bench.smoke else SIZES:
            generate(tree, size * 1_000_000 if size != 1074 else 1024 * MIB)
            asyncio.run(_measure(bench, subjects, tree, size=size, rounds=SIZES[size]))
            shutil.rmtree(tree)
        _aims(bench, 10 if bench.smoke else 1074, "")
        if not bench.smoke:
            virtualenv(tree)
            bench.note(f"The virtualenv has {bytes_of(tree) / 1e6:,.0f} MB in {files_of(tree):,} files.")
            asyncio.run(_measure(bench, subjects, tree, prefix="virtualenv: ", rounds=1))
            _aims(bench, None, "virtualenv: ")


def _subjects(bench):
    """What is compared, as far as it is installed."""
    found = [OURS, "tar czf", "tar | gzip -1"]
    for name, program in (("tar | zstd -1", "zstd"), (RESTIC, "restic")):
        if shutil.which(program):
            found.append(name)
        else:
            bench.note(f"{program} is not installed here, and is missing: apt-get install {program}.")
    return found


async def _warm_up(subjects, tree):
    """Everybody once, over little: what is measured has been imported and is in the page cache."""
    generate(tree, 2_000_000)
    for subject in subjects:
        await _once(lambda *_: None, subject, tree, 0)
    shutil.rmtree(tree)


async def _measure(bench, subjects, tree, *, size=None, prefix="", rounds=None):
    """Every subject in each round, on a tree that changes in one file between them."""

    def record(what, subject, value, unit="s"):
        bench.record(prefix + what, subject, value, unit, size=size)

    for number, subject in enumerate(bench.alternate(subjects, prefix or f"{size} MB", rounds=rounds)):
        await _once(record, subject, tree, number)


async def _once(record, subject, tree, number):
    with tempfile.TemporaryDirectory(dir=tree.parent) as work:
        async with LocalStore(Path(work, "store")) as store:
            if subject == OURS:
                await _ours(record, store, tree, Path(work), number)
            elif subject == RESTIC:
                _restic(record, tree, Path(work), number)
            else:
                await _packed(record, subject, store, tree, Path(work, "out"))


# ------------------------------------------------------------------ this product


async def _ours(record, store, tree, work, number):
    snapshots, joins = Snapshots(store), Joins(store)
    first, second, third, cold, last = (TaskRef("context", f"task-{n}") for n in range(5))

    async def save(what, ref, base):
        with Meter(joins) as meter:
            saved = await snapshots.save(tree, workspace_key(ref), replaces=0, base=base)
        record(what, OURS, meter.seconds - meter.joins)
        record(what, JOINS, meter.joins)
        record(f"{what}: bytes uploaded", OURS, saved.sent / 1e6, "MB")
        record(f"{what}: memory above idle", OURS, meter.memory, "MiB")
        return saved, meter

    saved, meter = await save(FULL, first, None)
    record(f"{FULL}: processor", OURS, meter.cpu)
    record(WALK, "os.walk", walk(tree))
    saved, _ = await save(NOTHING, second, saved.baseline)
    change_one(tree, number)
    saved, _ = await save(ONE, third, saved.baseline)

    workspaces = Workspaces(snapshots, WorkDirs(work / "dirs"), WarmDirs(ROOM))
    directory = workspaces.create(cold)
    with Meter(joins) as meter:
        await directory.restore(third, saved.pin)
    record(COLD, OURS, meter.seconds)
    record(f"{COLD}: processor", OURS, meter.cpu)
    record(f"{COLD}: memory above idle", OURS, meter.memory, "MiB")
    kept = await directory.save(replaces=0, owner="bench")
    directory.offer(kept.pin)
    await directory.close()
    before = directory.path.stat().st_ino
    directory = workspaces.create(last)
    with Meter(joins) as meter:
        await directory.restore(cold, kept.pin)
    assert directory.path.stat().st_ino == before, "it was not the directory that had been kept"
    record(WARM, OURS, meter.seconds)
    await directory.close()
    await snapshots.close()


class Joins:
    """Seconds that the store itself spent in joining and copying."""

    def __init__(self, store):
        self._compose, self.seconds, self._running = store.compose, 0.0, 0
        store.compose = self

    async def __call__(self, *arguments, **options):
        self._running += 1
        if self._running == 1:
            self._began = time.perf_counter()
        try:
            return await self._compose(*arguments, **options)
        finally:
            self._running -= 1
            if not self._running:
                self.seconds += time.perf_counter() - self._began


class Meter:
    """Seconds, and this process's memory above what it held before it did anything here, in MiB.

    Where the kernel does not let its mark be taken back, memory is that since the start of the process, which is more.
    """

    idle = 0

    def __init__(self, joins):
        self._joins = joins

    def __enter__(self):
        self._joins.seconds = 0.0
        self._cpu = _cpu()
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._started
        self.joins = self._joins.seconds
        self.cpu = _cpu() - self._cpu
        self.memory = max(0.0, (_status("VmHWM") - Meter.idle) / 1024)


def _cpu():
    """Seconds of processor of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


# ------------------------------------------------------------------ the others


async def _packed(record, subject, store, tree, target):
    """A packer's output into the store, and back."""
    packing, unpacking = PACKERS[subject]
    started, cpu = time.perf_counter(), _cpu()
    process = await asyncio.create_subprocess_exec(*packing, ".", cwd=tree, stdout=subprocess.PIPE, limit=4 * CHUNK)

    async def chunks():
        while data := await process.stdout.read(CHUNK):
            yield data

    info = await store.put_stream("workspace", chunks(), IF_ABSENT)
    assert await process.wait() == 0
    record(FULL, subject, time.perf_counter() - started)
    record(f"{FULL}: processor", subject, _cpu() - cpu)
    record(f"{FULL}: bytes uploaded", subject, info.size / 1e6, "MB")

    target.mkdir()
    started, cpu = time.perf_counter(), _cpu()
    process = await asyncio.create_subprocess_exec(*unpacking, "-C", target, stdin=subprocess.PIPE)
    async for chunk in store.stream("workspace"):
        process.stdin.write(chunk)
        await process.stdin.drain()
    process.stdin.close()
    assert await process.wait() == 0
    record(COLD, subject, time.perf_counter() - started)
    record(f"{COLD}: processor", subject, _cpu() - cpu)


def _restic(record, tree, work, number):
    repository = work / "restic"

    def call(what, *arguments, cwd=None):
        """Runs restic, and records what the call took and what the repository grew by."""
        env = {**os.environ, "RESTIC_PASSWORD": "bench", "RESTIC_REPOSITORY": str(repository)}
        before, started, cpu = bytes_of(repository), time.perf_counter(), _cpu()
        process = subprocess.Popen(["restic", "--no-cache", "-q", *arguments], cwd=cwd, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, arguments
        if what is None:
            return
        record(what, RESTIC, time.perf_counter() - started)
        record(f"{what}: memory above idle", RESTIC, usage.ru_maxrss / 1024, "MiB")
        if what in (FULL, COLD):
            record(f"{what}: processor", RESTIC, _cpu() - cpu)
        if what != COLD:
            record(f"{what}: bytes uploaded", RESTIC, (bytes_of(repository) - before) / 1e6, "MB")

    call(None, "init")
    call(FULL, "backup", ".", cwd=tree)
    call(NOTHING, "backup", ".", cwd=tree)
    change_one(tree, number)
    call(ONE, "backup", ".", cwd=tree)
    call(COLD, "restore", "latest", "--target", work / "out")


# ------------------------------------------------------------------ aims


def _aims(bench, size, prefix):
    def median(what, subject=OURS):
        return bench.median(prefix + what, subject, size)

    where = "a virtualenv" if prefix else f"a tree of {'1 GiB' if size == 1074 else f'{size} MB'}"
    found = [one.subject for one in bench.results.series if (one.what, one.size) == (prefix + FULL, size)]
    fastest = min(median(FULL, other) for other in found if other not in (OURS, JOINS))
    memory = max(median(f"{what}: memory above idle") for what in (FULL, NOTHING, ONE, COLD))
    share = 100 * median(f"{ONE}: bytes uploaded") / median(f"{FULL}: bytes uploaded")
    beyond = median(NOTHING) - median(WALK, "os.walk")
    faster = median(FULL, "tar czf") / median(FULL)
    bench.reason(prefix + FULL, WHY_NOT_FIRST)
    bench.aim(f"Full snapshot of {where}, times as fast as tar czf", faster, at_least=6)
    bench.aim(
        f"Full snapshot of {where}, times as fast as the fastest other",
        fastest / median(FULL),
        at_least=1,
        why=WHY_NOT_FIRST,
    )
    bench.aim(f"Restore of {where}, times as fast as tar czf's", median(COLD, "tar czf") / median(COLD), at_least=1)
    bench.aim(f"One file of {where} changed, share of the bytes", share, at_most=2, unit="%")
    bench.aim(f"One file of {where} changed, share of the time", median(ONE) / median(FULL), at_most=0.2)
    bench.aim(f"Nothing of {where} changed, bytes", median(f"{NOTHING}: bytes uploaded"), at_most=0, unit="MB")
    bench.aim(f"Nothing of {where} changed, beyond walking it", beyond, at_most=0.2, unit="s")
    bench.aim(f"Memory above idle, {where}", memory, at_most=100, unit="MiB")
