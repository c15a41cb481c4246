"""Saving while things go wrong: the tree moves, the store fails, the caller leaves."""

import asyncio
import os
import shutil
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from a2a_gcs.errors import ConfigError, Conflict, NotFound, Throttled, Unavailable
from a2a_gcs.objectstore.local import LocalStore
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.workspaces.errors import SnapshotUnstable, WorkspaceError, WorkspaceTooLarge
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.unit.workspaces.trees import KEY, describe, names

LARGE = 12 << 20  # more than the chunks that may be under way


class Watched(MemoryStore):
    """Calls back at every chunk of an upload, with the number of chunks so far in this try."""

    def __init__(self, on_chunk: Callable[[int, int], None]) -> None:
        super().__init__()
        self.on_chunk = on_chunk
        self.tries = 0

    async def put_stream(self, key, chunks, mode, **attributes):
        self.tries += 1

        async def watched():
            count = 0
            async for chunk in chunks:
                count += 1
                self.on_chunk(self.tries, count)
                yield chunk

        return await super().put_stream(key, watched(), mode, **attributes)


def quick(store, **settings) -> Snapshots:
    """Saves everything as one upload, however large; parts have tests of their own."""
    return Snapshots(store, pause=0.001, **{"whole": 1 << 40, **settings})


def working() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "workspace"]


def still_working() -> list[threading.Thread]:
    """Threads that do not end although their work was handed over; those that did may take a moment to."""
    for thread in working():
        thread.join(timeout=5)
    return working()


@pytest.fixture
def large(source):
    """A workspace whose first file takes long enough to upload that a later one can change meanwhile."""
    (source / "a-large").write_bytes(os.urandom(LARGE))
    (source / "z-late").write_text("late")
    return source


async def test_a_snapshot_is_a_plain_gzip_object(source, store):
    """Content type application/gzip, a pin of the very object, and sizes that add up."""
    (source / "f").write_text("f")

    saved = await Snapshots(store).save(source, KEY, replaces=0)

    info = await store.head(KEY)
    assert info.content_type == "application/gzip"
    assert (saved.pin.generation, saved.pin.crc32c, saved.size) == (info.version, info.crc32c, info.size)
    assert (saved.entries, saved.notes) == (1, ())


async def test_a_save_replaces_only_the_generation_it_names(source, store):
    """Another writer's object is a Conflict and stays; the named generation is replaced."""
    other = await store.put(KEY, b"other", IF_ABSENT)
    snapshots = quick(store)

    for wrong in [0, other.version + 1]:
        with pytest.raises(Conflict):
            await snapshots.save(source, KEY, replaces=wrong)
    assert (await store.get(KEY)).body == b"other"

    saved = await snapshots.save(source, KEY, replaces=other.version)
    assert (await store.head(KEY)).version == saved.pin.generation


@pytest.mark.parametrize("failure", [RuntimeError("bug"), Unavailable(KEY), Throttled(KEY)])
async def test_a_failure_at_nine_tenths_publishes_nothing(failure, large):
    """An upload that breaks off late leaves the old archive as it was, in every try, and no thread."""

    counts: list[int] = []
    await quick(Watched(lambda _, count: counts.append(count))).save(large, KEY, replaces=0)

    def fail(_: int, count: int) -> None:
        if count == counts[-1] * 9 // 10:
            raise failure

    store = Watched(fail)
    old = await store.put(KEY, b"old", IF_ABSENT)

    with pytest.raises(type(failure)):
        await quick(store).save(large, KEY, replaces=old.version)

    assert (await store.get(KEY)).body == b"old"
    assert (await store.head(KEY)).version == old.version
    assert counts[-1] > 5
    assert store.tries == (1 if isinstance(failure, RuntimeError) else 4)
    assert still_working() == []


async def test_a_throttled_save_is_tried_again(large):
    """Two failures and then a success are a success."""

    def fail(tries: int, count: int) -> None:
        if tries < 3 and count == 10:
            raise Throttled(KEY)

    store = Watched(fail)

    saved = await quick(store).save(large, KEY, replaces=0)

    assert store.tries == 3
    assert (await store.head(KEY)).crc32c == saved.pin.crc32c


class Forgetful(MemoryStore):
    """Loses the answer of the first upload, which was committed or not."""

    def __init__(self, *, committed: bool) -> None:
        super().__init__()
        self.committed = committed
        self.lost = False

    async def put_stream(self, key, chunks, mode, **attributes):
        if self.lost:
            return await super().put_stream(key, chunks, mode, **attributes)
        self.lost = True
        if self.committed:
            await super().put_stream(key, chunks, mode, **attributes)
        raise Unavailable(key, ambiguous=True)


async def test_a_lost_answer_of_a_committed_save_is_a_success(source):
    """The object carries this save's write id, so it is not uploaded again and not taken for somebody else's."""
    (source / "f").write_text("f")
    store = Forgetful(committed=True)

    saved = await quick(store).save(source, KEY, replaces=0)

    assert (await store.head(KEY)).version == saved.pin.generation == 1
    assert saved.entries == 1


async def test_a_lost_answer_and_somebody_elses_object_is_a_conflict(source):
    """After an ambiguous try, a foreign object at the key is still recognised as foreign."""

    class Overtaken(Forgetful):
        async def put_stream(self, key, chunks, mode, **attributes):
            if self.lost:
                await self.put(key, b"foreign", IF_ABSENT)
            return await super().put_stream(key, chunks, mode, **attributes)

    store = Overtaken(committed=False)

    with pytest.raises(Conflict):
        await quick(store).save(source, KEY, replaces=0)

    assert (await store.get(KEY)).body == b"foreign"


async def test_a_cancelled_save_stops_its_thread_and_publishes_nothing(large):
    """When the cancelled call returns, nobody reads the workspace any more and the old archive is still there."""
    stuck = asyncio.Event()

    class Stuck(MemoryStore):
        async def put_stream(self, key, chunks, mode, **attributes):
            async for _ in chunks:
                stuck.set()
                await asyncio.Event().wait()

    store = Stuck()
    old = await store.put(KEY, b"old", IF_ABSENT)
    saving = asyncio.create_task(quick(store).save(large, KEY, replaces=old.version))
    await stuck.wait()
    assert len(working()) == 1

    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving

    assert still_working() == []
    assert (await store.get(KEY)).body == b"old"


async def test_a_cancelled_restore_leaves_an_empty_directory(large, target, store):
    """Cancelled in the middle of the download: nothing half restored, no thread."""
    snapshots = quick(store)
    saved = await snapshots.save(large, KEY, replaces=0)
    stuck = asyncio.Event()
    plain = store.stream

    async def slow(key, *, version=None):
        async for chunk in plain(key, version=version):
            yield chunk
            stuck.set()
            await asyncio.Event().wait()

    store.stream = slow
    restoring = asyncio.create_task(snapshots.restore(KEY, saved.pin, target))
    await stuck.wait()

    restoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await restoring

    assert still_working() == []
    assert list(target.iterdir()) == []


async def test_a_file_that_changed_once_is_read_again(large, target):
    """A write to a file under way starts the upload over, and the snapshot holds one state of it, the new one."""

    def change(tries: int, count: int) -> None:
        if (tries, count) == (1, 3):
            with (large / "a-large").open("r+b") as f:
                f.write(b"new start")

    store = Watched(change)
    snapshots = quick(store)

    saved = await snapshots.save(large, KEY, replaces=0)
    await snapshots.restore(KEY, saved.pin, target)

    assert store.tries == 2
    assert describe(target) == describe(large)
    assert (target / "a-large").read_bytes()[:9] == b"new start"


async def test_a_file_that_keeps_changing_is_reported(large):
    """After the last try the error names the file, and nothing was published."""

    def change(_: int, count: int) -> None:
        if count == 3:
            with (large / "a-large").open("ab") as f:
                f.write(b"more")

    store = Watched(change)

    with pytest.raises(SnapshotUnstable, match="a-large") as unstable:
        await quick(store).save(large, KEY, replaces=0)

    assert unstable.value.path == "a-large"
    with pytest.raises(NotFound):
        await store.head(KEY)


async def test_a_file_that_shrinks_is_read_again(large, target):
    """A file cut short under way does not put wrong bytes in its place."""

    def cut(tries: int, count: int) -> None:
        if (tries, count) == (1, 3):
            os.truncate(large / "a-large", 1000)

    store = Watched(cut)
    snapshots = quick(store)

    saved = await snapshots.save(large, KEY, replaces=0)
    await snapshots.restore(KEY, saved.pin, target)

    assert store.tries == 2
    assert describe(target) == describe(large)


async def test_a_file_that_vanishes_is_left_out_with_a_note(large):
    """Deleted before its turn came: the snapshot is that of the tree without it."""

    def remove(_: int, count: int) -> None:
        if count == 1:
            (large / "z-late").unlink(missing_ok=True)

    store = Watched(remove)

    saved = await quick(store).save(large, KEY, replaces=0)

    assert store.tries == 1
    assert saved.notes == ("z-late: left out, it was removed while the workspace was saved",)
    assert names((await store.get(KEY)).body) == ["a-large"]


async def test_a_file_that_is_renamed_is_not_lost(large):
    """Renamed before its turn came: it was neither at its old name nor seen at the new one, so all starts over."""

    def rename(tries: int, count: int) -> None:
        if (tries, count) == (1, 1):
            (large / "z-late").rename(large / "b-new-name")

    store = Watched(rename)

    await quick(store).save(large, KEY, replaces=0)

    assert store.tries == 2
    assert names((await store.get(KEY)).body) == ["a-large", "b-new-name"]


async def test_a_hard_link_does_not_end_up_with_another_files_content(large, target):
    """The first of two names gets a new file while the save runs: the second keeps its own content."""
    (large / "y-first").write_text("shared")
    os.link(large / "y-first", large / "z-second")

    def replace(tries: int, count: int) -> None:
        if (tries, count) == (1, 1):
            (large / "new").write_text("not shared")
            (large / "new").rename(large / "y-first")

    store = Watched(replace)
    snapshots = quick(store)

    saved = await snapshots.save(large, KEY, replaces=0)
    await snapshots.restore(KEY, saved.pin, target)

    assert store.tries == 2
    assert describe(target) == describe(large)


@pytest.mark.parametrize("what", ["directory", "file"])
async def test_a_link_put_in_place_is_not_followed(what, large, target, tmp_path):
    """A directory or file swapped for a link to outside while the save runs: nothing from outside gets in."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "inner").write_text("host's secret")
    (large / "z-dir").mkdir()
    (large / "z-dir" / "inner").write_text("mine")

    def swap(tries: int, count: int) -> None:
        if (tries, count) == (1, 1) and what == "directory":
            (large / "z-dir").rename(tmp_path / "moved away")
            (large / "z-dir").symlink_to(outside)
        elif (tries, count) == (1, 1):
            (large / "z-dir" / "inner").unlink()
            (large / "z-dir" / "inner").symlink_to(outside / "inner")

    store = Watched(swap)
    snapshots = quick(store)

    saved = await snapshots.save(large, KEY, replaces=0)
    await snapshots.restore(KEY, saved.pin, target)

    assert describe(target) == describe(large)
    assert (target / "z-dir" if what == "directory" else target / "z-dir" / "inner").is_symlink()


async def test_a_workspace_that_is_gone_or_replaced_says_so(source, store, tmp_path):
    """Removed, or a file or link in its place: an error about the directory, and nothing is published."""
    shutil.rmtree(source)
    with pytest.raises(WorkspaceError, match="is gone"):
        await quick(store).save(source, KEY, replaces=0)
    source.symlink_to(tmp_path)
    with pytest.raises(WorkspaceError, match="was replaced"):
        await quick(store).save(source, KEY, replaces=0)
    source.unlink()
    source.write_text("a file")
    with pytest.raises(WorkspaceError, match="was replaced"):
        await quick(store).save(source, KEY, replaces=0)
    with pytest.raises(NotFound):
        await store.head(KEY)


async def test_a_workspace_replaced_while_it_is_saved_is_saved_as_it_is_now(large, tmp_path):
    """A new directory in its place counts: the snapshot holds the new one's content, not a mixture."""

    def replace(tries: int, count: int) -> None:
        if (tries, count) == (1, 1):
            large.rename(tmp_path / "moved away")
            large.mkdir()
            (large / "fresh").write_text("f")

    store = Watched(replace)

    await quick(store).save(large, KEY, replaces=0)

    assert names((await store.get(KEY)).body) == ["fresh"]


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (Limits(max_bytes=999), "more than 999 bytes"),
        (Limits(max_entries=2), "more than 2 entries"),
        (Limits(max_ratio=10, ratio_from=1 << 20), "per byte"),
    ],
)
async def test_what_could_not_be_restored_is_not_saved(limits, named, source, store):
    """The limits of a restore hold for a save too, which publishes nothing."""
    (source / "dir").mkdir()
    (source / "dir" / "zeros").write_bytes(bytes(4 << 20) if limits.max_ratio == 10 else bytes(996))
    (source / "z-late").write_text("late")

    with pytest.raises(WorkspaceTooLarge, match=named):
        await quick(store, limits=limits).save(source, KEY, replaces=0)

    with pytest.raises(NotFound):
        await store.head(KEY)


async def test_credentials_do_not_travel_unless_a_setting_says_so(source, store):
    """Default patterns keep credential files out, with a note; `.a2aignore` cannot bring them back, a setting can."""
    (source / ".aws").mkdir()
    (source / ".aws" / "credentials").write_text("secret")
    (source / ".aws" / "config").write_text("region")
    (source / ".netrc").write_text("secret")
    (source / ".a2aignore").write_text("!.netrc\n")

    saved = await quick(store).save(source, KEY, replaces=0)
    assert names((await store.get(KEY)).body) == [".a2aignore", ".aws", ".aws/config"]
    assert [note.partition(":")[0] for note in sorted(saved.notes)] == [".aws/credentials", ".netrc"]

    await quick(store, ignore=()).save(source, KEY, replaces=saved.pin.generation)
    assert ".netrc" in names((await store.get(KEY)).body)


async def test_a_workspace_says_itself_what_stays_out(source, store):
    """`.a2aignore` has the syntax of .gitignore, and a directory it names is not even walked."""
    (source / ".a2aignore").write_text("*.log\n!keep.log\n/build/\n# comment\n")
    for name in ["a.log", "keep.log", "b.txt", "sub/c.log", "sub/build/x", "build/x"]:
        (source / name).parent.mkdir(exist_ok=True, parents=True)
        (source / name).write_text(name)

    saved = await quick(store).save(source, KEY, replaces=0)

    assert names((await store.get(KEY)).body) == [".a2aignore", "b.txt", "keep.log", "sub", "sub/build", "sub/build/x"]
    assert saved.notes == ()


@pytest.mark.parametrize("kind", ["directory", "link", "link to nothing"])
async def test_an_ignore_file_that_is_none_has_no_effect(kind, source, target, store, tmp_path):
    """A directory or link called `.a2aignore` travels like any other, and its content or target is not read."""
    (tmp_path / "outside").write_text("*")
    if kind == "directory":
        (source / ".a2aignore").mkdir()
    else:
        (source / ".a2aignore").symlink_to(tmp_path / ("outside" if kind == "link" else "nothing"))
    (source / "file").write_text("f")

    await quick(store).save(source, KEY, replaces=0)

    assert names((await store.get(KEY)).body) == [".a2aignore", "file"]


async def test_a_line_that_is_no_pattern_is_noted(source, store):
    """One wrong line does not make the snapshot fail, nor the other lines void."""
    (source / ".a2aignore").write_text("!\n*.log\n")
    (source / "a.log").write_text("log")

    saved = await quick(store).save(source, KEY, replaces=0)

    assert saved.notes == (".a2aignore: line 1 is no pattern and has no effect",)
    assert names((await store.get(KEY)).body) == [".a2aignore"]


def test_a_setting_that_is_no_pattern_is_refused_at_the_start(store):
    """A wrong pattern in a setting is found before anything is saved."""
    with pytest.raises(ConfigError, match="gitignore"):
        Snapshots(store, ignore=["!"])


async def test_memory_stays_flat(source, target, tmp_path):
    """300 MiB that do not compress go out and come back within 16 MiB of Python's memory."""
    block = os.urandom(4 << 20)
    (source / "one").write_bytes(block * 25)
    for number in range(50):
        (source / f"part-{number}").write_bytes(block)
    async with LocalStore(tmp_path / "store") as store:
        del block
        snapshots = quick(store)
        tracemalloc.start()
        try:
            saved = await snapshots.save(source, KEY, replaces=0)
            _, peak_out = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            await snapshots.restore(KEY, saved.pin, target)
            _, peak_in = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert saved.size > 300 << 20
    assert max(peak_out, peak_in) < 16 << 20
    assert (target / "part-49").read_bytes() == (source / "part-49").read_bytes()
