"""Objects and buckets as the JSON API shows them; pure."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any
from urllib.parse import quote

from fake_gcs.rules.bucket_config import merge, patched

Json = dict[str, Any]

# What a client may set on an object, at upload, compose, copy, patch and update.
WRITABLE = (
    "cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "contexts",
    "customTime", "eventBasedHold", "metadata", "retention", "storageClass", "temporaryHold",
)  # fmt: skip
PROJECT_NUMBER = "123456789012"


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC with milliseconds, as real GCS writes it."""
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def etag(generation: int, metageneration: int) -> str:
    """The etag of real GCS: base64 of a protocol buffer of generation (field 1) and metageneration (2)."""
    return base64.b64encode(b"\x08" + _varint(generation) + b"\x10" + _varint(metageneration)).decode()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def writable(wanted: Json) -> Json:
    """Answers what of a client's document is kept on a new object."""
    return {name: wanted[name] for name in WRITABLE if wanted.get(name) is not None}


def new_object(bucket: str, name: str, wanted: Json, *, facts: Json, generation: int, now: float) -> Json:
    """Answers a new object's resource.

    Args:
        bucket: Its bucket.
        name: Its name.
        wanted: What the client asks for, see WRITABLE.
        facts: What the body is: size, crc32c, md5Hash, componentCount.
        generation: Its generation; the metageneration is 1.
        now: Seconds since the epoch.
    """
    moment = timestamp(now)
    return {
        "kind": "storage#object",
        "name": name,
        "bucket": bucket,
        "generation": str(generation),
        "metageneration": "1",
        "storageClass": "STANDARD",
        **writable(wanted),
        **facts,
        "timeCreated": moment,
        "updated": moment,
        "timeStorageClassUpdated": moment,
        "timeFinalized": moment,
    }


def patched_object(resource: Json, change: Json, now: float) -> Json:
    """Answers the resource after a PATCH (RFC 7396): the generation stays, the metageneration grows."""
    allowed = {name: change[name] for name in WRITABLE if name in change}
    return _touched(merge(resource, allowed), now)


def updated_object(resource: Json, wanted: Json, now: float) -> Json:
    """Answers the resource after an update (PUT): what may be written and is not named is gone."""
    kept = {name: value for name, value in resource.items() if name not in WRITABLE or name == "storageClass"}
    return _touched({**kept, **writable(wanted)}, now)


def _touched(resource: Json, now: float) -> Json:
    return {
        **resource,
        "metageneration": str(int(resource["metageneration"]) + 1),
        "updated": timestamp(now),
    }


def shown_object(resource: Json, base_url: str, *, full: bool = False) -> Json:
    """Adds what depends on the asker: links under his address, id, etag; owner and acl in a full projection."""
    bucket, name, generation = resource["bucket"], quote(resource["name"], safe=""), resource["generation"]
    own = f"b/{bucket}/o/{name}"
    shown = {
        **resource,
        "id": f"{bucket}/{resource['name']}/{generation}",
        "selfLink": f"{base_url}/storage/v1/{own}",
        "mediaLink": f"{base_url}/download/storage/v1/{own}?generation={generation}&alt=media",
        "etag": etag(int(generation), int(resource["metageneration"])),
    }
    if full:
        shown["owner"] = {"entity": "project-owners-" + PROJECT_NUMBER}
        shown["acl"] = []
    return shown


def new_bucket(wanted: Json, location: str, now: float) -> Json:
    """Answers a new bucket's resource, with the defaults of real GCS."""
    moment = timestamp(now)
    kept: Json = {name: wanted[name] for name in ("hierarchicalNamespace", "objectRetention") if name in wanted}
    bucket: Json = {
        "kind": "storage#bucket",
        "id": wanted["name"],
        "name": wanted["name"],
        "projectNumber": PROJECT_NUMBER,
        "generation": str(int(now * 1_000_000)),
        "metageneration": "1",
        "location": str(wanted.get("location") or location).upper(),
        "locationType": "region",
        "timeCreated": moment,
        "updated": moment,
        **kept,
    }
    return patched(bucket, wanted, moment)


def shown_bucket(bucket: Json, base_url: str) -> Json:
    return {
        **bucket,
        "selfLink": f"{base_url}/storage/v1/b/{bucket['name']}",
        "etag": etag(0, int(bucket["metageneration"])),
    }
