"""Snapshots and restores beside tar, zstd and restic: seconds, bytes and memory, upload and download included.

    python -m tests.benchmark.bench_workspaces [--quick] [--emulator] [--tree venv] [--rounds 2] [--dir DIR]

Two trees: the virtualenv that runs this, and a generated one of 1 GiB (fixed seed, half of it does not
compress, files from 1 kB to 50 MB). All archives go through the same store, a directory or with
`--emulator` the plain fake-gcs-server; restic writes its repository beside them. Joins and copies are the
server's work on GCS, but this machine's here, which reads and writes all bytes once more: their time is
shown, and what counts for the aims is the rest. Rounds alternate, so that a busy machine is busy for
all; the fastest of each counts. `--quick` takes a generated tree of 48 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from a2a_gcs.objectstore.gcs import GCSStore
from a2a_gcs.objectstore.local import LocalStore
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.workspaces.snapshots import Snapshots
from fake_gcs.server import FakeGcsServer, create_bucket

SEED = 20261
MIB = 1 << 20
CHUNK = 512 << 10
PACKERS = {
    "tar czf": (["tar", "czf", "-"], ["tar", "xzf", "-"]),
    "tar | gzip -1": (["tar", "-I", "gzip -1", "-cf", "-"], ["tar", "xzf", "-"]),
    "tar | zstd -1": (["tar", "-I", "zstd -1 -q", "-cf", "-"], ["tar", "-I", "zstd -q", "-xf", "-"]),
}
AIMS = """aims: full snapshot 6 times as fast as tar czf, and no slower than any; restore faster than tar czf's;
      one file: under 2 % of the bytes and 1/5 of the time; nothing: no bytes, under 0.2 s beyond walking;
      memory above idle: under 100 MiB"""


@dataclass
class Result:
    """The best of some rounds: seconds, bytes, CPU seconds of all processes; the highest memory of any, in MiB."""

    seconds: float = float("inf")
    bytes: int = 0
    memory: float = 0.0
    cpu: float = 0.0

    def add(self, seconds, count, memory, cpu=0.0):
        if seconds < self.seconds:
            self.seconds, self.bytes, self.cpu = seconds, count, cpu
        self.memory = max(self.memory, memory)


@dataclass
class Table:
    results: dict[str, dict[str, Result]] = field(default_factory=dict)

    def add(self, what, who, *measured):
        self.results.setdefault(what, {}).setdefault(who, Result()).add(*measured)

    def print(self):
        for what, rows in self.results.items():
            first = next(iter(rows.values()))
            print(f"  {what}")
            for who, r in rows.items():
                ratio = r.seconds / first.seconds
                sizes = f"{r.bytes / MIB:10.2f} MiB {r.memory:6.0f} MiB memory"
                print(f"    {who:22}{r.seconds:9.2f} s {ratio:7.2f}x {r.cpu:8.2f} s CPU {sizes}")


# ------------------------------------------------------------------ trees


def generate(root, total):
    """Files of log-uniform size from 1 kB to 50 MB; every other byte of them compresses."""
    rng, made, number = random.Random(SEED), 0, 0
    words = [rng.randbytes(rng.randint(3, 9)).hex() for _ in range(2000)]
    while made < total:
        size = min(int(1000 * 50_000 ** rng.random()), total - made)
        path = root / f"d{rng.randrange(40):02}" / f"f{number:05}"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size, MIB):
                count = min(MIB, size - start)
                data = rng.randbytes(count) if number % 2 else _text(rng, words, count)
                file.write(data)
        made, number = made + size, number + 1


def _text(rng, words, count):
    block = " ".join(rng.choices(words, k=4000)).encode()
    return (block * (count // len(block) + 1))[:count]


def walk(root):
    """Seconds to walk a tree and look at each entry."""
    started = time.perf_counter()
    for parent, names, files in os.walk(root):
        for name in (*names, *files):
            Path(parent, name).lstat()
    return time.perf_counter() - started


def warm_up(root):
    """Reads everything once, so that the disk is nobody's handicap."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.read_bytes()


def change_one(root, number):
    """Writes one file of 1 kB anew, the same one each time; the bytes differ."""
    path = min(p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and 500 < p.stat().st_size < 5000)
    path.write_bytes(random.Random(number).randbytes(1000))


# ------------------------------------------------------------------ measuring


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
    """This process's memory above what it holds when idle; where the kernel cannot tell, since its start."""

    def __init__(self, joins):
        self._joins = joins

    def __enter__(self):
        self._joins.seconds = 0.0
        self._cpu = _cpu()
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._idle = _status("VmRSS")
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._started
        self.joins = self._joins.seconds
        self.cpu = _cpu() - self._cpu
        self.memory = max(0.0, (_status("VmHWM") - self._idle) / 1024)


def _cpu():
    """Seconds of CPU of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


async def pack(store, key, command, tree):
    """Runs a packer and uploads what it writes. Seconds, bytes, memory of its largest process."""
    started, cpu = time.perf_counter(), _cpu()
    process = await asyncio.create_subprocess_exec(*command, ".", cwd=tree, stdout=subprocess.PIPE, limit=4 * CHUNK)

    async def chunks():
        while data := await process.stdout.read(CHUNK):
            yield data

    info = await store.put_stream(key, chunks(), IF_ABSENT)
    assert await process.wait() == 0
    return time.perf_counter() - started, info.size, 0, _cpu() - cpu


async def unpack(store, key, command, target):
    target.mkdir()
    started, cpu = time.perf_counter(), _cpu()
    process = await asyncio.create_subprocess_exec(*command, "-C", target, stdin=subprocess.PIPE)
    count = 0
    async for chunk in store.stream(key):
        process.stdin.write(chunk)
        await process.stdin.drain()
        count += len(chunk)
    process.stdin.close()
    assert await process.wait() == 0
    seconds, used = time.perf_counter() - started, _cpu() - cpu
    shutil.rmtree(target)
    return seconds, count, 0, used


def restic(repository, *arguments, cwd=None):
    """Runs restic. Seconds, bytes that the repository grew by, memory."""
    env = {**os.environ, "RESTIC_PASSWORD": "bench", "RESTIC_REPOSITORY": str(repository)}
    before, started, cpu = _size(repository), time.perf_counter(), _cpu()
    process = subprocess.Popen(["restic", "--no-cache", "-q", *arguments], cwd=cwd, env=env)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - started, _size(repository) - before, usage.ru_maxrss / 1024, _cpu() - cpu


def _size(directory):
    return sum(p.stat().st_size for p in directory.rglob("*") if p.is_file()) if directory.exists() else 0


# ------------------------------------------------------------------ the rounds


async def round_of(number, tree, work, store, table):
    """Everything once, on a tree that ends as it began but for one file."""

    def key(name):
        return f"contexts/r{number}/{name}/workspace.tar.gz"

    for who, (command, _) in PACKERS.items():
        table.add("full snapshot", who, *await pack(store, key(who), command, tree))
    repository = work / f"restic-{number}"
    if shutil.which("restic"):
        restic(repository, "init")
        table.add("full snapshot", "restic", *restic(repository, "backup", ".", cwd=tree))
    snapshots, joins = Snapshots(store), Joins(store)
    with Meter(joins) as meter:
        first = await snapshots.save(tree, key("first"), replaces=0)
    table.add("full snapshot", "a2a-gcs", meter.seconds - meter.joins, first.sent, meter.memory, meter.cpu)
    table.add("full snapshot", "  and the store joins", meter.joins, 0, 0)

    for who, (_, command) in PACKERS.items():
        table.add("restore", who, *await unpack(store, key(who), command, work / "out"))
    if shutil.which("restic"):
        table.add("restore", "restic", *restic(repository, "restore", "latest", "--target", work / "out"))
        shutil.rmtree(work / "out")
    (work / "out").mkdir()
    with Meter(joins) as meter:
        restored = await snapshots.restore(key("first"), first.pin, work / "out")
    table.add("restore", "a2a-gcs", meter.seconds, restored.size, meter.memory, meter.cpu)
    shutil.rmtree(work / "out")

    table.add("nothing changed", "full snapshot", *_best(table, "full snapshot"))
    table.add("nothing changed", "walk alone", walk(tree), 0, 0)
    if shutil.which("restic"):
        table.add("nothing changed", "restic", *restic(repository, "backup", ".", cwd=tree))
    with Meter(joins) as meter:
        second = await snapshots.save(tree, key("second"), replaces=0, base=first.baseline)
    table.add("nothing changed", "a2a-gcs", meter.seconds - meter.joins, second.sent, meter.memory, meter.cpu)
    table.add("nothing changed", "  and the store joins", meter.joins, 0, 0)

    change_one(tree, number)
    table.add("one file changed", "full snapshot", *_best(table, "full snapshot"))
    if shutil.which("restic"):
        table.add("one file changed", "restic", *restic(repository, "backup", ".", cwd=tree))
    with Meter(joins) as meter:
        third = await snapshots.save(tree, key("third"), replaces=0, base=second.baseline)
    table.add("one file changed", "a2a-gcs", meter.seconds - meter.joins, third.sent, meter.memory, meter.cpu)
    table.add("one file changed", "  and the store joins", meter.joins, 0, 0)
    await snapshots.close()


def _best(table, what):
    best = table.results[what]["a2a-gcs"]
    return best.seconds, best.bytes, best.memory, best.cpu


@contextlib.asynccontextmanager
async def opened(options, work):
    if not options.emulator:
        async with LocalStore(work / "store") as store:
            yield store
        return
    with FakeGcsServer() as server:
        create_bucket(server.url, "bench")
        async with GCSStore("bench", emulator=server.url) as store:
            yield store


async def measure(name, make, options):
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="bench-workspaces-") as top:
        tree, work = Path(top) / "tree", Path(top)
        make(tree)
        warm_up(tree)
        files = sum(len(names) for _, _, names in os.walk(tree))
        print(f"{name}: {_size(tree) / MIB:,.0f} MiB in {files:,} files, walked in {walk(tree):.2f} s", flush=True)
        table = Table()
        for number in range(options.rounds):
            async with opened(options, work) as store:
                await round_of(number, tree, work, store, table)
            shutil.rmtree(work / "store", ignore_errors=True)
        table.print()
        return table


def check(name, table):
    """What misses its aim, as lines."""
    full, restore = table.results["full snapshot"], table.results["restore"]
    one, nothing = table.results["one file changed"], table.results["nothing changed"]
    mine = full["a2a-gcs"]
    found = {
        f"full snapshot {full['tar czf'].seconds / mine.seconds:.1f} times as fast as tar czf": (
            mine.seconds * 6 <= full["tar czf"].seconds
        ),
        "full snapshot no slower than any": mine.seconds <= min(r.seconds for r in full.values()),
        "restore faster than tar xzf": restore["a2a-gcs"].seconds < restore["tar czf"].seconds,
        f"one file: {100 * one['a2a-gcs'].bytes / mine.bytes:.2f} % of the bytes": (
            one["a2a-gcs"].bytes < 0.02 * mine.bytes
        ),
        f"one file: {one['a2a-gcs'].seconds / mine.seconds:.2f} of the time": (
            one["a2a-gcs"].seconds < 0.2 * mine.seconds
        ),
        "nothing: no bytes": nothing["a2a-gcs"].bytes == 0,
        f"nothing: {nothing['a2a-gcs'].seconds - nothing['walk alone'].seconds:.2f} s beyond walking": (
            nothing["a2a-gcs"].seconds - nothing["walk alone"].seconds < 0.2
        ),
        "memory": max(t["a2a-gcs"].memory for t in table.results.values()) < 100,
    }
    for what, met in found.items():
        print(f"  {'met   ' if met else 'MISSED'} {what}")
    return [f"{name}: {what}" for what, met in found.items() if not met]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a generated tree of 48 MiB, one round")
    parser.add_argument("--emulator", action="store_true", help="through the plain emulator instead of a directory")
    parser.add_argument("--tree", choices=["venv", "generated"], help="only this one")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dir", help="where everything is made; default: the temporary directory")
    parser.add_argument("--check", action="store_true", help="fail when an aim is missed")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.tree = 1, "generated"
    size = (48 if options.quick else 1024) * MIB
    trees = {
        "venv": lambda path: subprocess.run(["cp", "-a", sys.prefix, path], check=True),
        "generated": lambda path: (path.mkdir(), generate(path, size)),
    }
    for tool in ("zstd", "restic"):
        if shutil.which(tool) is None:
            print(f"{tool} is missing here: apt-get install {tool}")
            PACKERS.pop(f"tar | {tool} -1", None)
    print(AIMS)
    missed = []
    for name, make in trees.items():
        if options.tree in {None, name}:
            missed += check(name, asyncio.run(measure(name, make, options)))
    if options.check and missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
