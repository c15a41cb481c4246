"""objects.list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_gcs.api import Call, Reply
from fake_gcs.handlers.objects import shown
from fake_gcs.rules import listing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fake_gcs.catalogue import Stored
    from fake_gcs.state import State


async def list_objects(state: State, call: Call) -> Reply:
    state.commits.check_bucket(call.bucket)
    query = listing.parse(call.params, pages=state.rules["list_pages"], globs=state.rules["list_glob"])
    versions = call.flag("versions")

    def scan(start: str) -> Iterator[tuple[str, Stored]]:
        return state.catalogue.scan(call.bucket, start, versions=versions)

    page = listing.page(query, scan)
    document: dict[str, object] = {"kind": "storage#objects"}
    if page.next_start is not None:
        document["nextPageToken"] = listing.token_of_start(page.next_start)
    if page.prefixes:
        document["prefixes"] = page.prefixes
    if page.items:
        document["items"] = [shown(call, item.resource) for item in page.items]
    return Reply(document=document)
