"""Any tree and any member survives the way out and back."""
# Names that are no UTF-8 need bytes.
# ruff: noqa: PTH101, PTH102, PTH118, PTH119, PTH120, PTH123, PTH211

import asyncio
import gzip
import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_gcs.workspaces.archive import TarGzReader, TarGzWriter
from a2a_gcs.workspaces.errors import SnapshotCorrupt, WorkspaceError
from a2a_gcs.workspaces.limits import Limits, Meter
from a2a_gcs.workspaces.members import BLOCK, Kind, Member, decode, encode, parse_block, parse_records
from a2a_gcs.workspaces.removal import remove
from tests.unit.workspaces.trees import describe, round_trip

NAMES = st.one_of(
    st.sampled_from([b"a", b"b", b"a-b", b"A", b"...", b"-x", b"\xff", "\u00e9".encode()]),
    st.binary(min_size=1, max_size=40).filter(
        lambda name: name not in {b".", b"..", b".a2aignore"} and not {0, 47} & set(name)
    ),
)
MODES = st.integers(0, 0o777)
MTIMES = st.integers(-(10**18), 4 * 10**18)
CONTENT = st.one_of(st.binary(max_size=600), st.integers(0, 300_000).map(bytes))
TARGETS = st.one_of(
    st.sampled_from([b"../..", b"/etc/passwd", b"a//b/", b"."]),
    st.binary(min_size=1, max_size=300).filter(lambda text: 0 not in text),
)
LEAVES = st.one_of(
    st.tuples(st.just("file"), MODES, MTIMES, CONTENT),
    st.tuples(st.just("symlink"), MTIMES, TARGETS),
    st.tuples(st.just("hard link"), st.integers(0, 50)),
)
TREES = st.recursive(
    LEAVES,
    lambda children: st.tuples(st.just("directory"), MODES, MTIMES, st.dictionaries(NAMES, children, max_size=5)),
    max_leaves=25,
)


def grow(parent: bytes, children: dict, files: list[bytes]) -> None:
    for name, (kind, *facts) in children.items():
        path = os.path.join(parent, name)
        if kind == "directory":
            mode, mtime, inner = facts
            os.mkdir(path)
            grow(path, inner, files)
            os.chmod(path, mode)
            os.utime(path, ns=(mtime, mtime))
        elif kind == "symlink":
            os.symlink(facts[1], path)
            os.utime(path, ns=(facts[0], facts[0]), follow_symlinks=False)
        elif kind == "hard link":
            if files:
                os.link(files[facts[0] % len(files)], path)
        else:
            with open(path, "wb") as f:
                f.write(facts[2])
            os.chmod(path, facts[0])
            os.utime(path, ns=(facts[1], facts[1]))
            files.append(path)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, TREES, max_size=6))
def test_any_tree_comes_back_equal(tree):
    """Random names, modes, times, contents, links and nesting: the restored tree equals the saved one."""
    base = tempfile.mkdtemp()
    try:
        source, target = Path(base, "source"), Path(base, "target")
        source.mkdir()
        target.mkdir()
        grow(os.fsencode(source), tree, [])
        before = describe(source)

        asyncio.run(round_trip(source, target, ignore=()))

        assert describe(target) == before
    finally:
        beside = os.open(os.path.dirname(base), os.O_RDONLY)
        remove(os.fsencode(os.path.basename(base)), beside)  # shutil fails on some of these trees without privileges
        os.close(beside)


PATHS = st.lists(NAMES, min_size=1, max_size=8).map(b"/".join)


@given(PATHS, MODES, st.integers(-(1 << 40), 1 << 70), st.integers(0, 1 << 50))
def test_a_header_decodes_to_what_was_encoded(path, mode, mtime, size):
    """Encoding and decoding a member is the identity, whatever its name, time and size."""
    before = Member(path, Kind.FILE, mode, mtime, size)
    blocks = encode(before)

    info, records = parse_block(blocks[:BLOCK]), {}
    if info.type == b"x":
        records = parse_records(blocks[BLOCK : BLOCK + info.size])
        info = parse_block(blocks[-BLOCK:])

    assert decode(info, records) == before


@given(
    PATHS.filter(lambda path: len(path) < 90),
    st.sampled_from(list(Kind)),
    MODES,
    st.integers(0, 8**11 - 1),
    st.integers(0, 8**11 - 1),
    st.none() | st.tuples(st.integers(0, BLOCK - 1), st.integers(0, 255)),
)
def test_a_plain_header_is_read_as_tarfile_reads_it(path, kind, mode, mtime, size, damage):  # noqa: PLR0917  # Hypothesis
    """The short way, whole or with a byte changed: the same as the long way, or damaged for both."""
    target = b"a/b" if kind in {Kind.SYMLINK, Kind.HARDLINK} else b""
    member = Member(path, kind, mode, mtime * 10**9, size if kind is Kind.FILE else 0, target)
    block = bytearray(encode(member)[-BLOCK:])
    if damage:
        block[damage[0]] = damage[1]
    try:
        wanted = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, IndexError):
        with pytest.raises(SnapshotCorrupt):
            parse_block(bytes(block))
        return
    try:
        found = parse_block(bytes(block))
    except WorkspaceError:
        assert wanted.size < 0
        return
    assert found == (
        os.fsencode(wanted.name),
        wanted.type,
        wanted.mode,
        wanted.size,
        int(wanted.mtime),
        os.fsencode(wanted.linkname),
    )


@given(st.lists(st.tuples(PATHS, st.binary(max_size=700)), max_size=5), st.data())
def test_no_bytes_make_the_reader_do_anything_but_read_or_refuse(files, data):
    """A valid archive with bytes overwritten at will either parses or raises a WorkspaceError, nothing else."""
    packed = bytearray()
    writer = TarGzWriter(packed.extend, Meter(Limits()))
    for path, content in files:
        writer.member(Member(path, Kind.FILE, 0o644, 0, len(content)))
        writer.content(content)
        writer.end_of_file(len(content))
    writer.finish()
    plain = bytearray(gzip.decompress(packed))
    for position, value in data.draw(st.lists(st.tuples(st.integers(0, len(plain) - 1), st.integers(0, 255)))):
        plain[position] = value

    reader = TarGzReader(io.BytesIO(gzip.compress(plain, 1)), lambda: 1 << 20, Meter(Limits()))
    refused = False
    try:
        found = [(member.path, b"".join(reader.content(member))) for member in reader]
    except WorkspaceError:
        refused = True

    assert refused or len(found) <= len(files)
