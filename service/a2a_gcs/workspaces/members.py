"""One member of an archive and its PAX header, in both directions; pure.

Blocks of the plain form that `encode` writes are read here; any other by
`tarfile.TarInfo.frombuf`, one at a time, which takes several times as long.
Everything around them is ours: `tarfile` reads extended headers of any length
into memory, follows chains of them recursively, and takes a damaged header for
the end of the archive.
"""

from __future__ import annotations

import re
import struct
import tarfile
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from a2a_gcs.workspaces.errors import SnapshotCorrupt, UnsafeArchive, shown
from a2a_gcs.workspaces.limits import MAX_PATH

BLOCK = tarfile.BLOCKSIZE
PERMISSIONS = 0o777
"""What is kept of a mode: set-uid, set-gid and sticky bits do not travel."""

_NANO = 10**9
_MAX_MTIME = (1 << 63) * _NANO  # what time_t holds; file systems clamp it further
_NAME = 100
_MAX_OCTAL = 8**11 - 1  # what eleven digits hold
_NOBODY = b"0000000\0" * 2
_REST = tarfile.POSIX_MAGIC.ljust(BLOCK - 2 * _NAME - 57, b"\0")  # no owner, no device, no prefix
_REST_SUM = sum(_REST) + 8 * ord(" ")
_PLAIN_NUMBERS = re.compile(rb"[0-7]{7}\0(?:0{7}\0){2}[0-7]{11}\0[0-7]{11}\0[0-7]{6}\0 \Z")
_PLAIN_BLOCK = struct.Struct("100s7sx16x11sx11sx6s2xc100s255s")
_PLAIN_KINDS = frozenset({tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.XHDTYPE})
_KNOWN = 2 * _NAME + 57  # bytes before those that are always the same
_NUMBERS = slice(_NAME, _NAME + 56)
_CHECKSUM = slice(_NAME + 48, _NAME + 56)
_NUMBER = re.compile(rb"\d{1,19}\Z", re.ASCII)
_TIME = re.compile(rb"(-?)(\d{1,19})(?:\.(\d{1,30}))?\Z", re.ASCII)
_TEXT = ("utf-8", "surrogateescape")


class Kind(Enum):
    """What is kept of a tree, by its type flag in the header."""

    FILE = tarfile.REGTYPE
    DIRECTORY = tarfile.DIRTYPE
    SYMLINK = tarfile.SYMTYPE
    HARDLINK = tarfile.LNKTYPE


_KINDS = {kind.value: kind for kind in Kind} | {tarfile.AREGTYPE: Kind.FILE, tarfile.CONTTYPE: Kind.FILE}
_REFUSED = {
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a FIFO",
    tarfile.GNUTYPE_SPARSE: "a sparse file in GNU format",
}


class Header(NamedTuple):
    """One header block, as it stands there."""

    name: bytes
    type: bytes
    mode: int
    size: int
    mtime: int
    target: bytes


@dataclass(frozen=True, slots=True)
class Member:
    """A file, directory or link.

    Attributes:
        path: Below the workspace, without leading or trailing slash; empty for the workspace itself.
        kind: What it is.
        mode: Permission bits.
        mtime: Modification time in nanoseconds since 1970.
        size: Bytes of content that follow the header; 0 but for files.
        target: Of links: the link's text, or for hard links the path of an earlier member.
    """

    path: bytes
    kind: Kind
    mode: int
    mtime: int
    size: int = 0
    target: bytes = b""


def encode(member: Member) -> bytes:
    """The header blocks of a member; equal members have equal bytes. Owners are left out."""
    seconds, fraction = divmod(member.mtime, _NANO)
    records = {}
    if fraction or seconds < 0:
        sign, (whole, rest) = "-" * (member.mtime < 0), divmod(abs(member.mtime), _NANO)
        records = {"mtime": f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".")}
    name = member.path + b"/" * (member.kind is Kind.DIRECTORY)
    plain = len(name) <= _NAME and len(member.target) <= _NAME and name.isascii() and member.target.isascii()
    if plain and member.size <= _MAX_OCTAL and seconds <= _MAX_OCTAL:
        block = _block(name, member.mode & PERMISSIONS, member.size, max(seconds, 0), member)
        return _mtime_record(records["mtime"].encode()) + block if records else block
    return _encode_any(member, seconds, records)


def _encode_any(member: Member, seconds: int, records: dict[str, str]) -> bytes:
    info = tarfile.TarInfo(member.path.decode(*_TEXT))
    info.type = member.kind.value
    info.mode = member.mode & PERMISSIONS
    info.size = member.size
    info.linkname = member.target.decode(*_TEXT)
    info.mtime = seconds
    info.pax_headers = records
    return info.tobuf(tarfile.PAX_FORMAT, *_TEXT)


def _block(name: bytes, mode: int, size: int, mtime: int, member: Member | None = None) -> bytes:
    """What `tarfile` makes of a name, link and numbers that fit; it takes ten times as long."""
    kind, target = (member.kind.value, member.target) if member else (tarfile.XHDTYPE, b"")
    numbers = b"%07o\0%s%011o\0%011o\0" % (mode, _NOBODY, size, mtime)
    checksum = sum(name) + sum(numbers) + sum(kind) + sum(target) + _REST_SUM
    filled = name.ljust(_NAME, b"\0"), numbers, checksum, kind, target.ljust(_NAME, b"\0"), _REST
    return b"%s%s%06o\0 %s%s%s" % filled


def _mtime_record(value: bytes) -> bytes:
    record = b" mtime=%s\n" % value
    length = len(record) + 2  # two digits: a time has at most thirty bytes
    payload = b"%d%s" % (length, record)
    return _block(b"././@PaxHeader", 0, length, 0) + payload.ljust(BLOCK, b"\0")


def padding(size: int) -> int:
    """Bytes of zeros after content of this size."""
    return -size % BLOCK


def parse_block(block: bytes) -> Header:
    """Reads one header block. Raises SnapshotCorrupt."""
    header = _plain_block(block)
    if header is not None:
        return header
    try:
        info = tarfile.TarInfo.frombuf(block, *_TEXT)
    except (tarfile.HeaderError, ValueError, IndexError) as error:
        raise SnapshotCorrupt(f"the archive holds a damaged header: {error}") from error
    name, target = info.name.encode(*_TEXT), info.linkname.encode(*_TEXT)
    if info.size < 0:
        raise UnsafeArchive(name, "its size is negative")
    return Header(name, info.type, info.mode, info.size, int(info.mtime), target)


def _plain_block(block: bytes) -> Header | None:
    """A block without owner, device and prefix, with plain numbers and the right checksum; None for any other."""
    if not _PLAIN_NUMBERS.match(block[_NUMBERS]):
        return None
    name, mode, size, mtime, checksum, kind, target, rest = _PLAIN_BLOCK.unpack(block)
    if rest != _REST or kind not in _PLAIN_KINDS:
        return None
    # The sum of bytes, as half of another checksum that is computed in C: they come to less than its modulus here.
    summed = (zlib.adler32(block[:_KNOWN]) & 0xFFFF) - 1
    if summed - sum(block[_CHECKSUM]) + _REST_SUM != int(checksum, 8):
        return None
    path, target = name.partition(b"\0")[0], target.partition(b"\0")[0]
    if kind == tarfile.DIRTYPE:
        path = path.rstrip(b"/")
    return Header(path, kind, int(mode, 8), int(size, 8), int(mtime, 8), target)


def parse_records(payload: bytes) -> dict[bytes, bytes]:
    """Reads the records of a PAX header: length, space, key, =, value, newline. Raises SnapshotCorrupt."""
    records: dict[bytes, bytes] = {}
    start = 0
    while start < len(payload):
        space = payload.find(b" ", start, start + 20)
        length = int(payload[start:space]) if space > 0 and _NUMBER.match(payload[start:space]) else 0
        record = payload[space + 1 : start + length]
        key, equals, value = record.partition(b"=")
        if start + length > len(payload) or not (key and equals and value.endswith(b"\n")):
            raise SnapshotCorrupt("the archive holds a malformed PAX header")
        records[key] = value[:-1]
        start += length
    return records


def decode(header: Header, records: dict[bytes, bytes]) -> Member:
    """Puts a header block and the extended records before it together, or refuses the member.

    Raises:
        UnsafeArchive: Its kind, name, size, time or target is not one that `encode` could write.
    """
    raw = records.get(b"path", header.name)
    if records and any(key.startswith(b"GNU.sparse") for key in records):
        raise UnsafeArchive(raw, "it is a sparse file in GNU format")
    kind = _KINDS.get(header.type)
    if kind is None:
        raise UnsafeArchive(raw, f"it is {_REFUSED.get(header.type, f'of the unknown type {header.type!r}')}")
    size = _size(raw, records.get(b"size"), header.size)
    if size and kind is not Kind.FILE:
        raise UnsafeArchive(raw, "it carries content, which its kind has not")
    target = records.get(b"linkpath", header.target)
    return Member(
        path=_path(raw, kind),
        kind=kind,
        mode=header.mode & PERMISSIONS,
        mtime=_mtime(raw, records.get(b"mtime"), header.mtime),
        size=size,
        target=_target(raw, kind, target),
    )


def _path(raw: bytes, kind: Kind) -> bytes:
    if len(raw) > MAX_PATH:
        raise UnsafeArchive(raw, f"its name has {len(raw):,} bytes, more than {MAX_PATH:,}")
    if b"\0" in raw:
        raise UnsafeArchive(raw, "its name holds a NUL byte")
    if raw.startswith(b"/"):
        raise UnsafeArchive(raw, "its name is absolute")
    parts = [part for part in raw.split(b"/") if part != b"."]
    if kind is Kind.DIRECTORY:
        while parts and not parts[-1]:
            parts.pop()
    elif not parts:
        raise UnsafeArchive(raw, "it would take the place of the workspace itself")
    if b".." in parts:
        raise UnsafeArchive(raw, "its name leads out by '..'")
    if b"" in parts:
        raise UnsafeArchive(raw, "its name has an empty part")
    return b"/".join(parts)


def _target(raw: bytes, kind: Kind, target: bytes) -> bytes:
    if kind is Kind.HARDLINK:
        try:
            return _path(target, Kind.FILE)
        except UnsafeArchive as error:
            raise UnsafeArchive(raw, f"it is a hard link to {shown(target)!r}, and {error.reason}") from None
    if kind is not Kind.SYMLINK:
        return b""
    if not target or b"\0" in target or len(target) >= MAX_PATH:
        raise UnsafeArchive(raw, "it is a link whose target is empty, too long, or holds a NUL byte")
    return target


def _size(raw: bytes, record: bytes | None, size: int) -> int:
    if record is None:
        return size
    if not _NUMBER.match(record):
        raise UnsafeArchive(raw, "its size is not a number")
    return int(record)


def _mtime(raw: bytes, record: bytes | None, seconds: int) -> int:
    nanoseconds = seconds * _NANO
    if record is not None:
        match = _TIME.match(record)
        if match is None:
            raise UnsafeArchive(raw, "its time of modification is not a number")
        sign, whole, fraction = match.groups(default=b"")
        nanoseconds = int(whole) * _NANO + int(fraction[:9].ljust(9, b"0"))
        nanoseconds = -nanoseconds if sign else nanoseconds
    if abs(nanoseconds) >= _MAX_MTIME:
        raise UnsafeArchive(raw, "its time of modification is out of range")
    return nanoseconds
