"""Rule `resumable`: chunks, offsets and status queries of a resumable upload.

Source: cloud.google.com/storage/docs/performing-resumable-uploads and /resumable-uploads. Chunks but
the last are multiples of 256 KiB; bytes below the persisted offset are ignored; `bytes */*` asks,
`bytes */TOTAL` asks and, once all bytes are there, finishes. ASSUMPTION: a chunk that starts beyond
the persisted offset is refused with 400 (documented only as an error).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fake_gcs.rules.problems import Invalid

QUANTUM = 256 * 1024
_RANGE = re.compile(r"bytes (?:(\*)|(\d+)-(\d+|\*))/(\d+|\*)\Z")


@dataclass(frozen=True)
class Chunk:
    """What a request carries: bytes start..end of an object of total bytes.

    Attributes:
        start: Offset of the first byte, None in a status query.
        end: Offset of the last byte, None when the body's length decides.
        total: Size of the whole object, None while it is not known.
    """

    start: int | None
    end: int | None
    total: int | None


def parse(content_range: str | None) -> Chunk:
    """Reads a Content-Range header; without one the body is the whole object.

    Raises:
        Invalid: the header cannot be read, or contradicts itself.
    """
    if content_range is None:
        return Chunk(0, None, None)
    match = _RANGE.match(content_range.strip())
    if match is None:
        raise Invalid(f"Failed to parse Content-Range header: {content_range}")
    status, start, end, total = match.groups()
    size = None if total == "*" else int(total)
    if status:
        return Chunk(None, None, size)
    chunk = Chunk(int(start), None if end == "*" else int(end), size)
    if chunk.end is not None and (chunk.end < int(start) or (size is not None and chunk.end >= size)):
        raise Invalid(f"Failed to parse Content-Range header: {content_range}")
    return chunk


def accepted(persisted: int, received: int, *, final: bool) -> int:
    """Answers how many bytes are persisted after a chunk, of `received` in all.

    Raises:
        Invalid: a chunk other than the last brought less than 256 KiB.
    """
    if final:
        return received
    if 0 < received - persisted < QUANTUM:
        raise Invalid(
            "Invalid request. The number of bytes uploaded is required to be equal or greater than 262144, except "
            "for the final request (it's recommended to be the exact multiple of 262144). The received request "
            f"contained {received - persisted} bytes, which does not meet this requirement."
        )
    return received - received % QUANTUM
