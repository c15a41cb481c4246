"""Writes a workspace into an archive, while nobody promises that it stands still."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from a2a_gcs.workspaces.beneath import Beneath, open_file
from a2a_gcs.workspaces.bridge import CHUNK
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.limits import Meter
from a2a_gcs.workspaces.manifest import Stamp, young
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


class Writer(Protocol):
    """Where members go."""

    def member(self, member: Member) -> None:
        """Begins a member with its header."""

    def content(self, data: bytes) -> None:
        """A run of a file's content; all runs together have the size its header says, then `end_of_file`."""

    def end_of_file(self, size: int) -> None:
        """Ends a file's content."""


class Packer:
    """Writes the entries of one scan, all or some of them.

    Attributes:
        vanished: Entries that were not there any more; whether one was renamed, only a new scan can tell.
        stamps: What was written, as it was when it was read.
        recent: Of that, entries too young to be recognised by their stamps, with a digest of their content.
    """

    def __init__(self, beneath: Beneath, writer: Writer, meter: Meter, check: Callable[[], None]) -> None:
        self._beneath = beneath
        self._writer = writer
        self._meter = meter
        self._check = check
        self.vanished: list[Entry] = []
        self.stamps: dict[bytes, Stamp] = {}
        self.recent: dict[bytes, bytes] = {}

    def run(self, entries: Iterable[Entry]) -> None:
        """Raises Changed, whatever `check` raises, WorkspaceTooLarge, WorkspaceError."""
        for entry in entries:
            self._check()
            try:
                self._entry(entry)
            except _GONE:
                if entry.linked:
                    raise Changed(entry.path, "it was removed, and had other names") from None
                self.vanished.append(entry)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise Changed(entry.path, "a link took its place") from error
                raise WorkspaceError.of("save", entry.path, error) from error

    def _entry(self, entry: Entry) -> None:
        *parents, name = entry.path.split(b"/")
        parent = self._beneath.directory(parents)
        now = time.time_ns()
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(entry.stamp.mode):
            raise Changed(entry.path, "it became another kind of file")
        if stat.S_ISREG(status.st_mode):
            self._file(entry, name, parent)
        elif stat.S_ISLNK(status.st_mode):
            target = os.readlink(name, dir_fd=parent)
            self._member(entry.path, Kind.SYMLINK, status, target=target)
            if young(status.st_ctime_ns, now):
                self.recent[entry.path] = hashlib.sha256(target).digest()
        elif (status.st_dev, status.st_ino) != entry.inode:
            raise Changed(entry.path, "another directory took its place")
        else:
            self._member(entry.path, Kind.DIRECTORY, status)

    def _member(self, path: bytes, kind: Kind, status: os.stat_result, *, size: int = 0, target: bytes = b"") -> None:
        mode = self._beneath.widened.get(path, stat.S_IMODE(status.st_mode))
        self._meter.entry(path)
        self._meter.file(path, size)
        self.stamps[path] = Stamp.of(status, mode=mode, link=target if kind is Kind.HARDLINK else b"")
        self._writer.member(Member(path, kind, mode, status.st_mtime_ns, size, target))

    def _file(self, entry: Entry, name: bytes, parent: int) -> None:
        path = entry.path
        fd = open_file(name, parent)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Changed(path, "it became another kind of file")
            if (entry.linked or status.st_nlink > 1) and (status.st_dev, status.st_ino) != entry.inode:
                raise Changed(path, "another file took its place")
            if entry.stamp.link:
                self._member(path, Kind.HARDLINK, status, target=entry.stamp.link)
            elif status.st_size <= _SMALL:
                self._small(path, fd)
            else:
                self._large(path, fd)
        finally:
            os.close(fd)

    def _small(self, path: bytes, fd: int) -> None:
        for _ in range(_READS):
            now, before = time.time_ns(), os.fstat(fd)
            data = _read_whole(fd, before.st_size)
            if len(data) == before.st_size and _same(before, os.fstat(fd)):
                self._member(path, Kind.FILE, before, size=len(data))
                self._writer.content(data)
                self._writer.end_of_file(len(data))
                if young(before.st_ctime_ns, now):
                    self.recent[path] = hashlib.sha256(data).digest()
                return
        raise Changed(path, "it was written to")

    def _large(self, path: bytes, fd: int) -> None:
        now, before = time.time_ns(), os.fstat(fd)
        self._member(path, Kind.FILE, before, size=before.st_size)
        digest = hashlib.sha256() if young(before.st_ctime_ns, now) else None
        offset = 0
        while offset < before.st_size:
            self._check()
            data = os.pread(fd, min(CHUNK, before.st_size - offset), offset)
            if not data:
                raise Changed(path, "it shrank")
            self._writer.content(data)
            offset += len(data)
            if digest is not None:
                digest.update(data)
        self._writer.end_of_file(before.st_size)
        if not _same(before, os.fstat(fd)):
            raise Changed(path, "it was written to")
        if digest is not None:
            self.recent[path] = digest.digest()


def _read_whole(fd: int, size: int) -> bytes:
    """Up to one byte more than `size`, which tells that the file grew. One call where it did not, as a rule."""
    first = os.pread(fd, size + 1, 0)
    if len(first) == size:
        return first  # less than was asked for: its end
    data = bytearray(first)
    while len(data) <= size and (run := os.pread(fd, size + 1 - len(data), len(data))):
        data += run
    return bytes(data)


def _same(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns, before.st_ctime_ns) == (
        after.st_size,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )
