"""Which bytes of a content a request asks for (RFC 9110, 14.1.2 and 14.2); pure."""

from __future__ import annotations

import re

_ONE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.IGNORECASE)


class Unsatisfiable(ValueError):
    """Nothing of the content is in the range: 416."""


def byte_range(header: str | None, size: int) -> range | None:
    """The bytes of a `Range` header with one range; None for the whole content.

    A server may ignore what it does not understand, and so this does: other units, malformed
    ranges, and several of them.

    Raises:
        Unsatisfiable: It begins after the end.
    """
    match = _ONE.fullmatch(header or "")
    if not match or not (match[1] or match[2]):
        return None
    if not match[1]:
        if not size or not int(match[2]):
            raise Unsatisfiable
        return range(max(size - int(match[2]), 0), size)
    first, last = int(match[1]), int(match[2]) if match[2] else size - 1
    if match[2] and last < first:
        return None
    if first >= size:
        raise Unsatisfiable
    return range(first, min(last + 1, size))
