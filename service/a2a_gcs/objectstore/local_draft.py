"""A body on its way into the local store: in memory while it is small, else in a file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from a2a_gcs.objectstore.copying import copy_bytes
from a2a_gcs.objectstore.port import ObjectInfo
from a2a_gcs.objectstore.rules import Crc32c

SMALL = 64 * 1024
"""Most bytes of a body that is kept in the index itself, where one wait for the disk covers many writes."""


class Draft:
    """A body that nobody sees before `LocalTree.apply` names it in a row.

    Args:
        path: Where its file would be; it is made only for what is not small. Its name is the blob's later.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._checksum = Crc32c()
        self._memory = bytearray()
        self._file: BinaryIO | None = None

    def stays_small(self, size: int) -> bool:
        """Whether so many bytes more can be written without touching the disk."""
        return self._file is None and self.size + size <= SMALL

    @property
    def body(self) -> bytes | None:
        """All of it, if it is small."""
        return bytes(self._memory) if self._file is None else None

    def write(self, data: bytes) -> None:
        self._checksum.update(data)
        self._take(data)

    def append(self, body: bytes | BinaryIO, info: ObjectInfo) -> None:
        """Copies another object's body. Its checksum is taken over: who reads damaged bytes is told all the same.

        Raises:
            OSError: It is shorter than it was.
        """
        if isinstance(body, bytes):
            if len(body) != info.size:
                raise OSError(errno.EIO, f"{len(body):,} of {info.size:,} bytes are there")
            self._take(body)
        else:
            file = self._spilled()
            file.flush()
            copy_bytes(body.fileno(), file.fileno(), info.size)
            self.size += info.size
        self._checksum.append(info.crc32c, info.size)

    def finish(self, *, durable: bool) -> None:
        """Closes the file, if there is one; with `durable` it is on the disk then."""
        if self._file is None:
            return
        self._file.flush()
        if durable:
            os.fsync(self._file.fileno())
        self._file.close()
        self.path.chmod(0o444)  # the visible link shares the inode: an editor must not write through it

    def discard(self) -> None:
        """Removes the file, unless it has been moved to its place."""
        if self._file is not None:
            self._file.close()
            self.path.unlink(missing_ok=True)

    @property
    def crc32c(self) -> str:
        return self._checksum.encoded()

    def _take(self, data: bytes) -> None:
        if self.stays_small(len(data)):
            self._memory += data
        else:
            self._spilled().write(data)
        self.size += len(data)

    def _spilled(self) -> BinaryIO:
        if self._file is None:
            self._file = self.path.open("xb")
            self._file.write(self._memory)
            self._memory.clear()
        return self._file
