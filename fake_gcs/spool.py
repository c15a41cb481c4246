"""A body on its way: in memory while it is small, in a temporary file from then on.

fake-gcs-server holds its one lock for as long as an upload's body takes to arrive, so a body is
taken in whole before it is passed on: a slow client slows nobody else.
"""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

IN_MEMORY_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024


class Spool:
    """Grows by write(), can be cut back by truncate(), and is read by content().

    Attributes:
        size: Bytes in it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.size = 0
        where = None if folder is None else str(folder)
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=where)  # noqa: SIM115 - close() below

    def write(self, piece: bytes) -> None:
        self._file.seek(self.size)
        self._file.write(piece)
        self.size += len(piece)

    def truncate(self, size: int) -> None:
        self._file.seek(size)
        self._file.truncate()
        self.size = size

    def content(self) -> bytes | AsyncIterator[bytes]:
        """Answers the whole body from its beginning: as bytes while it is small, else in pieces."""
        self._file.seek(0)
        return self._file.read() if self.size <= IN_MEMORY_BYTES else self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while piece := self._file.read(PIECE_BYTES):
            yield piece

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
