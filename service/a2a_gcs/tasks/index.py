"""All pointers of a root, page by page: the index that a listing across contexts goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from a2a_gcs.layout import POINTERS_PREFIX
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore, Page

Take = Callable[[Sequence[ObjectInfo]], Awaitable[None]]

_LARGE_PAGES = 20
"""From here on the ranges of the first hexadecimal digit are listed side by side: at most 16 requests more."""

_BOUNDARIES = tuple(POINTERS_PREFIX + digit for digit in "123456789abcdef")
_END = POINTERS_PREFIX[:-1] + chr(ord(POINTERS_PREFIX[-1]) + 1)
_PAGES_AT_ONCE = 8
_SAMPLE = 4
_SPACE = float(16**_SAMPLE)


async def each_page(store: ObjectStore, take: Take) -> None:
    """Hands every page of pointers to `take`, in no particular order, and waits for it.

    One request after the other while there are few, and 8 at a time where there are many: our task ids are
    random, so how far the first page reaches tells how many there are. So many pages are held at most.

    Raises:
        StoreError: A page could not be listed; or what `take` raises.
    """
    first = await store.list(POINTERS_PREFIX)
    await take(first.objects)
    if _pages(first) < _LARGE_PAGES:
        await _rest(store, take, "", first, _END)
        return
    gate = asyncio.Semaphore(_PAGES_AT_ONCE)

    async def one(start: str, end: str) -> None:
        async with gate:
            await _range(store, take, first, start, end)

    ranges = [asyncio.ensure_future(one(*limits)) for limits in _ranges(first.objects[-1].key)]
    try:
        await asyncio.gather(*ranges)
    finally:
        for each in ranges:
            each.cancel()
        await asyncio.gather(*ranges, return_exceptions=True)


def _pages(first: Page) -> float:
    """How many pages there are, if ids are spread evenly over hexadecimal numbers; 1 if they are none."""
    if not first.objects or not first.objects[0].key.startswith(POINTERS_PREFIX + "0"):
        return 1
    digits = first.objects[-1].key.removeprefix(POINTERS_PREFIX)[:_SAMPLE]
    try:
        return _SPACE / (int(digits, 16) + 1)
    except ValueError:
        return 1


def _ranges(last: str) -> Iterator[tuple[str, str]]:
    """The ranges after a key, each up to the next; the first goes on where the first page ended: it has no start."""
    start = ""
    for end in (*(b for b in _BOUNDARIES if b > last), _END):
        yield start, end
        start = end


async def _range(store: ObjectStore, take: Take, first: Page, start: str, end: str) -> None:
    page = first
    if start:
        page = await store.list(POINTERS_PREFIX, start=start)
        await take(_before(page.objects, end))
    await _rest(store, take, start, page, end)


async def _rest(store: ObjectStore, take: Take, start: str, page: Page, end: str) -> None:
    """What follows a page, up to a key."""
    while page.next is not None and not (page.objects and page.objects[-1].key >= end):
        page = await store.list(POINTERS_PREFIX, start=start, page=page.next)
        await take(_before(page.objects, end))


def _before(objects: Sequence[ObjectInfo], end: str) -> Sequence[ObjectInfo]:
    return objects if not objects or objects[-1].key < end else [info for info in objects if info.key < end]
