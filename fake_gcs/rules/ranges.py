"""Which bytes of an object a Range header asks for (RFC 9110, section 14); GCS serves one range."""

from __future__ import annotations

import re

from fake_gcs.rules.problems import Invalid

_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


def parse(header: str | None, size: int) -> tuple[int, int] | None:
    """Answers (first, last) byte, or None for the whole object, also when the header cannot be read.

    Raises:
        Invalid: 416, no byte of the object is in the range.
    """
    match = _RANGE.match(header.strip()) if header else None
    if match is None or match.group() == "bytes=-":
        return None
    first, last = match.groups()
    if first and last and int(first) > int(last):
        return None
    if not first:
        start, end = max(0, size - int(last)), size - 1
        unsatisfiable = int(last) == 0 or size == 0
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
        unsatisfiable = start >= size
    if unsatisfiable:
        raise Invalid(
            "The requested range cannot be satisfied.",
            status=416,
            reason="requestedRangeNotSatisfiable",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return start, end
