"""Which operation a request asks for: method and target in, operation and names out; pure.

JSON API: /storage/v1, /upload/storage/v1, /download/storage/v1, /batch/storage/v1. Anything else is
the XML API, /BUCKET/OBJECT, which signed URLs use. An object's name is one percent-encoded segment in
the JSON API, as with real GCS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote_to_bytes

CONTROL = "control"


@dataclass(frozen=True)
class Route:
    """What a request asks for.

    Attributes:
        operation: `resource.verb`, `batch`, `control`, or "" for what does not exist.
        path: Below the control API, the rest of the path.
    """

    operation: str
    bucket: str = ""
    name: str = ""
    target: tuple[str, str] = ("", "")
    params: dict[str, str] = field(default_factory=dict)
    xml: bool = False
    path: str = ""


_BUCKETS = {"GET": "buckets.list", "POST": "buckets.insert"}
_BUCKET = {"GET": "buckets.get", "PATCH": "buckets.patch", "PUT": "buckets.update", "DELETE": "buckets.delete"}
_OBJECT = {"GET": "objects.get", "PATCH": "objects.patch", "PUT": "objects.update", "DELETE": "objects.delete"}
_OF_BUCKET = {
    ("GET", "o"): "objects.list",
    ("GET", "storageLayout"): "buckets.getStorageLayout",
    ("GET", "iam"): "buckets.getIamPolicy",
    ("PUT", "iam"): "buckets.setIamPolicy",
    ("GET", "iam/testPermissions"): "buckets.testIamPermissions",
}
_XML = {"GET": "objects.media", "HEAD": "objects.media", "PUT": "objects.insert", "DELETE": "objects.delete"}
_UPLOAD = re.compile(r"/(?:upload|resumable/upload)/storage/v1/b/([^/]+)/o/?\Z")
_DOWNLOAD = re.compile(r"/download/storage/v1/b/([^/]+)/o/([^/]+)\Z")
_JSON = re.compile(r"/storage/v1/b(?:/([^/]+)(?:/(.*))?)?\Z")
_TWO = re.compile(r"([^/]+)/(rewriteTo|copyTo)/b/([^/]+)/o/([^/]+)\Z")
_MOVE = re.compile(r"([^/]+)/moveTo/o/([^/]+)\Z")
_COMPOSE = re.compile(r"([^/]+)/compose\Z")
_VERBS = {"rewriteTo": "objects.rewrite", "copyTo": "objects.copy"}


def route(method: str, target: str, override: str = "") -> Route:
    """Understands a request.

    Args:
        method: The HTTP method.
        target: The request target as it was sent, still percent-encoded.
        override: X-HTTP-Method-Override, honoured on POST.

    Raises:
        UnicodeDecodeError: a name is not UTF-8.
    """
    path, _, query = target.partition("?")
    params = dict(parse_qsl(query, keep_blank_values=True, errors="strict"))
    if method == "POST" and override:
        method = override.upper()
    if path.startswith("/_fake_gcs"):
        return Route(CONTROL, params=params, path=path.removeprefix("/_fake_gcs").strip("/"))
    if path.rstrip("/") == "/batch/storage/v1" and method == "POST":
        return Route("batch", params=params)
    if found := _UPLOAD.match(path):
        return Route(_upload(method, params), text(found[1]), params.get("name", ""), params=params)
    if found := _DOWNLOAD.match(path):
        operation = "objects.media" if method in {"GET", "HEAD"} else ""
        return Route(operation, text(found[1]), text(found[2]), params=params)
    if path.startswith("/storage/v1/"):
        return _json(method, path, params)
    return _xml(method, path, params)


def _upload(method: str, params: dict[str, str]) -> str:
    if params.get("uploadType") != "resumable" and "upload_id" not in params:
        return "objects.insert" if method == "POST" else ""
    if "upload_id" in params:
        return {"PUT": "objects.resume", "POST": "objects.resume", "DELETE": "objects.cancelUpload"}.get(method, "")
    return "objects.startUpload" if method in {"POST", "PUT"} else ""


def _json(method: str, path: str, params: dict[str, str]) -> Route:
    if path.startswith("/storage/v1/projects/") and path.endswith("/serviceAccount"):
        return Route("projects.serviceAccount", params=params)
    found = _JSON.match(path.rstrip("/"))
    if found is None:
        return Route("", params=params)
    if found[1] is None:
        return Route(_BUCKETS.get(method, ""), params=params)
    bucket, rest = text(found[1]), found[2]
    if rest is None:
        return Route(_BUCKET.get(method, ""), bucket, params=params)
    if not rest.startswith("o/"):
        return Route(_OF_BUCKET.get((method, rest), "buckets." + rest.split("/")[0]), bucket, params=params)
    return _object(method, bucket, rest.removeprefix("o/"), params)


def _object(method: str, bucket: str, rest: str, params: dict[str, str]) -> Route:
    if "/" not in rest:
        operation = _OBJECT.get("GET" if method == "HEAD" else method, "")
        if operation == "objects.get" and params.get("alt") == "media":
            operation = "objects.media"
        return Route(operation, bucket, text(rest), params=params)
    if method == "POST" and (found := _TWO.match(rest)):
        return Route(_VERBS[found[2]], bucket, text(found[1]), (text(found[3]), text(found[4])), params)
    if method == "POST" and (found := _MOVE.match(rest)):
        return Route("objects.move", bucket, text(found[1]), (bucket, text(found[2])), params)
    if method == "POST" and (found := _COMPOSE.match(rest)):
        return Route("objects.compose", bucket, text(found[1]), params=params)
    return Route("", bucket, params=params)


def _xml(method: str, path: str, params: dict[str, str]) -> Route:
    bucket, slash, name = path.removeprefix("/").partition("/")
    operation = _XML.get(method, "") if slash and name else ""
    return Route(operation, text(bucket), text(name), params=params, xml=True)


def text(encoded: str) -> str:
    return unquote_to_bytes(encoded).decode()
