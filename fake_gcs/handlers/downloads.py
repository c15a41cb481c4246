"""Bodies on their way out."""

from __future__ import annotations

import email.utils
from datetime import datetime
from typing import TYPE_CHECKING

from fake_gcs.api import Call, Reply
from fake_gcs.handlers.objects import conditions_of
from fake_gcs.resources import etag
from fake_gcs.rules import ranges, transcoding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fake_gcs.catalogue import Stored
    from fake_gcs.state import State

_SHOWN = {
    "contentDisposition": "Content-Disposition",
    "contentEncoding": "Content-Encoding",
    "contentLanguage": "Content-Language",
}


async def media(state: State, call: Call) -> Reply:
    """Serves objects.media: all of a body or one range, of the live version or of one generation."""
    found = state.commits.find(call.bucket, call.name, call.params.get("generation"))
    state.commits.check_read(found, conditions_of(call))
    headers = _headers(call, found, with_metadata=call.xml or not state.rules["media_headers"])
    size = int(found.resource["size"])
    if state.rules["transcoding"] and transcoding.decompresses(found.resource, call.headers):
        del headers["Content-Encoding"]
        headers["Warning"] = "214 UploadServer gunzipped"
        stream = transcoding.decompressed(await _read(state, found, 0, size - 1))
        return Reply(200, headers, stream=stream)
    wanted = ranges.parse(call.headers.get("Range"), size)
    first, last = wanted or (0, size - 1)
    status = 200 if wanted is None else 206
    if wanted is not None:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    if size == 0:
        return Reply(200, headers)
    stream = await _read(state, found, first, last)
    return Reply(status, headers, stream=stream, length=last - first + 1)


async def _read(state: State, found: Stored, first: int, last: int) -> AsyncIterator[bytes]:
    return await state.blobs.read(found.blob, first, last) if first <= last else _nothing()


async def _nothing() -> AsyncIterator[bytes]:
    for piece in [b""]:
        yield piece


def _headers(call: Call, found: Stored, *, with_metadata: bool) -> dict[str, str]:
    resource = found.resource
    hashes = [
        f"{kind}={resource[name]}" for kind, name in (("crc32c", "crc32c"), ("md5", "md5Hash")) if name in resource
    ]
    updated = datetime.fromisoformat(resource["updated"])
    headers = {
        "Content-Type": resource.get("contentType", "application/octet-stream"),
        "Cache-Control": resource.get("cacheControl", "no-cache, no-store, max-age=0, must-revalidate"),
        "ETag": f'"{resource["md5Hash"]}"' if call.xml and "md5Hash" in resource else etag(*_numbers(found)),
        "Last-Modified": email.utils.format_datetime(updated, usegmt=True),
        "X-Goog-Generation": resource["generation"],
        "X-Goog-Metageneration": resource["metageneration"],
        "X-Goog-Hash": ",".join(hashes),
        "X-Goog-Storage-Class": resource["storageClass"],
        "X-Goog-Stored-Content-Encoding": resource.get("contentEncoding", "identity"),
        "X-Goog-Stored-Content-Length": resource["size"],
    }
    headers |= {header: resource[member] for member, header in _SHOWN.items() if member in resource}
    if with_metadata:
        headers |= {f"X-Goog-Meta-{key}": value for key, value in resource.get("metadata", {}).items()}
    return headers


def _numbers(found: Stored) -> tuple[int, int]:
    return found.version.generation, found.version.metageneration
