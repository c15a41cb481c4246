"""The local store between processes: compare-and-swap, kill -9, and what people see in the directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from a2a_gcs.errors import Conflict, NotFound
from a2a_gcs.objectstore import IF_ABSENT, OVERWRITE, IfVersion, LocalStore
from a2a_gcs.objectstore.local_draft import SMALL
from a2a_gcs.objectstore.rules import crc32c

COUNT = """
import asyncio, sys
from a2a_gcs.errors import Conflict
from a2a_gcs.objectstore import IfVersion, LocalStore
async def main(root, times):
    async with LocalStore(root) as store:
        for _ in range(int(times)):
            while True:
                blob = await store.get("n")
                try:
                    await store.put("n", str(int(blob.body) + 1).encode(), IfVersion(blob.info.version))
                    break
                except Conflict:
                    pass
asyncio.run(main(*sys.argv[1:]))
"""

WRITE = """
import asyncio, itertools, sys
from a2a_gcs.objectstore import OVERWRITE, LocalStore
async def main(root, name):
    async with LocalStore(root) as store:
        for number in itertools.count():
            key = f"{name}/{number % 7}"
            body = f"{number}".encode() * (2000 if number % 2 else 70_000)  # in the index, and in a file
            info = await store.put(key, body, OVERWRITE, metadata={"number": str(number)})
            print(key, number, info.version, flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


def in_the_index(root):
    """How many bodies the index holds."""
    with contextlib.closing(sqlite3.connect(root / ".objectstore" / "index.sqlite")) as index:
        return index.execute("SELECT count(*) FROM bodies").fetchone()[0]


def run(code, *args, **kwargs):
    package = Path(sys.modules["a2a_gcs"].__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], env=environment, **kwargs)


async def test_compare_and_swap_between_processes(tmp_path):
    """Three processes that add one forty times each come to one hundred and twenty."""
    async with LocalStore(tmp_path) as store:
        await store.put("n", b"0", IF_ABSENT)
        processes = [run(COUNT, tmp_path, 40) for _ in range(3)]
        assert [await asyncio.to_thread(process.wait) for process in processes] == [0, 0, 0]
        assert (await store.get("n")).body == b"120"


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path):
    """Writers are killed in mid-loop; every acknowledged write is there whole, or a later one of the same key."""
    acknowledged = {}
    for round_number in range(4):
        writers = [run(WRITE, tmp_path, f"w{index}", stdout=subprocess.PIPE, text=True) for index in range(2)]
        for index, writer in enumerate(writers):
            for _ in range(5 + 11 * round_number + 3 * index):  # killed at a different place every time
                key, number, version = (await asyncio.to_thread(writer.stdout.readline)).split()
                acknowledged[key] = int(version), int(number)
            os.kill(writer.pid, signal.SIGKILL)
            rest, _ = writer.communicate()
            for line in rest.splitlines():
                with contextlib.suppress(ValueError):  # the last line may be cut
                    key, number, version = line.split()
                    acknowledged[key] = int(version), int(number)
    async with LocalStore(tmp_path) as store:
        await store.put("after", b"still writable", IF_ABSENT)
        infos = {info.key: info for info in (await store.list("")).objects}
        for key, (version, _) in acknowledged.items():
            assert infos[key].version >= version
        for key, info in infos.items():
            blob = await store.get(key, with_metadata=True)
            assert crc32c(blob.body) == info.crc32c
            if key != "after":
                number = blob.info.metadata["number"]
                assert blob.body == number.encode() * (2000 if int(number) % 2 else 70_000)
            assert (tmp_path / key).read_bytes() == blob.body
        blobs = [path for path in (tmp_path / ".objectstore" / "blobs").rglob("*") if path.is_file()]
        assert len(blobs) == sum(info.size > SMALL for info in infos.values()) > 0
        assert in_the_index(tmp_path) == sum(info.size <= SMALL for info in infos.values()) > 0


@pytest.mark.parametrize("size", [1, SMALL + 1])
async def test_a_writer_killed_between_commit_and_tidying(size, tmp_path):
    """The next writer reads the dead one's note: it drops the old blob and shows the new body."""
    killed = """
import asyncio, os, signal, sys
from a2a_gcs.objectstore import OVERWRITE, LocalStore
from a2a_gcs.objectstore.local_tree import LocalTree
async def main(root, size):
    async with LocalStore(root) as store:
        await store.put("a/k", b"o" * int(size), OVERWRITE)
        LocalTree._settle = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        await store.put("a/k", b"n" * int(size), OVERWRITE)
asyncio.run(main(*sys.argv[1:]))
"""
    assert await asyncio.to_thread(run(killed, tmp_path, size).wait) == -signal.SIGKILL
    assert (tmp_path / "a/k").read_bytes() == b"o" * size
    async with LocalStore(tmp_path) as store:
        assert (await store.get("a/k")).body == b"n" * size
        assert (tmp_path / "a/k").read_bytes() == b"n" * size
        blobs = [path for path in (tmp_path / ".objectstore/blobs").rglob("*") if path.is_file()]
        assert len(blobs) + in_the_index(tmp_path) == 1


async def test_a_writer_killed_before_its_commit(tmp_path):
    """What it was about to make is not there: the row names the old body, and the next writer drops the new one."""
    killed = """
import asyncio, os, signal, sys
from a2a_gcs.objectstore import OVERWRITE, LocalStore
from a2a_gcs.objectstore.local_tree import LocalTree
async def main(root, size):
    async with LocalStore(root) as store:
        await store.put("a/k", b"o" * int(size), OVERWRITE)
        moved = LocalTree._move_in
        LocalTree._move_in = lambda *of: (moved(*of), os.kill(os.getpid(), signal.SIGKILL))
        await store.put("a/k", b"n" * int(size), OVERWRITE)
asyncio.run(main(*sys.argv[1:]))
"""
    size = SMALL + 1
    assert await asyncio.to_thread(run(killed, tmp_path, size).wait) == -signal.SIGKILL
    assert len([path for path in (tmp_path / ".objectstore/blobs").rglob("*") if path.is_file()]) == 2
    async with LocalStore(tmp_path) as store:
        assert (await store.get("a/k")).body == b"o" * size
        await store.put("b", b"1", IF_ABSENT)
        assert (tmp_path / "a/k").read_bytes() == b"o" * size
        assert len([path for path in (tmp_path / ".objectstore/blobs").rglob("*") if path.is_file()]) == 1


async def test_versions_do_not_repeat_when_the_store_is_opened_again(tmp_path):
    """Nor in a second store of the same directory, nor after the directory was removed."""
    versions = []
    for _ in range(3):
        async with LocalStore(tmp_path / "d") as one, LocalStore(tmp_path / "d") as other:
            versions.append((await one.put("k", b"", IF_ABSENT)).version)
            await other.delete("k")
            versions.append((await other.put("k", b"", IF_ABSENT)).version)
            await one.delete("k", version=versions[-1])
    await asyncio.to_thread(subprocess.run, ["rm", "-rf", tmp_path / "d"], check=True)
    async with LocalStore(tmp_path / "d") as store:
        versions.append((await store.put("k", b"", IF_ABSENT)).version)
    assert versions == sorted(set(versions))


async def test_people_can_look_at_the_tree(tmp_path):
    """Bodies stand under their keys, for cat and tar, and disappear with their objects."""
    async with LocalStore(tmp_path) as store:
        await store.put("tasks/t1/contextId.txt", b"c1", OVERWRITE)
        await store.put("tasks/t1/contextId.txt", b"c2", OVERWRITE)
        await store.put_stream("contexts/c/w.tar.gz", chunks(b"1", b"2"), OVERWRITE)
        assert (tmp_path / "tasks/t1/contextId.txt").read_bytes() == b"c2"
        with tarfile.open(tmp_path.parent / "copy.tar", "w") as archive:
            archive.add(tmp_path / "contexts", "contexts")
        with tarfile.open(tmp_path.parent / "copy.tar") as archive:
            assert archive.extractfile("contexts/c/w.tar.gz").read() == b"12"
        await store.delete("contexts/c/w.tar.gz")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".objectstore", "tasks"]


async def test_nothing_leaves_the_directory(tmp_path):
    """Not by dots in a key, and not through a link that somebody put into the view."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    async with LocalStore(root) as store:
        await store.put("x/1", b"", OVERWRITE)
        (root / "link").symlink_to(outside)
        for key in ("../up", "x/../../up", "/abs", "link/in", "link/kept", "link/deep/er"):
            await store.put(key, b"1", OVERWRITE)
            assert (await store.get(key)).body == b"1"
            await store.delete(key)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "root"]
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_bytes() == b"kept"


async def test_abandoned_bodies_are_swept(tmp_path):
    """A body that a killed writer left half written a day ago goes when the store is opened; a fresh one stays."""
    incoming = tmp_path / ".objectstore" / "incoming"
    incoming.mkdir(parents=True)
    for name in ("old", "fresh"):
        (incoming / name).write_bytes(b"half")
    os.utime(incoming / "old", (0, 0))
    async with LocalStore(tmp_path) as store:
        with pytest.raises(NotFound):
            await store.head("k")
    assert [path.name for path in incoming.iterdir()] == ["fresh"]


async def test_durable_store_keeps_the_contract(tmp_path):
    """fsync changes when a write is acknowledged, not what it does."""
    async with LocalStore(tmp_path, durable=True) as store:
        info = await store.put("k", b"1", IF_ABSENT)
        with pytest.raises(Conflict):
            await store.put("k", b"2", IfVersion(info.version + 1))
        assert (await store.get("k")).body == b"1"


async def chunks(*pieces):
    for piece in pieces:
        yield piece
