"""Writes a workspace into an archive, while nobody promises that it stands still."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable

from a2a_gcs.workspaces.archive import TarGzWriter
from a2a_gcs.workspaces.beneath import Beneath, open_file
from a2a_gcs.workspaces.bridge import CHUNK
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.limits import Meter
from a2a_gcs.workspaces.members import Kind, Member
from a2a_gcs.workspaces.scanner import Entry

_SMALL = 1 << 20  # read as a whole before its header is written, so that a retry costs nothing
_READS = 5
_GONE = (FileNotFoundError, NotADirectoryError)


class Changed(Exception):
    """The tree is not what it was; the archive so far is worthless, a new one may succeed."""

    def __init__(self, path: bytes, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


class Packer:
    """Writes the entries of one scan.

    Attributes:
        vanished: Entries that were not there any more; whether one was renamed, only a new scan can tell.
    """

    def __init__(self, beneath: Beneath, writer: TarGzWriter, meter: Meter, check: Callable[[], None]) -> None:
        self._beneath = beneath
        self._writer = writer
        self._meter = meter
        self._check = check
        self._links: dict[tuple[int, int], bytes] = {}
        self.vanished: list[Entry] = []

    def run(self, entries: Iterable[Entry]) -> None:
        """Raises Changed, whatever `check` raises, WorkspaceTooLarge, WorkspaceError."""
        for entry in entries:
            self._check()
            try:
                self._entry(entry)
            except _GONE:
                self.vanished.append(entry)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise Changed(entry.path, "a link took its place") from error
                raise WorkspaceError.of("save", entry.path, error) from error
        self._writer.finish()

    def _entry(self, entry: Entry) -> None:
        *parents, name = entry.path.split(b"/")
        parent = self._beneath.directory(parents)
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(entry.mode):
            raise Changed(entry.path, "it became another kind of file")
        if stat.S_ISREG(status.st_mode):
            self._file(entry.path, name, parent)
        elif stat.S_ISLNK(status.st_mode):
            target = os.readlink(name, dir_fd=parent)
            self._member(entry.path, Kind.SYMLINK, status, target=target)
        elif (status.st_dev, status.st_ino) != entry.inode:
            raise Changed(entry.path, "another directory took its place")
        else:
            self._member(entry.path, Kind.DIRECTORY, status)

    def _member(self, path: bytes, kind: Kind, status: os.stat_result, *, size: int = 0, target: bytes = b"") -> None:
        mode = self._beneath.widened.get(path, stat.S_IMODE(status.st_mode))
        self._meter.entry(path)
        self._meter.file(path, size)
        self._writer.member(Member(path, kind, mode, status.st_mtime_ns, size, target))

    def _file(self, path: bytes, name: bytes, parent: int) -> None:
        fd = open_file(name, parent)
        try:
            status = os.fstat(fd)
            inode = (status.st_dev, status.st_ino)
            if not stat.S_ISREG(status.st_mode):
                raise Changed(path, "it became another kind of file")
            if inode in self._links:
                self._member(path, Kind.HARDLINK, status, target=self._links[inode])
                return
            if status.st_size <= _SMALL:
                self._small(path, fd)
            else:
                self._large(path, fd)
            if status.st_nlink > 1:
                self._links[inode] = path
        finally:
            os.close(fd)

    def _small(self, path: bytes, fd: int) -> None:
        for _ in range(_READS):
            before = os.fstat(fd)
            data = _read_whole(fd, before.st_size)
            if len(data) == before.st_size and _same(before, os.fstat(fd)):
                self._member(path, Kind.FILE, before, size=len(data))
                self._writer.content(data)
                self._writer.end_of_file(len(data))
                return
        raise Changed(path, "it was written to")

    def _large(self, path: bytes, fd: int) -> None:
        before = os.fstat(fd)
        self._member(path, Kind.FILE, before, size=before.st_size)
        offset = 0
        while offset < before.st_size:
            self._check()
            data = os.pread(fd, min(CHUNK, before.st_size - offset), offset)
            if not data:
                raise Changed(path, "it shrank")
            self._writer.content(data)
            offset += len(data)
        self._writer.end_of_file(before.st_size)
        if not _same(before, os.fstat(fd)):
            raise Changed(path, "it was written to")


def _read_whole(fd: int, size: int) -> bytes:
    """Up to one byte more than `size`, which tells that the file grew."""
    data = bytearray()
    while len(data) <= size and (run := os.pread(fd, size + 1 - len(data), len(data))):
        data += run
    return bytes(data)


def _same(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns, before.st_ctime_ns) == (
        after.st_size,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )
