"""Directories that workspaces are measured with, and what is done to them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmark.runner import SEED

MIB = 1 << 20
ROOMY = Path("/dev/shm")


def place(needed, otherwise):
    """Where so many bytes can be kept without a disk, which would measure itself; else `otherwise`."""
    free = shutil.disk_usage(ROOMY).free if ROOMY.is_dir() and os.access(ROOMY, os.W_OK) else 0
    return ROOMY if free > needed and _memory() > needed else otherwise


def _memory():
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024


def generate(root, total):
    """Files of log-uniform size from 1 kB to 50 MB, the same in each run; about half of the bytes do not compress.

    No file is over a twentieth of a tree, so that one does not make up a small tree.
    """
    root.mkdir()
    rng, made, number = random.Random(SEED), 0, 0
    words = [rng.randbytes(rng.randint(3, 9)).hex() for _ in range(2000)]
    while made < total:
        size = min(int(1000 * 50_000 ** rng.random()), total // 20, total - made)
        path = root / f"d{rng.randrange(40):02}" / f"f{number:05}"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size, MIB):
                count = min(MIB, size - start)
                file.write(rng.randbytes(count) if number % 2 else _text(rng, words, count))
        made, number = made + size, number + 1


def _text(rng, words, count):
    block = " ".join(rng.choices(words, k=4000)).encode()
    return (block * (count // len(block) + 1))[:count]


def virtualenv(root):
    """A copy of the virtualenv that runs this, without the other environments that are kept inside it."""
    root.mkdir()
    own = [Path(sys.prefix, name) for name in ("bin", "include", "lib", "lib64", "pyvenv.cfg")]
    subprocess.run(["cp", "-a", *(path for path in own if path.exists()), root], check=True)


def files_of(root):
    return sum(len(names) for _, _, names in os.walk(root))


def bytes_of(root):
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())


def walk(root):
    """Seconds to walk a tree and look at each entry."""
    started = time.perf_counter()
    for parent, names, files in os.walk(root):
        for name in (*names, *files):
            Path(parent, name).lstat()
    return time.perf_counter() - started


def change_one(root, number):
    """Writes one file of about 1 kB anew, the same one each time; the bytes differ with the number."""
    path = min(p for p in root.rglob("*") if p.is_file() and not p.is_symlink() and 500 < p.stat().st_size < 5000)
    path.write_bytes(random.Random(number).randbytes(1000))
