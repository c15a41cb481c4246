"""Archives made to escape, to overwhelm or to deceive: refused by name, and nothing outside is touched."""
# What the link says, not what pathlib makes of it.
# ruff: noqa: PTH115

import gzip
import os
import stat
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from a2a_gcs.errors import Unavailable
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.errors import (
    SnapshotCorrupt,
    SnapshotMissing,
    UnsafeArchive,
    WorkspaceError,
    WorkspaceTooLarge,
)
from a2a_gcs.workspaces.limits import Limits
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.unit.workspaces.trees import KEY, describe, file, member, stored, tar

SYMLINK, HARDLINK, DIRECTORY = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


def link(name: str, to: str) -> tarfile.TarInfo:
    return member(name, SYMLINK, linkname=to)


def hard(name: str, to: str) -> tarfile.TarInfo:
    return member(name, HARDLINK, linkname=to)


def pax(name: str, **records: str) -> tuple[tarfile.TarInfo, bytes]:
    return file(name, b"x", pax_headers={key.replace("_", "."): value for key, value in records.items()})


def raw_pax(*records: bytes) -> bytes:
    """A PAX header with these records as they are."""
    payload = b"".join(records)
    header = tarfile.TarInfo("PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, len(payload)
    return header.tobuf(tarfile.USTAR_FORMAT) + payload + bytes(-len(payload) % 512)


OUTSIDE = "@outside"  # stands for the directory beside the workspace, which is called OUTSIDE

HOSTILE = {
    "dot-dot": ([file("../escaped")], "../escaped"),
    "dot-dot inside": ([file("a/../../escaped")], "a/../../escaped"),
    "dot-dot that stays inside": ([file("a/../b")], "a/../b"),
    "dot-dot directory": ([member("..", DIRECTORY)], ".."),
    "absolute": ([file(f"{OUTSIDE}/escaped")], f"{OUTSIDE}/escaped"),
    "absolute by two slashes": ([file("//escaped")], "//escaped"),
    "dot and absolute": ([file("./" + "/escaped")], ".//escaped"),
    "absolute through PAX": ([pax("a", path=f"{OUTSIDE}/escaped")], f"{OUTSIDE}/escaped"),
    "the root itself": ([file(".")], "."),
    "the root as a link": ([link("./", OUTSIDE)], "./"),
    "write through a link": ([link("d", OUTSIDE), file("d/escaped")], "d/escaped"),
    "write through a relative link": ([link("d", ".."), file("d/escaped")], "d/escaped"),
    "write through a chain": (
        [member("a", DIRECTORY), link("a/b", ".."), link("c", "a/b/.."), file("c/escaped")],
        "c/escaped",
    ),
    "directory through a link": ([link("d", OUTSIDE), member("d/sub", DIRECTORY)], "d/sub"),
    "link through a link": ([link("d", OUTSIDE), link("d/sub", "x")], "d/sub"),
    "link taken for a directory": ([link("d", OUTSIDE), member("d", DIRECTORY, mode=0o777)], "d"),
    "file over a link": ([link("d", f"{OUTSIDE}/victim"), file("d")], "d"),
    "directory replaced by a link": (
        [member("d", DIRECTORY), file("d/x"), link("d", OUTSIDE), file("d/escaped")],
        "d",
    ),
    "hard link to outside": ([hard("h", "../OUTSIDE/victim")], "h"),
    "hard link to an absolute name": ([hard("h", f"{OUTSIDE}/victim")], "h"),
    "hard link through a link": ([link("d", OUTSIDE), hard("h", "d/victim")], "h"),
    "hard link to a link": ([link("l", f"{OUTSIDE}/victim"), hard("h", "l"), file("h")], "h"),
    "hard link to a directory": ([member("d", DIRECTORY), hard("h", "d")], "h"),
    "hard link to nothing": ([hard("h", "later"), file("later")], "h"),
    "hard link to itself": ([hard("h", "h")], "h"),
    "hard link with content": ([file("a"), (hard("h", "a"), b"y")], "h"),
    "character device": ([member("null", tarfile.CHRTYPE, devmajor=1, devminor=3)], "null"),
    "block device": ([member("sda", tarfile.BLKTYPE, devmajor=8)], "sda"),
    "FIFO": ([member("pipe", tarfile.FIFOTYPE)], "pipe"),
    "unknown type": ([member("odd", b"V")], "odd"),
    "sparse by PAX": ([pax("s", GNU_sparse_major="1", GNU_sparse_name="../escaped")], "s"),
    "sparse in GNU format": ([member("s", tarfile.GNUTYPE_SPARSE)], "s"),
    "the same file twice": ([file("a", b"1"), file("b"), file("a", b"2")], "a"),
    "the same file spelled otherwise": ([file("a", b"1"), file("./a", b"2")], "a"),
    "the same directory twice": ([member("d", DIRECTORY), member("d", DIRECTORY, mode=0o777)], "d"),
    "file over directory": ([member("d", DIRECTORY), file("d")], "d"),
    "file used as a directory": ([file("f"), file("f/x")], "f/x"),
    "NUL in a name": ([pax("a", path="a\0b")], "a\\x00b"),
    "empty part": ([file("a//b")], "a//b"),
    "slash after a file": ([pax("a", path="a/")], "a/"),
    "empty link": ([member("l", SYMLINK, linkname="")], "l"),
    "name too long": ([pax("a", path="n/" * 3000 + "x")], "n/" * 100 + "..."),
    "part too long": ([pax("a", path="n" * 300)], "n" * 200 + "..."),
    "PAX size": ([pax("a", size="-1")], "a"),
    "PAX time": ([pax("a", mtime="nan")], "a"),
    "time out of range": ([pax("a", mtime="9999999999999999999")], "a"),
}


def place(value: object, outside: Path) -> object:
    return value.replace(OUTSIDE, str(outside)) if isinstance(value, str) else value


def placed(entry, outside: Path):
    """The entry with its names pointing at a directory that exists."""
    info, content = entry if isinstance(entry, tuple) else (entry, b"")
    copy = tarfile.TarInfo()
    for name in ["name", "type", "linkname", "mode", "devmajor", "devminor"]:
        setattr(copy, name, place(getattr(info, name), outside))
    copy.pax_headers = {key: place(value, outside) for key, value in info.pax_headers.items()}
    return (copy, content)


@pytest.fixture
def outside(tmp_path):
    """A directory beside the workspace whose every detail must stay."""
    path = tmp_path / "OUTSIDE"
    path.mkdir(mode=0o711)
    (path / "victim").write_text("untouched")
    return path


@pytest.mark.parametrize("case", HOSTILE)
async def test_a_hostile_member_is_refused_by_name(case, outside, target, store, tmp_path):
    """The error names the member, the workspace is empty again, and everything around it is as before."""
    entries, named = HOSTILE[case]
    pin = await stored(store, tar(file("innocent"), *[placed(entry, outside) for entry in entries]))
    before, links = describe(tmp_path), (outside / "victim").stat().st_nlink

    with pytest.raises(UnsafeArchive) as refused:
        await Snapshots(store).restore(KEY, pin, target)

    assert refused.value.member == place(named, outside)
    assert list(target.iterdir()) == []
    after = describe(tmp_path)
    assert {p: f for p, f in after.items() if p != b"target"} == {p: f for p, f in before.items() if p != b"target"}
    assert (outside / "victim").stat().st_nlink == links


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("absolute", "its name is absolute"),
        ("dot-dot", "its name leads out by '..'"),
        ("write through a link", "a part of its path is a file or a link"),
        ("the same file twice", "the archive holds another member of that name"),
        ("hard link to outside", "it is a hard link to '../OUTSIDE/victim', and its name leads out by '..'"),
        ("character device", "it is a character device"),
    ],
)
async def test_the_error_says_why(case, reason, outside, target, store):
    """People learn from the message what the archive tried."""
    pin = await stored(store, tar(*[placed(entry, outside) for entry in HOSTILE[case][0]]))

    with pytest.raises(UnsafeArchive) as refused:
        await Snapshots(store).restore(KEY, pin, target)

    assert refused.value.reason == reason
    assert reason in str(refused.value)


async def test_links_are_kept_but_their_targets_never_touched(outside, target, store):
    """A link to outside is legitimate; giving it a time or mode does not reach what it points to."""
    before = describe(outside.parent)
    pin = await stored(store, tar(member("l", SYMLINK, linkname=str(outside / "victim"), mode=0o777, mtime=5)))

    await Snapshots(store).restore(KEY, pin, target)

    assert os.readlink(target / "l") == str(outside / "victim")
    assert (target / "l").lstat().st_mtime == 5
    assert describe(outside) == {p[8:]: f for p, f in before.items() if p.startswith(b"OUTSIDE/")}


async def test_names_that_differ_in_case_or_form_are_different_files(target, store):
    """On a case-sensitive file system a link `Dir` and a directory `dir` have nothing to do with each other."""
    packed = tar(link("Dir", ".."), file("dir/x", b"1"), file("e\u0301", b"2"), file("\u00e9", b"3"))
    pin = await stored(store, packed)

    await Snapshots(store).restore(KEY, pin, target)

    assert (target / "dir/x").read_bytes() == b"1"
    assert {path.name for path in target.iterdir()} == {"Dir", "dir", "e\u0301", "\u00e9"}


async def test_parents_that_are_not_named_are_made(target, store):
    """A file whose directories come later or never is restored; a directory named later gets its own mode."""
    pin = await stored(store, tar(file("a/b/c"), member("a", DIRECTORY, mode=0o700)))

    await Snapshots(store).restore(KEY, pin, target)

    assert (target / "a/b/c").read_bytes() == b"x"
    assert stat.S_IMODE((target / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "a/b").stat().st_mode) == 0o755


async def test_a_long_chain_of_extended_headers_is_refused(target, store):
    """10,000 PAX headers before one member neither recurse nor count as members."""
    pin = await stored(store, raw_pax(b"13 comment=a\n") * 10_000 + tar(file("a")))

    with pytest.raises(UnsafeArchive, match="too many extended headers"):
        await Snapshots(store).restore(KEY, pin, target)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
async def test_an_extended_header_is_not_read_into_memory_whatever_its_size(kind, target, store):
    """A header that claims 8 GiB is refused for its claim."""
    pin = await stored(store, member("huge", kind, size=8 << 30).tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))

    with pytest.raises(UnsafeArchive, match="extended header of 8,589,934,592 bytes"):
        await Snapshots(store).restore(KEY, pin, target)


async def test_global_headers_may_comment_only(target, store):
    """`git archive` writes a global comment, which is fine; a global path would rename every member."""

    def with_global(record: bytes) -> bytes:
        header = raw_pax(record)
        info = tarfile.TarInfo.frombuf(header[:512], "utf-8", "strict")
        info.type = tarfile.XGLTYPE
        return info.tobuf(tarfile.USTAR_FORMAT) + header[512:] + tar(file("a"))

    fine = await stored(store, with_global(b"13 comment=a\n"))
    await Snapshots(store).restore(KEY, fine, target)
    assert (target / "a").read_bytes() == b"x"

    (target / "a").unlink()
    await store.delete(KEY)
    renaming = await stored(store, with_global(b"13 path=../a\n"))
    with pytest.raises(UnsafeArchive, match="change every member"):
        await Snapshots(store).restore(KEY, renaming, target)


@pytest.mark.parametrize(
    "record",
    [b"x", b"13 comment=a", b"99 comment=a\n", b"0 comment=a\n", b"-5 path=a\n", b"8 path=a", b"7 path\n", b"4 =\n"],
)
async def test_a_malformed_pax_header_is_corruption(record, target, store):
    """Records whose lengths or separators are wrong are refused, not guessed at."""
    pin = await stored(store, raw_pax(record) + tar(file("a")))

    with pytest.raises(SnapshotCorrupt, match="PAX"):
        await Snapshots(store).restore(KEY, pin, target)


def whole() -> bytes:
    """A tar.gz with a bit of everything."""
    entries = [member("d", DIRECTORY), file("d/f", b"content " * 500), link("l", "d/f"), hard("h", "d/f")]
    return gzip.compress(tar(*entries), 6, mtime=0)


def without_end() -> bytes:
    return gzip.compress(tar(file("a"))[:-1024], mtime=0)


def damaged_header() -> bytes:
    data = bytearray(tar(file("a"), file("b")))
    data[1024 + 10] ^= 1  # the name of the second member: its checksum is wrong now
    return gzip.compress(bytes(data), mtime=0)


CORRUPT = {
    "empty object": lambda: b"",
    "no gzip": lambda: tar(file("a")),
    "an empty gzip": lambda: gzip.compress(b"", mtime=0),
    "no end marker": without_end,
    "cut in a header": lambda: gzip.compress(tar(file("a"))[:300], mtime=0),
    "cut in the content": lambda: gzip.compress(tar(file("a", b"x" * 5000))[:2000], mtime=0),
    "damaged header": damaged_header,
    "data after the end": lambda: gzip.compress(tar(file("a")) + tar(file("b")), mtime=0),
    "data in the padding": lambda: gzip.compress(tar(file("a")).replace(b"x\0\0", b"x\0y"), mtime=0),
    "garbage after the gzip": lambda: whole() + b"garbage",
    "wrong checksum in the gzip": lambda: whole()[:-8] + b"1234" + whole()[-4:],
    "no trailer": lambda: whole()[:-8],
}


@pytest.mark.parametrize("case", CORRUPT)
async def test_a_damaged_archive_is_corruption_and_leaves_nothing(case, target, store):
    """Whatever is not one whole archive raises SnapshotCorrupt, and the directory is empty again."""
    pin = await stored(store, CORRUPT[case](), packed=True)

    with pytest.raises(SnapshotCorrupt):
        await Snapshots(store).restore(KEY, pin, target)

    assert list(target.iterdir()) == []


async def test_an_archive_cut_anywhere_is_never_taken_for_a_whole_one(target, store):
    """Every proper prefix is refused: the end is known by its marks, not by running out of bytes."""
    packed = whole()
    for length in range(0, len(packed), 3):
        pin = await stored(store, packed[:length], packed=True)
        with pytest.raises(SnapshotCorrupt):
            await Snapshots(store).restore(KEY, pin, target)
        assert list(target.iterdir()) == []
        await store.delete(KEY)


class Damaged(MemoryStore):
    """A store whose downloads differ from what it holds, without its noticing."""

    def __init__(self, damage: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self.damage = damage

    async def stream(self, key, *, version=None):
        async for chunk in super().stream(key, version=version):
            yield self.damage(chunk)


def flipped(data: bytes, index: int) -> bytes:
    return data[:index] + bytes([data[index] ^ 1 << index % 8]) + data[index + 1 :]


async def test_a_flipped_bit_never_passes(target):
    """Of one flipped bit in each byte none restores, also where neither tar nor gzip looks."""
    packed = whole()
    for index in range(len(packed)):
        store = Damaged(partial(flipped, index=index))
        pin = await stored(store, packed, packed=True)
        with pytest.raises(WorkspaceError) as error:
            await Snapshots(store).restore(KEY, pin, target)
        assert isinstance(error.value, SnapshotCorrupt | UnsafeArchive | WorkspaceTooLarge)
        assert list(target.iterdir()) == []


class Complaining(Damaged):
    """A store that hands out damaged bytes and then says so, as adapters that verify checksums do."""

    async def stream(self, key, *, version=None):
        async for chunk in super().stream(key, version=version):
            yield chunk
        raise Unavailable(key, ValueError("the checksum does not match"))


async def test_damage_that_the_store_reports_is_corruption_too(target):
    """All bytes came and their checksum is wrong: another try will not help, so it is no Unavailable."""
    store = Complaining(partial(flipped, index=4))
    pin = await stored(store, whole(), packed=True)

    with pytest.raises(SnapshotCorrupt, match="crc32c"):
        await Snapshots(store).restore(KEY, pin, target)

    assert list(target.iterdir()) == []


async def test_a_broken_off_download_stays_unavailable(target):
    """A store that fails in the middle is passed on as it is: another try may succeed."""

    class Broken(MemoryStore):
        async def stream(self, key, *, version=None):
            yield (await self.get(key)).body[:100]
            raise Unavailable(key)

    store = Broken()
    pin = await stored(store, whole(), packed=True)

    with pytest.raises(Unavailable):
        await Snapshots(store).restore(KEY, pin, target)

    assert list(target.iterdir()) == []


def bomb(size: int) -> bytes:
    return gzip.compress(tar(file("zeros", bytes(size))), 9, mtime=0)


def many(count: int) -> bytes:
    return gzip.compress(tar(*[file(f"f{n}", b"") for n in range(count)]), 9, mtime=0)


def claim(size: int) -> bytes:
    header = member("claims", size=size).tobuf(tarfile.PAX_FORMAT)
    return gzip.compress(header + bytes(2048), mtime=0)


def padded(size: int) -> bytes:
    return gzip.compress(tar(file("a")) + bytes(size), 9, mtime=0)


BOMBS = {
    "bytes": (bomb(3 << 20), Limits(max_bytes=2 << 20), "'zeros'"),
    "claimed bytes": (claim(1 << 60), Limits(), "'claims'"),
    "entries": (many(101), Limits(max_entries=100), "'f100'"),
    "ratio": (bomb(8 << 20), Limits(max_ratio=100, ratio_from=1 << 20), "per byte"),
    "ratio after the end": (padded(8 << 20), Limits(max_ratio=100, ratio_from=1 << 20), "per byte"),
    "stream after the end": (padded(8 << 20), Limits(max_bytes=1 << 20, max_entries=10), "headers"),
    "implied directories": (gzip.compress(tar(file("d/" * 200 + "f"))), Limits(max_entries=100), "entries"),
}


@pytest.mark.parametrize("case", BOMBS)
async def test_a_bomb_is_stopped_at_the_limit(case, target, store):
    """Bytes, entries and ratio end the restore where they are passed, and leave nothing."""
    packed, limits, named = BOMBS[case]
    pin = await stored(store, packed, packed=True)

    with pytest.raises(WorkspaceTooLarge, match=named):
        await Snapshots(store, limits=limits).restore(KEY, pin, target)

    assert list(target.iterdir()) == []


async def test_limits_let_through_what_just_fits(target, store):
    """Exactly as many bytes and entries as allowed are no error."""
    pin = await stored(store, tar(file("a", b"x" * 1000), file("b", b"x" * 24)))

    await Snapshots(store, limits=Limits(max_bytes=1024, max_entries=2)).restore(KEY, pin, target)

    assert (target / "a").stat().st_size == 1000


async def test_a_snapshot_that_is_gone_is_missing(target, store):
    """No object, another generation, or another crc32c: not there as it was pinned."""
    pin = await stored(store, whole(), packed=True)
    snapshots = Snapshots(store)

    for wrong in [Pin(pin.generation + 1, pin.crc32c), Pin(pin.generation, "AAAAAA==")]:
        with pytest.raises(SnapshotMissing):
            await snapshots.restore(KEY, wrong, target)
        assert list(target.iterdir()) == []
    await store.delete(KEY)
    with pytest.raises(SnapshotMissing):
        await snapshots.restore(KEY, pin, target)


async def test_nothing_is_restored_over_something(target, store):
    """A directory that is not empty is refused, and what is in it stays."""
    pin = await stored(store, whole(), packed=True)
    (target / "mine").write_text("m")

    with pytest.raises(WorkspaceError, match="not empty"):
        await Snapshots(store).restore(KEY, pin, target)

    assert (target / "mine").read_text() == "m"


async def test_an_archive_of_several_gzip_members_is_one_archive(target, store):
    """Gzip members joined together restore like one: the form that incremental snapshots have."""
    entries = tar(file("a", b"1" * 700), file("b", b"2" * 700))
    packed = gzip.compress(entries[:1536], mtime=0) + gzip.compress(entries[1536:], mtime=0)
    pin = await stored(store, packed, packed=True)

    await Snapshots(store).restore(KEY, pin, target)

    assert (target / "b").read_bytes() == b"2" * 700
