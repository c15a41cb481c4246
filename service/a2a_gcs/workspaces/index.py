"""The last part of a composed archive: a table of all parts, and the end of the tar; pure.

The table stands in extra fields of gzip members without content (RFC 1952,
2.3.1.1), which every program that unpacks skips.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from isal import isal_zlib

from a2a_gcs.workspaces.errors import SnapshotCorrupt
from a2a_gcs.workspaces.manifest import Part
from a2a_gcs.workspaces.members import BLOCK

GZIP = 31
"""Window bits that ask for a gzip header; python-isal writes no time and no name into it."""
LEVEL = 1

_HEADER = struct.Struct("<4s4xBB")  # magic, method and flags; no time; no hints, unknown system
_MAGIC = b"\x1f\x8b\x08\x04"
_FIELD = struct.Struct("<H2sH")  # length of all fields, name and length of the only one
_NAME = b"AG"
_TABLE = struct.Struct("<BI")  # version, part size
_VERSION = 1
_ROW = struct.Struct("<32sIII")
_NOTHING = b"\x03\0" + bytes(8)  # an empty last block, and the checksum and size of no bytes
_ROWS = 1400  # what a field of 65,535 bytes holds
_RECORD = 20 * BLOCK


@dataclass(frozen=True, slots=True)
class Index:
    """What an archive is composed of, its tail left out."""

    part_size: int
    parts: tuple[Part, ...]


def encode_tail(index: Index) -> bytes:
    """The gzip members that end an archive of these parts."""
    parts = index.parts
    tables = [_table(index.part_size, parts[i : i + _ROWS]) for i in range(0, max(len(parts), 1), _ROWS)]
    return b"".join(tables) + isal_zlib.compress(bytes(end_size(parts)), LEVEL, GZIP)


def end_size(parts: Sequence[Part]) -> int:
    """Zeros at the end of a tar: two blocks, and what fills the last record."""
    return 2 * BLOCK + -(sum(part.unpacked for part in parts) + 2 * BLOCK) % _RECORD


def decode_tail(tail: bytes) -> Index:
    """Reads the table back. Raises SnapshotCorrupt."""
    parts: list[Part] = []
    size = start = 0
    try:
        while tail[start : start + 4] == _MAGIC:
            length, name, used = _FIELD.unpack_from(tail, start + _HEADER.size)
            start += _HEADER.size + _FIELD.size
            version, size = _TABLE.unpack_from(tail, start)
            if (name, version, used) != (_NAME, _VERSION, length - 4) or len(tail) < start + used:
                raise SnapshotCorrupt("the archive's table of parts has an unknown form")
            rows = tail[start + _TABLE.size : start + used]
            parts += [Part(row[0].hex(), *row[1:]) for row in _ROW.iter_unpack(rows)]
            start += used + len(_NOTHING)
    except struct.error as error:
        raise SnapshotCorrupt(f"the archive's table of parts is damaged: {error}") from error
    if not parts:
        raise SnapshotCorrupt("the archive has no table of parts")
    return Index(size, tuple(parts))


def _table(size: int, parts: Sequence[Part]) -> bytes:
    rows = b"".join(_ROW.pack(bytes.fromhex(p.name), p.packed, p.unpacked, p.crc32c) for p in parts)
    table = _TABLE.pack(_VERSION, size) + rows
    return _HEADER.pack(_MAGIC, 0, 255) + _FIELD.pack(len(table) + 4, _NAME, len(table)) + table + _NOTHING
