"""Ends a stream when its reader leaves, so that a connection is not held until the garbage collector comes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def closing(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """`contextlib.aclosing` for iterators that need not be generators."""
    try:
        yield chunks
    finally:
        aclose = getattr(chunks, "aclose", None)
        if aclose is not None:
            await aclose()
