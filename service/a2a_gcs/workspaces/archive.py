"""The stream of a tar.gz: written member by member, read back and verified in flat memory."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable, Iterator

from isal import igzip, igzip_lib, isal_zlib

from a2a_gcs.workspaces.bridge import CHUNK
from a2a_gcs.workspaces.errors import SnapshotCorrupt, UnsafeArchive
from a2a_gcs.workspaces.index import GZIP, LEVEL
from a2a_gcs.workspaces.limits import Meter
from a2a_gcs.workspaces.members import BLOCK, Header, Member, decode, encode, padding, parse_block, parse_records

_RECORD = 20 * BLOCK
_MAX_EXTENDED = 1 << 20  # a PAX header holds two paths and some numbers
_MAX_EXTENSIONS = 4  # extended headers before one member
_ZERO_BLOCK = bytes(BLOCK)
UNDECODABLE: tuple[type[Exception], ...] = (EOFError, igzip.BadGzipFile, igzip_lib.IsalError, zlib.error)  # type: ignore[assignment]  # isal's stub is wrong


class TarGzWriter:
    """Writes a plain PAX tar.gz through `sink`, in chunks of about CHUNK bytes.

    Equal sequences of calls give equal bytes: no clock, no owner and no thread has a part in them.
    """

    def __init__(self, sink: Callable[[bytes], None], meter: Meter) -> None:
        self._sink = sink
        self._meter = meter
        self._gzip = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, GZIP)
        self._plain = bytearray()
        self._packed = bytearray()
        self.unpacked = 0
        self.packed = 0

    def member(self, member: Member) -> None:
        self._write(encode(member))

    def content(self, data: bytes) -> None:
        """A run of a file's content; all runs together have the size its header says, then `end_of_file`."""
        for start in range(0, len(data), CHUNK):
            self._write(data[start : start + CHUNK])

    def end_of_file(self, size: int) -> None:
        self._write(bytes(padding(size)))

    def finish(self) -> None:
        """Writes the end marker and what is still buffered."""
        self._write(bytes(2 * BLOCK))
        self._write(bytes(-self.unpacked % _RECORD))
        self._compress()
        self._packed += self._gzip.flush()
        self._hand_over()

    def _write(self, data: bytes) -> None:
        self.unpacked += len(data)
        self._plain += data
        if len(self._plain) >= CHUNK:
            self._compress()

    def _compress(self) -> None:
        self._packed += self._gzip.compress(self._plain)
        self._plain.clear()
        self._meter.stream(self.unpacked, self.packed + len(self._packed))
        if len(self._packed) >= CHUNK:
            self._hand_over()

    def _hand_over(self) -> None:
        self.packed += len(self._packed)
        self._sink(bytes(self._packed))
        self._packed.clear()


class TarReader:
    """Reads a tar and refuses whatever is not a whole one.

    Iterate over the members, and read the content of each file with `content` before the next.

    Args:
        read: Gives at most so many bytes of the tar, and none only at its end.
        taken: Tells how many packed bytes were read so far.
        meter: Of limits.

    Attributes:
        start: Where the member that was read last begins in the tar, in bytes; at the end, where its end marker does.
    """

    def __init__(self, read: Callable[[int], bytes], taken: Callable[[], int], meter: Meter) -> None:
        self._source = read
        self._taken = taken
        self._meter = meter
        self._unpacked = 0
        self.start = 0

    def __iter__(self) -> Iterator[Member]:
        while (member := self._next()) is not None:
            yield member
        self._expect_end()

    def content(self, member: Member) -> Iterator[bytes]:
        """The content of a file, in runs of at most CHUNK bytes."""
        left = member.size
        while left:
            data = self._exactly(min(left, CHUNK))
            left -= len(data)
            yield data
        if any(self._exactly(padding(member.size))):
            raise SnapshotCorrupt("the archive holds data where zeros belong")

    def _next(self) -> Member | None:
        records: dict[bytes, bytes] = {}
        self.start = self._unpacked
        for _ in range(_MAX_EXTENSIONS + 1):
            block = self._exactly(BLOCK)
            if block == _ZERO_BLOCK and not records:
                return None
            header = parse_block(block)
            extension = self._extension(header)
            if extension is None:
                return decode(header, records)
            records |= extension
        raise UnsafeArchive(header.name, "it has too many extended headers")

    def _extension(self, header: Header) -> dict[bytes, bytes] | None:
        if header.type in {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}:
            return parse_records(self._extended(header))
        if header.type == tarfile.GNUTYPE_LONGNAME:
            return {b"path": self._extended(header).rstrip(b"\0")}
        if header.type == tarfile.GNUTYPE_LONGLINK:
            return {b"linkpath": self._extended(header).rstrip(b"\0")}
        if header.type == tarfile.XGLTYPE:
            if parse_records(self._extended(header)).keys() - {b"comment"}:
                raise UnsafeArchive(b"PAX global header", "it would change every member after it")
            return {}
        return None

    def _extended(self, header: Header) -> bytes:
        if header.size > _MAX_EXTENDED:
            reason = f"it has an extended header of {header.size:,} bytes"
            raise UnsafeArchive(header.name, reason)
        payload = self._exactly(header.size)
        self._exactly(padding(header.size))
        return payload

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) < size:
            raise SnapshotCorrupt("the archive ends in the middle: it is truncated")
        return data

    def _expect_end(self) -> None:
        while data := self._read(CHUNK):
            if data.strip(b"\0"):
                raise SnapshotCorrupt("the archive goes on after its end marker")

    def _read(self, size: int) -> bytes:
        data = self._source(size) if size else b""
        self._unpacked += len(data)
        self._meter.stream(self._unpacked, self._taken())
        return data


class TarGzReader(TarReader):
    """Reads a tar.gz of one or more gzip members; refuses also what cannot be decompressed."""

    def __init__(self, source: io.RawIOBase, taken: Callable[[], int], meter: Meter) -> None:
        super().__init__(self._decompress, taken, meter)
        self._gzip = igzip.IGzipFile(fileobj=source, mode="rb")  # type: ignore[no-untyped-call]

    def _decompress(self, size: int) -> bytes:
        try:
            data: bytes = self._gzip.read(size)
        except UNDECODABLE as error:
            raise SnapshotCorrupt(f"the archive cannot be unpacked: {error}") from error
        return data
