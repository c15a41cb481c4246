"""Snapshots in parts: what is uploaded, that archives equal full ones, and what happens when steps fail."""

import asyncio
import dataclasses
import io
import os
import random
import shutil
import subprocess
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_gcs.errors import Conflict, Unavailable
from a2a_gcs.layout import part_key, parts_prefix
from a2a_gcs.objectstore.local import LocalStore
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE
from a2a_gcs.objectstore.retry import RetryingStore
from a2a_gcs.workspaces.errors import SnapshotMissing
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.faulty_store import FaultyStore
from tests.unit.workspaces.trees import describe

SMALL = 2048


def key(task):
    return f"contexts/c/{task}/workspace.tar.gz"


PARTS = parts_prefix(key("a"))


def in_parts(store, **options):
    """Parts of two kilobytes, so that a small tree has many."""
    return Snapshots(store, **{"whole": 0, "smallest_part": SMALL, "pause": 0.0, **options})


def fill(root, seed=1, files=60, size=700):
    """Files that do not compress, in a few directories, one of several parts."""
    rng = random.Random(seed)
    for n in range(files):
        path = root / f"d{n % 5}" / f"f{n:03}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(rng.randbytes(size))
    (root / "large").write_bytes(rng.randbytes(10 * SMALL + 100))
    (root / "link").symlink_to("nowhere")
    (root / "empty").mkdir()
    return root


@pytest.fixture
def no_tick(monkeypatch):
    """Trusts all stamps: the entries of a test are younger than those of a workspace."""
    monkeypatch.setattr("a2a_gcs.workspaces.manifest.TICK", 0)


@pytest.fixture
def all_young(monkeypatch):
    """Trusts no stamp, as if everything had been written just now."""
    monkeypatch.setattr("a2a_gcs.workspaces.manifest.TICK", 1 << 62)


async def restored(snapshots, saved, task, directory):
    directory.mkdir()
    return await snapshots.restore(key(task), saved.pin, directory)


async def full(directory):
    """The bytes of a snapshot without any knowledge of an earlier one."""
    store = MemoryStore()
    await in_parts(store).save(directory, key("full"), replaces=0)
    return (await store.get(key("full"))).body


def keys(store):
    return {name for name in store._objects if name.startswith(PARTS)}


def tar_extracts(archive, target):
    subprocess.run(["tar", "xzf", "-", "-C", target], input=archive, check=True)


# ---------------------------------------------------------------- what is uploaded


async def test_the_archive_is_one_plain_tar_gz(source, target, store):
    """Joined from more parts than one compose takes, any tar reads it, and nothing is left of the joining."""
    fill(source)
    snapshots = in_parts(store)
    saved = await snapshots.save(source, key("a"), replaces=0)
    await snapshots.close()
    archive = (await store.get(key("a"))).body
    tar_extracts(archive, target)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        assert len(members.getnames()) == saved.entries
    assert describe(target) == describe(source)
    assert len(keys(store)) > 32
    assert keys(store) == {part_key(key("a"), name) for name in saved.baseline.known}


async def test_an_unchanged_workspace_uploads_no_bytes(source, tmp_path, no_tick):
    """Under the next task it is a copy on the store's side, from a restored directory as from a saved one."""
    async with FaultyStore(MemoryStore()) as store:
        snapshots = in_parts(store)
        first = await snapshots.save(fill(source), key("a"), replaces=0)
        again = await restored(snapshots, first, "a", tmp_path / "again")
        before = len(store.calls)
        second = await snapshots.save(tmp_path / "again", key("b"), replaces=0, base=again.baseline)
        third = await snapshots.save(tmp_path / "again", key("b"), replaces=second.pin.generation, base=second.baseline)
        assert store.calls[before:] == [("compose", key("b")), ("compose", key("b"))]
    assert second.sent == third.sent == 0
    assert first.pin.crc32c == second.pin.crc32c == third.pin.crc32c
    assert third.pin.generation > second.pin.generation


@pytest.mark.parametrize("whole", [0, 1 << 30])
async def test_unchanged_files_too_young_to_tell_are_read_and_not_sent(whole, source, tmp_path, all_young):
    """Whose stamps cannot be trusted yet is packed again; as the bytes are the same, none are uploaded."""
    async with FaultyStore(MemoryStore()) as store:
        snapshots = in_parts(store, whole=whole)
        first = await snapshots.save(fill(source), key("a"), replaces=0)
        again = await restored(snapshots, first, "a", tmp_path / "again")
        before = len(store.calls)
        second = await snapshots.save(tmp_path / "again", key("b"), replaces=0, base=again.baseline)
        assert store.calls[before:] == [("compose", key("b"))]
    assert second.sent == 0
    assert second.pin.crc32c == first.pin.crc32c


async def test_a_small_change_uploads_about_what_changed(source, store, tmp_path, no_tick):
    """One file of sixty: its part and the table, on a host that saved the archive and on one that restored it."""
    snapshots = in_parts(store)
    first = await snapshots.save(fill(source), key("a"), replaces=0)
    again = await restored(snapshots, first, "a", tmp_path / "again")
    for directory, base, task in ((source, first.baseline, "b"), (tmp_path / "again", again.baseline, "c")):
        (directory / "d1" / "f001").write_bytes(os.urandom(700))
        saved = await snapshots.save(directory, key(task), replaces=0, base=base)
        assert saved.sent < 4 * SMALL + 60 * len(saved.baseline.known)
        assert (await store.get(key(task))).body == await full(directory)


async def test_what_is_appended_to_a_large_file_is_what_is_sent(source, store, no_tick):
    """Its header and its last part are new; what comes before is kept, though the file was read."""
    snapshots = in_parts(store)
    first = await snapshots.save(fill(source), key("a"), replaces=0)
    with (source / "large").open("ab") as file:
        file.write(b"more")
    saved = await snapshots.save(source, key("b"), replaces=0, base=first.baseline)
    new = saved.baseline.known - first.baseline.known
    assert len(new) == 3
    assert (await store.get(key("b"))).body == await full(source)


async def test_a_same_size_edit_with_its_times_put_back_is_found(source, store, target, no_tick):
    """As `touch -r` does it: the ctime tells, which nobody can put back."""
    snapshots = in_parts(store)
    first = await snapshots.save(fill(source), key("a"), replaces=0)
    path = source / "d2" / "f002"
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    saved = await snapshots.save(source, key("b"), replaces=0, base=first.baseline)
    await snapshots.restore(key("b"), saved.pin, target)
    assert (target / "d2" / "f002").read_bytes()[-1:] == b"!"
    assert describe(target) == describe(source)


async def test_a_file_swapped_for_a_twin_is_found(source, store, target, no_tick):
    """Another file of the same name, size and times has another inode."""
    snapshots = in_parts(store)
    first = await snapshots.save(fill(source), key("a"), replaces=0)
    path = source / "d2" / "f002"
    before = path.stat()
    (source / "twin").write_bytes(bytes(700))
    os.utime(source / "twin", ns=(before.st_atime_ns, before.st_mtime_ns))
    (source / "twin").rename(path)
    saved = await snapshots.save(source, key("b"), replaces=0, base=first.baseline)
    await snapshots.restore(key("b"), saved.pin, target)
    assert (target / "d2" / "f002").read_bytes() == bytes(700)


@pytest.mark.parametrize("whole", [0, 1 << 30])
async def test_an_edit_in_the_tick_of_the_last_look_is_found(whole, source, store, target, all_young):
    """Where the stamp is the same before and after, a file that was young is read again."""
    snapshots = in_parts(store, whole=whole)
    fill(source)
    path = source / "d2" / "f002"
    path.write_bytes(bytes(700))
    first = await snapshots.save(source, key("a"), replaces=0)
    assert b"d2/f002" in first.baseline.recent
    path.write_bytes(b"1" * 700)
    os.utime(source / "d2", ns=(5, 5))
    second = await snapshots.save(source, key("b"), replaces=0)
    blind = dataclasses.replace(first.baseline, stamps=second.baseline.stamps)  # as if no stamp had changed
    third = await snapshots.save(source, key("c"), replaces=0, base=blind)
    await snapshots.restore(key("c"), third.pin, target)
    assert (target / "d2" / "f002").read_bytes() == b"1" * 700


async def test_a_hard_link_whose_first_name_is_left_out_from_now_on(source, store, target, no_tick):
    """A pattern takes the content's entry away without touching a file; the link then carries the content."""
    fill(source)
    (source / "d0" / "a-first").write_bytes(os.urandom(500))
    os.link(source / "d0" / "a-first", source / "z-second")
    snapshots = in_parts(store)
    first = await snapshots.save(source, key("a"), replaces=0)
    (source / ".a2aignore").write_text("a-first\n")
    saved = await snapshots.save(source, key("b"), replaces=0, base=first.baseline)
    await snapshots.restore(key("b"), saved.pin, target)
    assert (target / "z-second").read_bytes() == (source / "z-second").read_bytes()
    assert not (target / "d0" / "a-first").exists()


# ---------------------------------------------------------------- the same as a full one


edits = st.lists(
    st.tuples(
        st.sampled_from(["write", "append", "remove", "rename", "link", "chmod", "mkdir", "rmdir", "symlink"]),
        st.integers(0, 30),
        st.integers(0, 6000),
    ),
    max_size=8,
)


def apply(root, edit):  # noqa: C901 - one branch per edit
    what, n, size = edit
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink())
    name = root / f"d{n % 5}" / f"n{n}"
    name.parent.mkdir(exist_ok=True)
    chosen = files[n % len(files)] if files else None
    if what == "write":
        name.unlink(missing_ok=True)
        name.write_bytes(random.Random(size).randbytes(size))
    elif what == "mkdir":
        (root / f"m{n}").mkdir(exist_ok=True)
    elif what == "rmdir":
        shutil.rmtree(root / f"d{n % 5}")
    elif what == "symlink" and not name.exists() and not name.is_symlink():
        name.symlink_to(f"to-{size}")
    elif chosen is None:
        return
    elif what == "append":
        with chosen.open("ab") as file:
            file.write(random.Random(size).randbytes(size))
    elif what == "remove":
        chosen.unlink()
    elif what == "rename":
        chosen.rename(root / f"r{n}")
    elif what == "link" and not (root / f"l{n}").exists():
        os.link(chosen, root / f"l{n}")
    elif what == "chmod":
        chosen.chmod(0o600 + size % 8 * 8)


@settings(max_examples=40, deadline=None)
@given(st.lists(edits, min_size=1, max_size=4), st.booleans())
def test_an_incremental_archive_is_the_full_one_byte_for_byte(turns, elsewhere):
    """Whatever is done to a tree between saves, on one host or from host to host; and no old snapshot changes."""

    async def check(top):
        store = MemoryStore()
        snapshots = in_parts(store)
        directory = fill(Path(top) / "0", files=20) if (Path(top) / "0").mkdir() is None else None
        base, pins = None, []
        for number, turn in enumerate(turns):
            for edit in turn:
                apply(directory, edit)
            saved = await snapshots.save(directory, key(f"t{number}"), replaces=0, base=base)
            assert (await store.get(key(f"t{number}"))).body == await full(directory)
            pins.append((f"t{number}", saved, describe(directory)))
            base = saved.baseline
            if elsewhere:
                directory = Path(top) / f"host-{number}"
                base = (await restored(snapshots, saved, f"t{number}", directory)).baseline
                assert describe(directory) == pins[-1][2]
        for number, (task, saved, tree) in enumerate(pins):
            again = Path(top) / f"again-{number}"
            await restored(snapshots, saved, task, again)
            assert describe(again) == tree
        await snapshots.close()

    with tempfile.TemporaryDirectory() as top:
        asyncio.run(check(top))


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_tree_that_grows_over_the_edge_of_a_part_size_is_not_sent_anew(source, tmp_path, store, elsewhere):
    """Nor when it shrinks again: 256 parts are no edge to an archive that has as many already."""
    snapshots = in_parts(store)
    rng = random.Random(7)
    for n in range(25):
        (source / f"f{n:02}").write_bytes(rng.randbytes(20_000))
    saved = await snapshots.save(source, key("t0"), replaces=0)
    directory, total = source, saved.sent
    for number, size in enumerate((40_000, 0), 1):
        (directory / "more").write_bytes(rng.randbytes(size))
        saved = await snapshots.save(directory, key(f"t{number}"), replaces=0, base=saved.baseline)
        assert saved.sent < size + total / 10
        if elsewhere:
            directory = tmp_path / f"host-{number}"
            saved = await restored(snapshots, saved, f"t{number}", directory)
    await snapshots.close()


# ---------------------------------------------------------------- when steps fail


class Crash(Exception):
    """The host died at this point: nobody retries."""


async def crash(_):
    raise Crash


WRITES = [
    ("put", f"{PARTS}*", "before", 1),
    ("put", f"{PARTS}*", "after", 1),
    ("put", f"{PARTS}*", "before", 2),
    ("put", f"{PARTS}*", "after", 2),
    ("compose", f"{PARTS}*", "before", 1),
    ("compose", f"{PARTS}*", "after", 2),
    ("compose", key("a"), "before", 1),
]


@pytest.mark.parametrize("step", WRITES)
async def test_a_crash_at_any_step_leaves_the_old_snapshot_whole(step, source, tmp_path, no_tick):
    """Part, table, intermediate and final join: the old archive is where it was, and the next host can save."""
    op, pattern, when, nth = step
    async with FaultyStore(MemoryStore()) as store:
        snapshots = in_parts(store)
        old = await snapshots.save(fill(source), key("a"), replaces=0)
        tree = describe(source)
        (source / "d1" / "f001").write_bytes(os.urandom(700))
        store.act(op, pattern, crash, nth=nth, when=when)
        with pytest.raises(Crash):
            await snapshots.save(source, key("a"), replaces=old.pin.generation, base=old.baseline)
        await snapshots.close()

        other = in_parts(store)
        assert (await store.head(key("a"))).version == old.pin.generation
        base = await restored(other, old, "a", tmp_path / "old")
        assert describe(tmp_path / "old") == tree
        (tmp_path / "old" / "d3" / "f003").write_bytes(os.urandom(700))
        saved = await other.save(tmp_path / "old", key("a"), replaces=old.pin.generation, base=base.baseline)
        assert (await store.get(key("a"))).body == await full(tmp_path / "old")
        assert (await store.head(key("a"))).version == saved.pin.generation
        await other.close()


async def test_a_crash_right_after_the_join_leaves_the_new_snapshot_whole(source, tmp_path, no_tick):
    """The archive is the old one or the new one, and never anything between."""
    async with FaultyStore(MemoryStore()) as store:
        snapshots = in_parts(store)
        old = await snapshots.save(fill(source), key("a"), replaces=0)
        (source / "d1" / "f001").write_bytes(os.urandom(700))
        store.act("compose", key("a"), crash, when="after")
        with pytest.raises(Crash):
            await snapshots.save(source, key("a"), replaces=old.pin.generation, base=old.baseline)
        assert (await store.get(key("a"))).body == await full(source)
        await snapshots.close()


@pytest.mark.parametrize("op", ["put", "compose"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_at_any_step_is_retried(op, when, source, no_tick):
    """Unavailable, before or after the store did it: the save succeeds, and once."""
    async with FaultyStore(MemoryStore()) as store:
        snapshots = in_parts(store)
        old = await snapshots.save(fill(source), key("a"), replaces=0)
        (source / "d1" / "f001").write_bytes(os.urandom(700))
        store.fail(op, when=when)
        if op == "compose":
            store.fail(op, key("a"), when=when)
        saved = await snapshots.save(source, key("a"), replaces=old.pin.generation, base=old.baseline)
        assert (await store.head(key("a"))).version == saved.pin.generation
        assert (await store.get(key("a"))).body == await full(source)
        await snapshots.close()


async def test_a_join_meets_another_writer(source, store, no_tick):
    """Whoever wrote the archive since the claim stays: Conflict."""
    snapshots = in_parts(store)
    old = await snapshots.save(fill(source), key("a"), replaces=0)
    other = await store.put(key("a"), b"other", OVERWRITE)
    (source / "d1" / "f001").write_bytes(os.urandom(700))
    for base in (old.baseline, None):
        with pytest.raises(Conflict):
            await snapshots.save(source, key("a"), replaces=old.pin.generation, base=base)
    with pytest.raises(Conflict):
        await snapshots.save(source, key("a"), replaces=0)
    assert (await store.head(key("a"))).version == other.version
    await snapshots.close()


async def test_an_unchanged_workspace_meets_another_writer(source, store, no_tick):
    """The copy is as conditional as an upload."""
    snapshots = in_parts(store)
    old = await snapshots.save(fill(source), key("a"), replaces=0)
    await store.put(key("b"), b"other", OVERWRITE)
    with pytest.raises(Conflict):
        await snapshots.save(source, key("b"), replaces=0, base=old.baseline)
    assert (await store.get(key("b"))).body == b"other"
    await snapshots.close()


@pytest.mark.parametrize("whole", [0, 1 << 30])
async def test_what_the_same_claim_has_written_unheard_may_be_replaced(whole, source, store, no_tick):
    """A checkpoint whose answer was lost is no other writer, and a claim of another name is one."""
    snapshots = in_parts(store, whole=whole)
    await snapshots.save(fill(source), key("a"), replaces=0, owner="host/1")
    (source / "new").write_text("new")
    with pytest.raises(Conflict):
        await snapshots.save(source, key("a"), replaces=0, owner="host/2")
    saved = await snapshots.save(source, key("a"), replaces=0, owner="host/1")
    assert await snapshots.stored(key("a"), "host/1") == saved.pin
    assert await snapshots.stored(key("a"), "host/2") is None
    assert await snapshots.stored(key("b"), "host/1") is None
    await snapshots.close()


@pytest.mark.parametrize("how", ["deleted", "damaged", "all deleted"])
async def test_parts_that_are_not_there_are_uploaded_again(how, source, store, no_tick):
    """They are a cache: a rule may delete them, and one that is not what its name says is replaced."""
    snapshots = in_parts(store)
    old = await snapshots.save(fill(source), key("a"), replaces=0)
    await snapshots.close()
    names = sorted(keys(store))
    (source / "d1" / "f001").write_bytes(os.urandom(700))
    for name in names if how == "all deleted" else names[:1] + names[-1:]:
        if how == "damaged":
            await store.put(name, b"damaged", OVERWRITE)
        else:
            await store.delete(name)
    saved = await snapshots.save(source, key("b"), replaces=0, base=old.baseline)
    assert (await store.get(key("b"))).body == await full(source)
    assert keys(store) >= {part_key(key("b"), name) for name in saved.baseline.known}
    await snapshots.close()


async def test_an_unchanged_workspace_whose_archive_is_gone_is_saved_in_full(source, store, no_tick):
    """There is nothing to copy from, and all of it is here."""
    snapshots = in_parts(store)
    old = await snapshots.save(fill(source), key("a"), replaces=0)
    await store.delete(key("a"))
    saved = await snapshots.save(source, key("b"), replaces=0, base=old.baseline)
    await store.put(key("b"), (await store.get(key("b"))).body, OVERWRITE)
    again = await snapshots.save(source, key("c"), replaces=0, base=saved.baseline)
    assert (await store.get(key("c"))).body == await full(source)
    assert again.pin.crc32c == old.pin.crc32c
    await snapshots.close()


@pytest.mark.parametrize("whole", [0, 1 << 30])
async def test_the_retrying_store_does_not_hide_a_conflict(whole, source, no_tick):
    """Under it, lost answers are successes and other writers are Conflicts, in parts as in one."""
    faulty = FaultyStore(MemoryStore())
    async with faulty:
        snapshots = in_parts(RetryingStore(faulty, unavailable_wait=0.001), whole=whole)
        op = "put_stream" if whole else "compose"
        faulty.fail(op, key("a"), when="after")
        saved = await snapshots.save(fill(source), key("a"), replaces=0)
        assert (await faulty.head(key("a"))).version == saved.pin.generation
        with pytest.raises(Conflict):
            await snapshots.save(source, key("a"), replaces=0)
        await snapshots.close()


# ---------------------------------------------------------------- restoring in parts


async def test_a_restore_reads_parts_and_not_the_archive(source, target):
    """They come a few at once, and the archive itself is only looked at."""
    async with FaultyStore(MemoryStore()) as store:
        snapshots = in_parts(store)
        saved = await snapshots.save(fill(source), key("a"), replaces=0)
        restored = await snapshots.restore(key("a"), saved.pin, target)
        assert describe(target) == describe(source)
        assert store.count("stream") == 0
        assert store.count("head", key("a")) == 1
        assert store.count("get") == len(saved.baseline.known)
        assert restored.baseline.units == saved.baseline.units
        await snapshots.close()


@pytest.mark.parametrize("which", ["tail", "part"])
@pytest.mark.parametrize("how", ["deleted", "damaged", "another"])
async def test_a_restore_without_its_parts_reads_the_archive(which, how, source, target, store):
    """A part that is gone, or is not what the archive was joined from: the archive itself is whole."""
    snapshots = in_parts(store)
    saved = await snapshots.save(fill(source), key("a"), replaces=0)
    await snapshots.close()
    tail = part_key(key("a"), saved.baseline.tail)
    bad = tail if which == "tail" else sorted(keys(store) - {tail})[3]
    if how == "deleted":
        await store.delete(bad)
    elif how == "damaged":
        await store.put(bad, b"damaged", OVERWRITE)
    else:
        other = (await store.get(min(keys(store) - {tail, bad}))).body
        await store.put(bad, other, OVERWRITE)
    restored = await snapshots.restore(key("a"), saved.pin, target)
    assert describe(target) == describe(source)
    assert restored.baseline.units == {}
    await snapshots.close()


@pytest.mark.parametrize("which", ["tail", "part"])
async def test_a_twin_of_another_snapshot_is_not_taken_for_the_part(which, source, target, store, no_tick):
    """Whole, of the same sizes, and wrong: only checksums tell, and the archive itself is read."""
    snapshots = in_parts(store)
    saved = await snapshots.save(fill(source), key("a"), replaces=0)
    tree = describe(source)
    for seed in range(500):
        (source / "d1" / "f001").write_bytes(random.Random(seed).randbytes(700))
        os.utime(source / "d1" / "f001", ns=(0, tree[b"d1/f001"][2]))
        other = await snapshots.save(source, key(f"b{seed}"), replaces=0, base=saved.baseline)
        if other.size == saved.size:
            break
    if which == "tail":
        old, new = saved.baseline.tail, other.baseline.tail
    else:
        [old] = saved.baseline.known - other.baseline.known - {saved.baseline.tail}
        [new] = other.baseline.known - saved.baseline.known - {other.baseline.tail}
    await store.put(part_key(key("a"), old), (await store.get(part_key(key("a"), new))).body, OVERWRITE)
    assert other.size == saved.size
    await snapshots.restore(key("a"), saved.pin, target)
    assert describe(target) == tree
    await snapshots.close()


async def test_directories_are_never_too_young(source, target, store, all_young):
    """A restore sets their times last, and an archive holds nothing of them that a change could hide in."""
    snapshots = in_parts(store)
    saved = await snapshots.save(fill(source), key("a"), replaces=0)
    restored = await snapshots.restore(key("a"), saved.pin, target)
    directories = {path for path, what in describe(source).items() if what[3] is None}
    assert restored.baseline.recent.keys() == describe(source).keys() - directories
    await snapshots.close()


async def test_parts_do_not_stand_in_for_an_archive_that_is_gone(source, target, store):
    """All the bytes would be there, but not what was pinned: nobody pretends."""
    snapshots = in_parts(store)
    saved = await snapshots.save(fill(source), key("a"), replaces=0)
    await store.delete(key("a"))
    with pytest.raises(SnapshotMissing):
        await snapshots.restore(key("a"), saved.pin, target)
    await store.put(key("a"), b"another", IF_ABSENT)
    with pytest.raises(SnapshotMissing):
        await snapshots.restore(key("a"), saved.pin, target)
    assert list(target.iterdir()) == []
    await snapshots.close()


async def test_a_failing_store_leaves_an_empty_directory(source, target):
    """Unavailable in the middle of the parts: all or nothing, and a new try succeeds."""
    async with FaultyStore(MemoryStore()) as store:
        snapshots = in_parts(store)
        saved = await snapshots.save(fill(source), key("a"), replaces=0)
        store.fail("get", nth=8)
        with pytest.raises(Unavailable):
            await snapshots.restore(key("a"), saved.pin, target)
        assert list(target.iterdir()) == []
        await snapshots.restore(key("a"), saved.pin, target)
        assert describe(target) == describe(source)
        await snapshots.close()


async def test_memory_stays_flat_in_parts(source, target, tmp_path):
    """150 MiB that do not compress go out in parts and come back within 64 MiB of Python's memory."""
    block = os.urandom(1 << 20)
    (source / "one").write_bytes(block * 50)
    for number in range(100):
        (source / f"part-{number}").write_bytes(bytes([number]) + block[1:])
    del block
    async with LocalStore(tmp_path / "store") as store:
        snapshots = Snapshots(store)
        tracemalloc.start()
        try:
            saved = await snapshots.save(source, key("a"), replaces=0)
            _, peak_out = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            await snapshots.restore(key("a"), saved.pin, target)
            _, peak_in = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await snapshots.close()
    assert saved.size > 100 << 20
    assert max(peak_out, peak_in) < 64 << 20
    assert (target / "part-49").read_bytes() == (source / "part-49").read_bytes()
