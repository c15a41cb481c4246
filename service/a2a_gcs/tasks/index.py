"""All pointers of a root, page by page: the index that a listing across contexts goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from a2a_gcs.layout import POINTERS_PREFIX
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore, Page

Take = Callable[[Sequence[ObjectInfo]], Awaitable[None]]

_LARGE_PAGES = 20
"""From here on the ids of each first hexadecimal digit are listed side by side: at most 18 requests more."""

_END = POINTERS_PREFIX[:-1] + chr(ord(POINTERS_PREFIX[-1]) + 1)
_DIGITS = "0123456789abcdef"
_GAPS = ((":", "a"), ("g", ""))
"""Where ids that do not begin with a hexadecimal digit are: from one character up to another, or to the end."""

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
        await _rest(store, take, POINTERS_PREFIX, first)
        return
    gate = asyncio.Semaphore(_PAGES_AT_ONCE)

    async def one(part: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await part()

    taken = first.objects[-1].key
    digits = [d for d in _DIGITS if POINTERS_PREFIX + d > taken or taken.startswith(POINTERS_PREFIX + d)]
    parts = [partial(_digit, store, take, digit, taken) for digit in digits]
    parts += [partial(_gap, store, take, *limits) for limits in _GAPS]
    tasks = [asyncio.ensure_future(one(part)) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _pages(first: Page) -> float:
    """How many pages there are, if ids are spread evenly over hexadecimal numbers; 1 if they are none."""
    if not first.objects or not first.objects[0].key.startswith(POINTERS_PREFIX + "0"):
        return 1
    digits = first.objects[-1].key.removeprefix(POINTERS_PREFIX)[:_SAMPLE]
    try:
        return _SPACE / (int(digits, 16) + 1)
    except ValueError:
        return 1


async def _digit(store: ObjectStore, take: Take, digit: str, taken: str) -> None:
    """What begins with a digit, but not what is known already: by prefix, so no page reaches beyond it in vain."""
    prefix = POINTERS_PREFIX + digit
    start = taken if taken.startswith(prefix) else ""
    page = await store.list(prefix, start=start)
    await take(page.objects if page.objects and page.objects[0].key > taken else page.objects[1:])
    await _rest(store, take, prefix, page, start=start)


async def _gap(store: ObjectStore, take: Take, start: str, end: str) -> None:
    """What there is between two characters, which is nothing nearly always: one look tells."""
    first, beyond = POINTERS_PREFIX + start, POINTERS_PREFIX + end if end else _END
    look = await store.list(POINTERS_PREFIX, start=first, limit=1)
    if not _before(look.objects, beyond):
        return
    page = await store.list(POINTERS_PREFIX, start=first)
    await take(_before(page.objects, beyond))
    await _rest(store, take, POINTERS_PREFIX, page, start=first, end=beyond)


async def _rest(store: ObjectStore, take: Take, prefix: str, page: Page, *, start: str = "", end: str = _END) -> None:
    """What follows a page, up to a key."""
    while page.next is not None and not (page.objects and page.objects[-1].key >= end):
        page = await store.list(prefix, start=start, page=page.next)
        await take(_before(page.objects, end))


def _before(objects: Sequence[ObjectInfo], end: str) -> Sequence[ObjectInfo]:
    return objects if not objects or objects[-1].key < end else [info for info in objects if info.key < end]
