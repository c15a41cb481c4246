"""Where archives are cut, what of an old one is kept, and the table at the end; without I/O."""

import gzip
import io
import subprocess
import tarfile

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.objectstore.checksums import join_crc32c
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.cutting import MAX_PART, MIN_PART, cut, part_size
from a2a_gcs.workspaces.errors import SnapshotCorrupt
from a2a_gcs.workspaces.index import Index, decode_tail, encode_tail
from a2a_gcs.workspaces.manifest import TICK, Baseline, Part, Span, Stamp, kept, reusable, unchanged, young
from a2a_gcs.workspaces.members import Kind, Member, encode

SIZE = 4096
FILE, DIRECTORY = 0o100644, 0o040755

paths = st.lists(st.text("abcdef", min_size=1, max_size=4), unique=True, min_size=1, max_size=60).map(
    lambda names: sorted(name.encode() for name in names)
)
trees = paths.flatmap(
    lambda names: st.lists(st.integers(0, 3 * SIZE), min_size=len(names), max_size=len(names)).map(
        lambda sizes: list(zip(names, sizes, strict=True))
    )
)
parts = st.builds(
    Part,
    name=st.binary(min_size=32, max_size=32).map(bytes.hex),
    packed=st.integers(0, 2**32 - 1),
    unpacked=st.integers(0, 2**32 - 1),
    crc32c=st.integers(0, 2**32 - 1),
)


def stamp(size=1, mode=FILE, inode=7):
    return Stamp(mode, size, 5, 6, 1, inode)


# ---------------------------------------------------------------- cutting


@given(trees)
def test_units_are_all_entries_once_and_in_order(tree):
    """Cutting loses nothing, repeats nothing, and no unit of several entries is over twice the size."""
    units = cut(tree, SIZE)
    assert [i for unit in units for i in range(unit.first, unit.stop)] == list(range(len(tree)))
    for unit in units:
        held = sum(512 + size for _, size in tree[unit.first : unit.stop])
        assert held <= 2 * SIZE or unit.stop - unit.first == 1


@given(trees)
def test_a_large_file_is_a_unit_of_its_own(tree):
    """So its parts depend on nothing but the file."""
    for unit in cut(tree, SIZE):
        large = any(size > SIZE for _, size in tree[unit.first : unit.stop])
        assert not large or unit.stop - unit.first == 1


def test_a_change_moves_few_cuts():
    """In a tree of 2,000 files, any new one changes three units at most, wherever it comes to stand."""
    tree = [(f"{n:05}".encode(), 400) for n in range(0, 4000, 2)]
    before = {tuple(tree[u.first : u.stop]) for u in cut(tree, SIZE)}
    assert len(before) > 100
    for n in range(1, 4000, 40):
        changed = sorted([*tree, (f"{n:05}".encode(), 400)])
        after = {tuple(changed[u.first : u.stop]) for u in cut(changed, SIZE)}
        assert len(after - before) <= 3


@pytest.mark.parametrize(("total", "size"), [(0, 1), (256, 1), (257, 2), (1024, 4), (2048, 8), (20 * 1024, 8)])
def test_the_size_of_parts_follows_the_workspace(total, size):
    """About 256 parts: 1 MiB each up to 256 MiB, 4 MiB at 1 GiB, never over 8 MiB."""
    assert part_size(total * MIN_PART) == size * MIN_PART


@pytest.mark.parametrize(
    ("total", "known", "size"),
    [
        (255, 1, 1),
        (257, 1, 1),  # over the edge, and kept
        (512, 1, 1),
        (513, 1, 4),  # too far: cut anew
        (257, 2, 2),
        (256, 2, 2),  # back over the edge, and kept
        (129, 2, 2),
        (128, 2, 1),  # too far
        (3000, 4, 8),
        (3000, 16, 8),  # never larger than the largest
        (10, 0.5, 1),  # never smaller than the smallest
        (257, 3, 2),  # of another program
    ],
)
def test_the_size_of_parts_stays_while_it_is_near(total, known, size):
    """A tree that grows and shrinks around 256 MiB is not uploaded anew each time, in MiB."""
    assert part_size(total * MIN_PART, known=int(known * MIN_PART)) == size * MIN_PART
    assert MAX_PART == 8 * MIN_PART


# ---------------------------------------------------------------- what is kept


def base_of(stamps, runs, recent=()):
    units = {Span(run[0], run[-1], len(run)): (Part(b"".join(run).hex(), 1, 1, 1),) for run in runs}
    return Baseline("k", Pin(1, "c"), 1, part_size=SIZE, stamps=stamps, units=units, recent=dict.fromkeys(recent, b""))


changes = st.lists(st.tuples(st.sampled_from(["touch", "add", "remove", "young"]), st.integers(0, 59)), max_size=5)


@given(trees, changes)
def test_a_run_is_reused_exactly_if_nothing_about_it_has_changed(tree, edits):
    """Reused parts hold the entries of their run, all of them, no others, and each as it was."""
    old = {path: stamp(size, inode=n) for n, (path, size) in enumerate(tree)}
    runs = [[tree[i][0] for i in range(u.first, u.stop)] for u in cut(tree, SIZE)]
    new, recent = dict(old), set()
    for what, n in edits:
        path = tree[n % len(tree)][0]
        if what == "touch" and path in new:
            new[path] = new[path]._replace(ctime=1000 + n)
        elif what == "add":
            new[path + b"-"] = stamp(n)
        elif what == "remove":
            new.pop(path, None)
        else:
            recent.add(path)
    entries = sorted((path, s.size) for path, s in new.items())
    now = [[entries[i][0] for i in range(u.first, u.stop)] for u in cut(entries, SIZE)]
    base = base_of(old, runs, recent)
    for run, found in zip(now, reusable(base, SIZE, now, new), strict=True):
        same = run in runs and all(new[p] == old[p] and p not in recent for p in run)
        assert found == ((Part(b"".join(run).hex(), 1, 1, 1),) if same else None)


def test_an_archive_cut_for_another_size_is_not_reused():
    """Its parts do not meet these runs."""
    base = base_of({b"a": stamp()}, [[b"a"]])
    assert reusable(base, SIZE, [[b"a"]], {b"a": stamp()}) != [None]
    assert reusable(base, 2 * SIZE, [[b"a"]], {b"a": stamp()}) == [None]
    assert reusable(None, SIZE, [[b"a"]], {b"a": stamp()}) == [None]


@pytest.mark.parametrize("change", ["mode", "size", "mtime", "ctime", "inode", "link"])
def test_whatever_a_stamp_tells_counts(change):
    """A file is another one as soon as its ctime or inode is, also with the size and mtime of before."""
    other = stamp()._replace(**{change: b"x" if change == "link" else 99})
    assert not kept(stamp(), other)
    assert not unchanged(base_of({b"a": stamp()}, []), {b"a": other})


def test_of_a_directory_an_archive_holds_mode_and_mtime():
    """That its entries came and went, so that its ctime moved, says nothing about its own header."""
    directory = stamp(0, DIRECTORY)
    assert kept(directory, directory._replace(ctime=99, inode=99))
    assert not kept(directory, directory._replace(mtime=99))
    assert not kept(directory, directory._replace(mode=0o040700))


def test_entries_that_came_or_went_are_changes():
    """An archive is that of a tree only if it has the same names."""
    base = base_of({b"a": stamp(), b"b": stamp()}, [])
    assert unchanged(base, {b"a": stamp(), b"b": stamp()})
    assert not unchanged(base, {b"a": stamp()})
    assert not unchanged(base, {b"a": stamp(), b"b": stamp(), b"c": stamp()})
    assert not unchanged(base, {b"a": stamp(), b"c": stamp()})


def test_a_stamp_is_trusted_once_it_is_older_than_a_tick():
    """A write in the same tick as the look would leave the same ctime."""
    assert young(1000, 1000)
    assert young(1000, 1000 + TICK - 1)
    assert not young(1000, 1000 + TICK)


# ---------------------------------------------------------------- the table


@given(st.lists(parts, min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_the_table_comes_back(found, size):
    """Whatever it holds."""
    index = Index(size, tuple(found))
    assert decode_tail(encode_tail(index)) == index


def test_a_table_of_thousands_of_parts_spans_several_fields():
    """A gzip field holds 65,535 bytes; the rest goes into further ones, and tools read over all of them."""
    index = Index(1, tuple(Part(f"{n:064x}", n, n, n) for n in range(5000)))
    tail = encode_tail(index)
    assert decode_tail(tail) == index
    plain = gzip.decompress(tail)
    assert len(plain) >= 1024
    assert not plain.strip(b"\0")
    assert subprocess.run(["gzip", "-dc"], input=tail, capture_output=True, check=True).stdout == plain
    with tarfile.open(fileobj=io.BytesIO(tail), mode="r:gz") as archive:
        assert archive.getnames() == []


@pytest.mark.parametrize("cut_at", [3, 12, 20, 40, 62])
def test_a_damaged_table_is_refused(cut_at):
    """Cut short anywhere, or of another kind, it is SnapshotCorrupt and never a shorter table."""
    tail = encode_tail(Index(1, (Part("0" * 64, 1, 1, 1),)))
    with pytest.raises(SnapshotCorrupt):
        decode_tail(tail[:cut_at])
    with pytest.raises(SnapshotCorrupt):
        decode_tail(gzip.compress(bytes(1024)))
    with pytest.raises(SnapshotCorrupt):
        decode_tail(tail[:12] + b"XX" + tail[14:])


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_checksums_join(pieces):
    """The checksum of the whole, from those of the pieces and their lengths."""
    crc = google_crc32c.value
    assert join_crc32c([(crc(piece), len(piece)) for piece in pieces]) == crc(b"".join(pieces))


# ---------------------------------------------------------------- headers


members = st.builds(
    Member,
    path=st.one_of(
        st.binary(min_size=1, max_size=110), st.text("ab/", min_size=1, max_size=110).map(str.encode)
    ).filter(lambda path: not path.endswith(b"/")),
    kind=st.sampled_from(Kind),
    mode=st.integers(0, 0o777),
    mtime=st.one_of(st.integers(-(2**62), 2**62), st.integers(0, 2**33).map(lambda seconds: seconds * 10**9)),
    size=st.one_of(st.integers(0, 5000), st.integers(8**11 - 2, 8**11 + 2)),
    target=st.one_of(st.just(b""), st.binary(min_size=1, max_size=110)),
)


@given(members)
def test_headers_are_those_of_tarfile(member):
    """The quick way that most entries take writes the same bytes, also at the limits of what it can."""
    seconds, fraction = divmod(member.mtime, 10**9)
    info = tarfile.TarInfo(member.path.decode("utf-8", "surrogateescape"))
    info.type, info.mode, info.size, info.mtime = member.kind.value, member.mode, member.size, seconds
    info.linkname = member.target.decode("utf-8", "surrogateescape")
    if fraction or seconds < 0:
        sign, (whole, rest) = "-" * (member.mtime < 0), divmod(abs(member.mtime), 10**9)
        info.pax_headers = {"mtime": f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".")}
    assert encode(member) == info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
