"""Uploads in one request: media, multipart, and the XML API's PUT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fake_gcs.api import ApiError, Call, Reply, UploadHead
from fake_gcs.handlers.objects import conditions_of, shown
from fake_gcs.multipart import RelatedUpload, boundary_of
from fake_gcs.rules import checksums
from fake_gcs.rules.problems import Invalid
from fake_gcs.spool import Spool

if TYPE_CHECKING:
    from fake_gcs.rules.preconditions import Preconditions
    from fake_gcs.state import State

Json = dict[str, Any]

_XML_HEADERS = {
    "Cache-Control": "cacheControl",
    "Content-Disposition": "contentDisposition",
    "Content-Encoding": "contentEncoding",
    "Content-Language": "contentLanguage",
    "Content-Type": "contentType",
}
_META = "x-goog-meta-"


async def insert(state: State, call: Call) -> Reply:
    """Serves objects.insert: takes the body in, stores it, and only then makes it visible."""
    conditions = conditions_of(call)
    with Spool(state.folder) as spool:
        head = call.head or await read_head(call)
        name, wanted = head.name, head.wanted
        state.commits.check_new(call.bucket, name, wanted, conditions)
        async for piece in head.media:
            spool.write(piece)
        declared = checksums.declared(wanted, call.headers)
        resource = await store(state, call.bucket, name, wanted, declared=declared, conditions=conditions, spool=spool)
    if call.xml:
        headers = {"ETag": f'"{resource["md5Hash"]}"', "x-goog-generation": resource["generation"]}
        return Reply(200, {**headers, "x-goog-metageneration": "1"})
    return Reply(document=shown(call, resource))


async def store(
    state: State,
    bucket: str,
    name: str,
    wanted: Json,
    *,
    declared: dict[str, str],
    conditions: Preconditions,
    spool: Spool,
) -> Json:
    """Uploads a body as a blob, checks what was declared of it, and commits the object."""
    with state.blobs.reserve(bucket, name) as blob:
        facts = await state.blobs.put(blob, spool)
        if state.rules["checksums"]:
            checksums.check(declared, {"md5": facts["md5Hash"], "crc32c": facts["crc32c"]})
        return state.commits.insert(
            "objects.insert", bucket, name, wanted, facts=facts, blob=blob, conditions=conditions
        )


async def read_head(call: Call) -> UploadHead:
    """Reads an upload up to its media.

    Raises:
        Invalid: it cannot be read.
    """
    if call.xml:
        return UploadHead(call.name, _wanted_by_headers(call), call.pieces())
    if call.params.get("uploadType") == "media":
        return UploadHead(call.name, _wanted_by_params(call), call.pieces())
    if call.params.get("uploadType") != "multipart":
        raise Invalid("Invalid upload type", parameter="uploadType")
    upload = RelatedUpload(call.pieces(), boundary_of(call.headers.get("Content-Type", "")))
    wanted = await upload.read_metadata()
    if "contentType" not in wanted and upload.content_type:
        wanted["contentType"] = upload.content_type
    if "contentEncoding" in call.params:
        wanted["contentEncoding"] = call.params["contentEncoding"]
    return UploadHead(name_of(call, wanted), wanted, upload.media())


def name_of(call: Call, wanted: Json) -> str:
    """Answers the object's name: the parameter, which wins, or the one in the metadata."""
    name = call.name or wanted.get("name") or ""
    if not isinstance(name, str):
        raise ApiError(400, "invalid", "Invalid value for: name")
    return name


def _wanted_by_params(call: Call) -> Json:
    wanted: Json = {}
    if "Content-Type" in call.headers:
        wanted["contentType"] = call.headers["Content-Type"]
    if "contentEncoding" in call.params:
        wanted["contentEncoding"] = call.params["contentEncoding"]
    return wanted


def _wanted_by_headers(call: Call) -> Json:
    wanted: Json = {member: call.headers[name] for name, member in _XML_HEADERS.items() if name in call.headers}
    metadata = metadata_headers(call)
    return {**wanted, "metadata": metadata} if metadata else wanted


def metadata_headers(call: Call) -> dict[str, str]:
    """Answers the custom metadata in X-Goog-Meta-* headers; keys in lower case."""
    return {
        name.lower().removeprefix(_META): value
        for name, value in call.headers.items()
        if name.lower().startswith(_META)
    }
