"""Rule `transcoding`: objects stored with Content-Encoding: gzip are decompressed on the way out.

Source: cloud.google.com/storage/docs/transcoding. Decompressed unless the request accepts gzip or
the object's Cache-Control holds no-transform; then without Content-Length, and Range is ignored.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_GZIP = 16 + zlib.MAX_WBITS


def decompresses(resource: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
    return (
        resource.get("contentEncoding") == "gzip"
        and "no-transform" not in resource.get("cacheControl", "")
        and "gzip" not in headers.get("Accept-Encoding", "")
    )


async def decompressed(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decompresses a stream; one that is not gzip at all passes as it is."""
    decoder = zlib.decompressobj(_GZIP)
    plain = False
    async for piece in stream:
        if not plain:
            try:
                yield decoder.decompress(piece)
                continue
            except zlib.error:
                plain = True
        yield piece
