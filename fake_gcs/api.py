"""What goes in and out of a handler: a call, a reply, or an error as real GCS words it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from fake_gcs.rules.preconditions import ConditionNotMet, NotModified
from fake_gcs.rules.problems import Invalid

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping

Json = dict[str, Any]

JSON_TYPE = "application/json; charset=UTF-8"


@dataclass
class UploadHead:
    """An upload up to its media: the object's name, what is asked for on it, and the media to come."""

    name: str
    wanted: Json
    media: AsyncIterator[bytes]


@dataclass
class Call:
    """One request, already understood.

    Attributes:
        operation: What is asked for, as `resource.verb`; see routing.
        bucket: The bucket, or "".
        name: The object's name, or "".
        target: The second object of copy, rewrite and move: (bucket, name).
        params: Query parameters; of a repeated one the last.
        headers: Request headers, with case-insensitive lookup.
        body: The request body in pieces, to be read once.
        base_url: `http://host` as the client wrote it, for links in answers.
        xml: Errors go out as the XML API words them.
        received: Body bytes read so far.
        key: The object that faults and meter see: the one that is written, or read.
        head: What an upload says before its media, once it has been read.
        problem: Why the call cannot be served, if that is known already.
    """

    operation: str
    bucket: str = ""
    name: str = ""
    target: tuple[str, str] = ("", "")
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: AsyncIterable[bytes] | None = None
    base_url: str = ""
    xml: bool = False
    received: int = 0
    key: str = ""
    head: UploadHead | None = None
    problem: Exception | None = None
    _document: Json | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.body is not None:
            async for piece in self.body:
                self.received += len(piece)
                yield piece

    async def drain(self) -> None:
        """Reads the rest of the body and forgets it, so that the connection can be used again."""
        async for _ in self.pieces():
            pass

    async def json(self) -> Json:
        """Answers the body as a JSON object, however often it is asked; an empty body is an empty object."""
        if self._document is None:
            self._document = await self._read_json()
        return self._document

    async def _read_json(self) -> Json:
        raw = b"".join([piece async for piece in self.pieces()])
        if not raw.strip():
            return {}
        try:
            document = json.loads(raw)
        except ValueError as error:
            raise ApiError(400, "parseError", "Parse Error") from error
        if not isinstance(document, dict):
            raise ApiError(400, "parseError", "Parse Error")
        return document

    def flag(self, name: str) -> bool:
        return self.params.get(name, "").lower() == "true"


@dataclass
class Reply:
    """One answer. `document` is sent as JSON, after `fields` has selected from it."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    document: Json | None = None
    stream: AsyncIterator[bytes] | None = None
    length: int | None = None


class ApiError(Exception):
    """An answer that is an error.

    Attributes:
        status: HTTP status.
        reason: The word in errors[].reason that clients branch on.
        message: The text of the error.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        domain: str = "global",
        location: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.domain = domain
        self.location = location
        self.headers = dict(headers or {})

    def document(self) -> Json:
        detail: Json = {"message": self.message, "domain": self.domain, "reason": self.reason}
        if self.location is not None:
            detail["locationType"], detail["location"] = self.location
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}

    def reply(self, call: Call, *, real: bool = True) -> Reply:
        """Answers the error as the API that was called words it.

        JSON with the reason; plain text for media of the JSON API; XML for the XML API.
        With real=False (rule error_bodies off) the reason is the status alone, as fake-gcs-server has it.
        """
        if self.status == 304:  # noqa: PLR2004
            return Reply(304, self.headers)
        if not real:
            self.reason, self.location, self.domain = str(self.status), None, "global"
        if call.xml:
            code = XML_CODES.get(self.reason, self.reason[:1].upper() + self.reason[1:])
            text = (
                f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code>"
                f"<Message>{escape(self.message)}</Message></Error>"
            )
            return Reply(self.status, {**self.headers, "Content-Type": "application/xml; charset=UTF-8"}, text.encode())
        if real and call.operation == "objects.media":
            return Reply(
                self.status, {**self.headers, "Content-Type": "text/html; charset=UTF-8"}, self.message.encode()
            )
        return Reply(
            self.status, {**self.headers, "Content-Type": JSON_TYPE}, json.dumps(self.document(), indent=1).encode()
        )


RATE_LIMITED = (
    "The object {key} exceeded the rate limit for object mutation operations (create, update, and delete). "
    "Please reduce your request rate. See https://cloud.google.com/storage/docs/gcs429."
)
XML_CODES = {
    "conditionNotMet": "PreconditionFailed",
    "notFound": "NoSuchKey",
    "rateLimitExceeded": "SlowDown",
    "invalid": "InvalidArgument",
}


def no_such_object(bucket: str, name: str) -> ApiError:
    return ApiError(404, "notFound", f"No such object: {bucket}/{name}")


def no_such_bucket() -> ApiError:
    return ApiError(404, "notFound", "The specified bucket does not exist.")


def not_implemented(what: str) -> ApiError:
    """What neither real GCS's rules nor this emulator cover: said, never guessed."""
    return ApiError(501, "notImplemented", f"fake_gcs does not implement {what}")


def rate_limited(bucket: str, name: str) -> ApiError:
    """The answer to a write over the limit per object name (cloud.google.com/storage/docs/gcs429)."""
    return ApiError(
        429,
        "rateLimitExceeded",
        RATE_LIMITED.format(key=f"{bucket}/{name}"),
        domain="usageLimits",
    )


def from_rule(problem: Exception) -> ApiError:
    """Words the verdict of a rule as an answer.

    Raises:
        Exception: the problem itself, when it is not one that a rule raises.
    """
    if isinstance(problem, ApiError):
        return problem
    if isinstance(problem, ConditionNotMet):
        message = "At least one of the pre-conditions you specified did not hold."
        return ApiError(412, "conditionNotMet", message, location=("header", "If-Match"))
    if isinstance(problem, NotModified):
        return ApiError(304, "notModified", "Not Modified")
    if isinstance(problem, Invalid):
        location = ("parameter", problem.parameter) if problem.parameter else None
        return ApiError(problem.status, problem.reason, str(problem), location=location, headers=problem.headers)
    raise problem
