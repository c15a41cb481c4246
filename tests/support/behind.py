"""A look into a store from behind the command under test, which brings an event loop of its own."""

from __future__ import annotations

import asyncio

from a2a_gcs.objectstore import open_store


def within(uri, act):
    async def inside():
        async with open_store(uri) as store:
            return await act(store)

    return asyncio.run(inside())


def keys(uri):
    async def listed(store):
        return [info.key for info in (await store.list("")).objects]

    return within(uri, listed)
