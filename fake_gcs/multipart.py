"""Takes a multipart/related upload apart as it arrives: first the metadata, then the media (RFC 2387).

The line end of the first boundary counts for all of them: gcsfs sends bare LF, and media may end in CR.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from fake_gcs.rules.problems import Invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MAX_HEAD = 1024 * 1024
_BOUNDARY = re.compile(r'boundary="?([^";]+)"?', re.IGNORECASE)
_TYPE = re.compile(rb"^content-type:[ \t]*([^\r\n]+)", re.IGNORECASE | re.MULTILINE)


def boundary_of(content_type: str) -> bytes:
    """Raises Invalid unless the content type is multipart/related with a boundary."""
    found = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/related") or found is None:
        raise Invalid("Failed to parse Content-Type header: multipart/related with a boundary is required.")
    return found.group(1).encode()


def boundary_of_mixed(content_type: str) -> bytes:
    """Raises Invalid unless the content type is multipart with a boundary, as a batch's."""
    found = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/") or found is None:
        raise Invalid("Failed to parse Content-Type header: multipart/mixed with a boundary is required.")
    return found.group(1).encode()


class RelatedUpload:
    """A multipart upload being read: read_metadata() first, then media()."""

    def __init__(self, pieces: AsyncIterator[bytes], boundary: bytes) -> None:
        self._pieces = pieces
        self._mark = b"--" + boundary
        self._buffer = b""
        self._newline = b"\n"
        self.content_type: str | None = None

    async def read_metadata(self) -> dict[str, Any]:
        """Answers the first part, a JSON object; content_type is that of the second afterwards.

        Raises:
            Invalid: the parts cannot be told apart, or the first is no JSON object.
        """
        first = await self._until(b"\n")
        if first.rstrip(b"\r\n") != self._mark:
            raise _malformed()
        self._newline = b"\r\n" if first.endswith(b"\r\n") else b"\n"
        await self._until(self._newline * 2, headers=True)
        part = await self._until(self._newline + self._mark)
        rest = await self._until(self._newline)
        if rest.strip():
            raise _malformed()
        headers = await self._until(self._newline * 2, headers=True)
        found = _TYPE.search(headers)
        self.content_type = found.group(1).decode("latin-1").strip() if found else None
        try:
            metadata = json.loads(part.removesuffix(self._newline + self._mark) or b"{}")
        except ValueError as error:
            raise Invalid("Parse Error", reason="parseError") from error
        if not isinstance(metadata, dict):
            raise Invalid("Parse Error", reason="parseError")
        return metadata

    async def media(self) -> AsyncIterator[bytes]:
        """Yields the second part in pieces, up to the boundary that ends it.

        Raises:
            Invalid: the body ended without that boundary.
        """
        end = self._newline + self._mark
        while True:
            at = self._buffer.find(end)
            if at >= 0:
                yield self._buffer[:at]
                break
            safe = len(self._buffer) - len(end) + 1
            if safe > 0:
                yield self._buffer[:safe]
                self._buffer = self._buffer[safe:]
            if not await self._more():
                raise _malformed()
        async for _ in self._pieces:
            pass

    async def _until(self, end: bytes, *, headers: bool = False) -> bytes:
        """Takes bytes up to and including end. A part without headers starts with its empty line."""
        while True:
            if headers and self._buffer.startswith(self._newline):
                end = self._newline
            at = self._buffer.find(end)
            if at >= 0:
                taken, self._buffer = self._buffer[: at + len(end)], self._buffer[at + len(end) :]
                return taken
            if len(self._buffer) > _MAX_HEAD or not await self._more():
                raise _malformed()

    async def _more(self) -> bool:
        async for piece in self._pieces:
            self._buffer += piece
            return True
        return False


def _malformed() -> Invalid:
    return Invalid("Malformed multipart body.")
