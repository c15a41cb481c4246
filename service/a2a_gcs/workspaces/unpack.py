"""Unpacks an archive below a directory, safe against every archive.

Nothing is written through a link: each member is made relative to a
descriptor of its parent (`beneath`), exclusively, and the directory was empty
at the start, so whatever is met on the way was made by the same archive.
Links keep their text, wherever it points.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

from a2a_gcs.workspaces.archive import TarGzReader, TarReader
from a2a_gcs.workspaces.beneath import Beneath
from a2a_gcs.workspaces.bridge import CHUNK, Inflow
from a2a_gcs.workspaces.errors import UnsafeArchive, WorkspaceError, shown
from a2a_gcs.workspaces.limits import Limits, Meter
from a2a_gcs.workspaces.manifest import young
from a2a_gcs.workspaces.members import Kind, Member
from a2a_gcs.workspaces.scanner import Tree, survey

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IMPLICIT = 0o755  # a directory that is named only as a parent
_HOLE = bytes(64 << 10)
_UNSAFE = {
    errno.EEXIST: "the archive holds another member of that name",
    errno.ENOTDIR: "a part of its path is a file or a link",
    errno.ELOOP: "a part of its path is a link",
    errno.ENAMETOOLONG: "a part of its path is too long for this file system",
    errno.EILSEQ: "its name cannot be written on this file system",
}


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came out.

    Attributes:
        entries: Files, directories and links made.
        tree: The directory as it is now.
        recent: Entries too young to be recognised by their stamps.
        places: Where in the tar each member begins, in the archive's order.
        end: Where the end marker does.
    """

    entries: int
    tree: Tree
    recent: frozenset[bytes]
    places: Sequence[tuple[bytes, int]]
    end: int


def unpack(root: int, inflow: Inflow, limits: Limits) -> Unpacked:
    """Unpacks a tar.gz that flows in; runs in a thread.

    Raises:
        SnapshotCorrupt, UnsafeArchive, WorkspaceTooLarge, WorkspaceError: As Snapshots.restore.
        Stopped: Nobody wants it any more.
    """
    meter = Meter(limits)
    return _unpack(root, TarGzReader(inflow, lambda: inflow.taken, meter), meter, limits)


def unpack_plain(root: int, inflow: Inflow, limits: Limits, packed: int) -> Unpacked:
    """The same for the tar of an archive that has `packed` bytes."""
    meter = Meter(limits)
    return _unpack(root, TarReader(io.BufferedReader(inflow, CHUNK).read, lambda: packed, meter), meter, limits)


def _unpack(root: int, reader: TarReader, meter: Meter, limits: Limits) -> Unpacked:
    extractor = Extractor(root, meter)
    extractor.run(reader)
    now = time.time_ns()
    tree = survey(root, limits)
    recent = frozenset(
        entry.path for entry in tree.entries if young(entry.stamp.ctime, now) and not stat.S_ISDIR(entry.stamp.mode)
    )
    return Unpacked(meter.entries, tree, recent, extractor.places, reader.start)


class Extractor:
    """Unpacks one archive into an empty directory."""

    def __init__(self, root: int, meter: Meter) -> None:
        self._beneath = Beneath(root)
        self._targets = Beneath(root)
        self._meter = meter
        self._directories: dict[bytes, Member | None] = {}
        self.places: list[tuple[bytes, int]] = []

    def run(self, reader: TarReader) -> None:
        """Makes all members. On any error part of them is left; emptying the directory is the caller's."""
        with self._beneath, self._targets:
            for member in reader:
                self._meter.entry(member.path)
                self._meter.file(member.path, member.size)
                self.places.append((member.path, reader.start))
                try:
                    self._make(member, reader)
                except OSError as error:
                    raise _refusal(member, error) from error
            self._finish_directories()

    def _make(self, member: Member, reader: TarReader) -> None:
        if member.kind is Kind.DIRECTORY:
            self._directory(member)
            return
        *parents, name = member.path.split(b"/")
        parent = self._parent(parents)
        if member.kind is Kind.FILE:
            _file(member, name, parent, reader)
        elif member.kind is Kind.SYMLINK:
            os.symlink(member.target, name, dir_fd=parent)
            os.utime(name, ns=(member.mtime, member.mtime), dir_fd=parent, follow_symlinks=False)
        else:
            self._hard_link(member, name, parent)

    def _directory(self, member: Member) -> None:
        if not member.path:
            return  # the workspace itself keeps the mode it was made with
        if self._directories.get(member.path) is not None:
            raise UnsafeArchive(member.path, _UNSAFE[errno.EEXIST])
        if member.path not in self._directories:
            *parents, name = member.path.split(b"/")
            os.mkdir(name, 0o700, dir_fd=self._parent(parents))
        self._directories[member.path] = member

    def _parent(self, parts: list[bytes]) -> int:
        try:
            return self._beneath.directory(parts)
        except FileNotFoundError:
            for depth in range(1, len(parts) + 1):
                self._implicit(parts[:depth])
        return self._beneath.directory(parts)

    def _implicit(self, parts: list[bytes]) -> None:
        path = b"/".join(parts)
        if path not in self._directories:
            self._meter.entry(path)
            os.mkdir(parts[-1], 0o700, dir_fd=self._beneath.directory(parts[:-1]))
            self._directories[path] = None

    def _hard_link(self, member: Member, name: bytes, parent: int) -> None:
        *parents, target = member.target.split(b"/")
        refused = f"it is a hard link to {shown(member.target)!r}, which is no file that came before it"
        try:
            source = self._targets.directory(parents)
            earlier = os.stat(target, dir_fd=source, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            raise UnsafeArchive(member.path, refused) from None
        if not stat.S_ISREG(earlier.st_mode):
            raise UnsafeArchive(member.path, refused)
        os.link(target, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)

    def _finish_directories(self) -> None:
        """Modes and times come last and from the leaves up: a read-only directory could not be filled."""
        for path in sorted(self._directories, reverse=True):
            member = self._directories[path]
            fd = self._beneath.directory(path.split(b"/"))
            os.fchmod(fd, member.mode if member else _IMPLICIT)
            if member:
                os.utime(fd, ns=(member.mtime, member.mtime))


def _file(member: Member, name: bytes, parent: int, reader: TarReader) -> None:
    fd = os.open(name, _CREATE, 0o600, dir_fd=parent)
    try:
        hole = False
        for data in reader.content(member):
            hole = _write(fd, data)
        if hole:
            os.ftruncate(fd, member.size)
        os.fchmod(fd, member.mode)
        os.utime(fd, ns=(member.mtime, member.mtime))
    finally:
        os.close(fd)


def _write(fd: int, data: bytes) -> bool:
    """Writes a run; long zeros become a hole, so that sparse files stay small. Whether it was one."""
    if len(data) >= len(_HOLE) and not data.strip(b"\0"):
        os.lseek(fd, len(data), os.SEEK_CUR)
        return True
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return False


def _refusal(member: Member, error: OSError) -> WorkspaceError:
    reason = _UNSAFE.get(error.errno or 0)
    if reason is not None:
        return UnsafeArchive(member.path, reason)
    return WorkspaceError.of("restore", member.path, error)
