"""Legitimate trees come back byte for byte and link for link."""
# Names that are no UTF-8 need bytes; a test may block.
# ruff: noqa: ASYNC221, ASYNC240, PTH103, PTH118, PTH123, PTH211

import os
import shutil
import socket
import subprocess
import venv
from pathlib import Path

import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.unit.workspaces.trees import KEY, describe, member, names, round_trip, stored, tar

OLD = 1_000_000_000_123_456_789


def make_plain(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "x").write_bytes(b"under a")
    (root / "a-b").write_bytes(b"by bytes alone, it would come between a and a/x")
    (root / "empty-directory" / "deeper").mkdir(parents=True)
    (root / "empty").touch()
    (root / "script").write_text("#!/bin/sh\n")
    (root / "script").chmod(0o755)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o000)
    (root / "old").write_text("o")
    os.utime(root / "old", ns=(OLD, OLD))
    os.utime(root / "a", ns=(OLD, OLD))
    (root / "before 1970").write_text("b")
    os.utime(root / "before 1970", ns=(-1_500_000_001, -1_500_000_001))


def make_links(root: Path) -> None:
    (root / "dir").mkdir()
    (root / "dir" / "file").write_text("f")
    for name, text in {
        "relative": "dir/file",
        "absolute": "/etc/hostname",
        "dangling": "not/there",
        "up": "../../somewhere",
        "to directory": "dir",
        "loop": "loop",
        "odd text": "dir//./file/",
        "long": "x/" * 600 + "y",
    }.items():
        (root / name).symlink_to(text)
    os.symlink("dir//./file/", root / "verbatim")
    os.utime(root / "dangling", ns=(OLD, OLD), follow_symlinks=False)


def make_hard_links(root: Path) -> None:
    (root / "z").mkdir()
    (root / "z" / "one").write_bytes(b"shared" * 1000)
    (root / "a").hardlink_to(root / "z" / "one")
    (root / "m").hardlink_to(root / "z" / "one")


def make_names(root: Path) -> None:
    top = os.fsencode(root)
    for name in [
        b"latin-1 \xe4\xf6\xfc",
        b"\xff\xfe",
        "snow \u2603 and \U0001f600".encode(),
        "e\u0301 decomposed".encode(),
        "\u00e9 composed".encode(),
        b"new\nline",
        b"-rf",
        b" leading and trailing ",
        b"back\\slash",
        b"...",
        b"..x",
        b"README",
        b"readme",
        b"n" * 255,
    ]:
        with open(os.path.join(top, name), "wb") as f:
            f.write(name)
    deep = os.path.join(top, *[b"d" * 100] * 12)
    os.makedirs(deep)
    os.symlink(b"to \xff\xfe", os.path.join(deep, b"link \xff"))


def make_read_only(root: Path) -> None:
    (root / "locked" / "inner").mkdir(parents=True)
    (root / "locked" / "inner" / "file").write_text("r")
    (root / "locked" / "inner" / "file").chmod(0o444)
    (root / "locked" / "inner").chmod(0o555)
    (root / "locked").chmod(0o500)
    (root / "closed" / "inner").mkdir(parents=True)
    (root / "closed" / "inner").chmod(0o311)
    (root / "closed" / "file").write_text("c")
    (root / "closed").chmod(0o000)


def make_venv(root: Path) -> None:
    venv.create(root / ".venv", symlinks=True, with_pip=False)


def make_node_modules(root: Path) -> None:
    modules = root / "node_modules"
    for package in ["a", "b"]:
        inner = modules / package / "node_modules" / "shared"
        inner.mkdir(parents=True)
        (inner / "index.js").write_text("module.exports = 1")
        (modules / package / "cli.js").write_text("#!/usr/bin/env node\n")
        (modules / package / "cli.js").chmod(0o755)
    (modules / ".bin").mkdir()
    (modules / ".bin" / "a").symlink_to("../a/cli.js")
    (modules / "workspace").symlink_to("../packages/not-yet")


def make_git(root: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)

    git("init", "-q")
    (root / "code.py").write_text("print()\n" * 100)
    git("add", ".")
    git("commit", "-qm", "first")
    git("gc", "-q")


def make_large(root: Path) -> None:
    (root / "large").write_bytes(os.urandom(9 << 20))
    with (root / "sparse").open("wb") as f:
        f.seek(64 << 20)
        f.write(b"end")
        f.truncate(70 << 20)


ALL = [
    make_plain,
    make_links,
    make_hard_links,
    make_names,
    make_read_only,
    make_venv,
    make_node_modules,
    pytest.param(make_git, marks=pytest.mark.skipif(not shutil.which("git"), reason="needs git")),
    make_large,
]


@pytest.mark.parametrize("make", ALL)
async def test_a_tree_comes_back_equal(make, source, target):
    """Content, modes, times, links and empty directories of the restored tree equal those of the saved one."""
    make(source)
    before = describe(source)

    await round_trip(source, target)

    assert before
    assert describe(target) == before


@pytest.mark.parametrize("make", ALL)
async def test_the_system_tar_reads_what_was_saved(make, source, target, store):
    """`tar xzf` unpacks a snapshot to the same tree."""
    make(source)
    await Snapshots(store).save(source, KEY, replaces=0)
    body = (await store.get(KEY)).body

    done = subprocess.run(["tar", "-xzpf", "-", "-C", target], input=body, capture_output=True, check=False)

    # GNU tar remarks on times before 1970 and on the record that says a name is no UTF-8, and goes on.
    remarks = [line for line in done.stderr.splitlines() if not line.endswith((b".500000001", b"'hdrcharset'"))]
    assert (done.returncode, done.stdout, remarks) == (0, b"", [])
    assert describe(target) == describe(source)


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar"])
@pytest.mark.parametrize("make", [make_plain, make_links, make_hard_links, make_names, make_node_modules])
async def test_what_the_system_tar_wrote_is_restored(make, form, source, target, store):
    """Archives of GNU tar, in the formats it has, restore to the same tree."""
    make(source)
    if form == "ustar":
        shutil.rmtree(source / ("d" * 100), ignore_errors=True)
        (source / "long").unlink(missing_ok=True)
        (source / "before 1970").unlink(missing_ok=True)
        (source / ("n" * 255)).unlink(missing_ok=True)
    packed = subprocess.run(
        ["tar", "-czf", "-", f"--format={form}", "-C", source, "."], capture_output=True, check=True
    ).stdout

    pin = await stored(store, packed, packed=True)
    await Snapshots(store).restore(KEY, pin, target)

    def seconds(tree):
        return {path: (*facts[:2], facts[2] // 10**9, facts[3]) for path, facts in tree.items()}

    exact = (lambda tree: tree) if form == "pax" else seconds
    assert exact(describe(target)) == exact(describe(source))


async def test_a_restored_virtualenv_and_repository_work(source, target):
    """A restored virtualenv runs, and git finds no fault in a restored repository."""
    make_venv(source)
    make_git(source)

    await round_trip(source, target)

    ran = subprocess.run(
        [target / ".venv/bin/python", "-c", "import sys; print(sys.prefix)"], capture_output=True, check=False
    )
    assert ran.returncode == 0
    assert Path(ran.stdout.decode().strip()).resolve() == (target / ".venv").resolve()
    assert subprocess.run(["git", "fsck", "--strict"], cwd=target, capture_output=True, check=False).returncode == 0


async def test_an_empty_workspace_is_a_snapshot_too(source, target, store):
    """Nothing in, a valid archive, nothing out."""
    restored = await round_trip(source, target, store)

    assert restored.entries == 0
    assert describe(target) == {}
    assert names((await store.get(KEY)).body) == []


async def test_modes_count_for_nobody_but_the_owner(unprivileged):
    """Without privileges, unreadable files and closed directories are saved, and keep their modes on both sides."""
    source, target = unprivileged / "source", unprivileged / "target"
    source.mkdir()
    target.mkdir()
    make_plain(source)
    make_read_only(source)
    modes = {path: path.lstat().st_mode for path in [source / "secret", source / "closed", source / "locked"]}

    await round_trip(source, target)

    for path, mode in modes.items():
        assert path.lstat().st_mode == mode
        assert (target / path.name).lstat().st_mode == mode
    for root in [source, target]:
        for name in ["secret", "closed", "closed/inner", "locked"]:
            (root / name).chmod(0o700)
    assert (target / "closed" / "file").read_text() == "c"
    assert describe(target).keys() == describe(source).keys()


async def test_holes_stay_holes(source, target):
    """A sparse file of 70 MiB takes next to nothing on disk when restored."""
    make_large(source)

    await round_trip(source, target)

    assert (target / "sparse").stat().st_blocks * 512 < 4 << 20
    assert (target / "sparse").stat().st_size == 70 << 20


async def test_sockets_and_fifos_are_left_out_with_a_note(source, target, store):
    """What cannot travel is skipped and said; the rest is saved."""
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(source / "socket"))
        (source / "file").write_text("f")
        saved = await Snapshots(store).save(source, KEY, replaces=0)

    assert sorted(saved.notes) == ["pipe: left out, it is a FIFO", "socket: left out, it is a socket"]
    assert names((await store.get(KEY)).body) == ["file"]


async def test_set_uid_bits_do_not_travel(source, target, store):
    """Set-uid and set-gid bits are dropped on the way out, with a note, and on the way in."""
    (source / "tool").write_text("t")
    (source / "tool").chmod(0o6755)
    snapshots = Snapshots(store)

    saved = await snapshots.save(source, KEY, replaces=0)
    await snapshots.restore(KEY, saved.pin, target)

    assert saved.notes == ("tool: saved without its set-uid and set-gid bits",)
    assert (target / "tool").stat().st_mode & 0o7777 == 0o755


async def test_set_uid_bits_of_a_foreign_archive_are_stripped(target, store):
    """An archive that asks for set-uid, set-gid and sticky gets plain permissions, for files and directories."""
    pin = await stored(store, tar(member("f", mode=0o7755), member("d", b"5", mode=0o7711)))

    await Snapshots(store).restore(KEY, pin, target)

    assert (target / "f").stat().st_mode & 0o7777 == 0o755
    assert (target / "d").stat().st_mode & 0o7777 == 0o711


async def test_equal_trees_have_equal_bytes(source, target, tmp_path):
    """Bytes depend on the tree alone: not on the order it was made in, its owner's clock, or its place."""
    make_plain(source)
    make_names(source)
    shutil.copytree(source, tmp_path / "copy", symlinks=True)
    for path in sorted((tmp_path / "copy").iterdir(), reverse=True):
        path.rename(target / path.name)  # another order in the directory
    for root in [source, target]:
        for parent, directories, files in os.walk(os.fsencode(root)):
            for name in [*directories, *files]:
                os.utime(os.path.join(parent, name), ns=(OLD, OLD), follow_symlinks=False)
    stores = [MemoryStore(), MemoryStore()]

    for root, store in zip([source, target], stores, strict=True):
        await Snapshots(store).save(root, KEY, replaces=0)

    one, two = [(await store.get(KEY)).body for store in stores]
    assert one == two
    assert one[4:8] == bytes(4)  # no time in the gzip header
    packed = names(one)
    assert packed == sorted(packed, key=lambda name: os.fsencode(name).split(b"/"))


async def test_deleted_files_stay_deleted(source, target, tmp_path, store):
    """A file removed after a restore is not in the next snapshot, nor in what is restored from it."""
    make_plain(source)
    snapshots = Snapshots(store)
    first = await snapshots.save(source, KEY, replaces=0)
    await snapshots.restore(KEY, first.pin, target)
    (target / "old").unlink()
    shutil.rmtree(target / "a")
    after = describe(target)
    last = tmp_path / "last"
    last.mkdir()

    second = await snapshots.save(target, KEY, replaces=first.pin.generation)
    await snapshots.restore(KEY, second.pin, last)

    assert b"old" not in after
    assert describe(last) == after
