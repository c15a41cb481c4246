"""Requests to the JSON API: one try each, every failure mapped to the closed set of the port.

gcsfs supplies the session, the endpoint and mutual TLS; why its request
functions are not used is decision 0001.
"""

from __future__ import annotations

import contextlib
import email.utils
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from a2a_gcs.errors import Conflict, NotFound, PermissionDenied, StoreError, Throttled, Unavailable
from a2a_gcs.objectstore.gcs_auth import TokenKeeper

RESUME_INCOMPLETE = 308
CANCELLED = 499
_CONNECT_SECONDS = 10.0


class HttpFailure(Exception):
    """What GCS answered in place of success.

    Attributes:
        status: HTTP status code.
        reason: The first machine-readable reason in the answer, or "".
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"HTTP {status} {reason}: {message}" if message else f"HTTP {status} {reason}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def as_of(self) -> float:
        return date_of(self.headers)


@dataclass(slots=True)
class Connection:
    """What gcsfs brought up: its filesystem object for the endpoint, its session, and our tokens."""

    filesystem: Any
    session: aiohttp.ClientSession
    tokens: TokenKeeper

    @property
    def endpoint(self) -> str:
        return str(self.filesystem._location)  # noqa: SLF001 - the only name gcsfs has for it


class GCSHttp:
    """Sends requests over one connection pool, which is opened with the first request.

    Args:
        connect: Opens the connection; given a key, for errors.
        bucket: Name of the bucket.
        timeout: Seconds for a whole request and its answer; for a streamed one, between two reads.
    """

    def __init__(self, connect: Callable[[str], Awaitable[Connection]], bucket: str, timeout: float) -> None:
        self._connect = connect
        self._bucket = quote(bucket, safe="")
        self._whole = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_SECONDS)
        self._streamed = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=timeout)

    async def call(
        self,
        key: str,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        writes: bool = False,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        """Sends one request and reads the whole answer.

        Args:
            key: The object it is about, for errors.
            method: HTTP method.
            path: Below the endpoint, percent-encoded; or a whole URL that GCS gave.
            query: Parameters; those that are None are left out.
            writes: Whether losing the answer leaves open if something was written.
            headers: Further headers.
            data: Body.
        """
        async with self.open(
            key, method, path, query, writes=writes, headers=headers, data=data, timeout=self._whole
        ) as response:
            body = await response.read()
            return Answer(response.status, response.headers, body)

    @contextlib.asynccontextmanager
    async def open(
        self,
        key: str,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        writes: bool = False,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends one request; the body of a good answer is left to read. Errors inside the block are mapped too."""
        connection = await self._connect(key)
        all_headers = {"Accept-Encoding": "identity", **await connection.tokens.headers(key), **(headers or {})}
        with mapped_errors(key, writes=writes):
            async with connection.session.request(
                method,
                _url(connection.endpoint, path, query),
                headers=all_headers,
                data=io.BytesIO(data) if data else data,  # sent piece by piece, so that the loop goes on
                timeout=timeout or self._streamed,
                allow_redirects=False,
            ) as response:
                if response.status not in {200, 201, 204, 206, RESUME_INCOMPLETE, CANCELLED}:
                    raise failure(key, response.status, await response.read(), writes=writes)
                yield response

    def object_path(self, key: str) -> str:
        return f"/storage/v1/b/{self._bucket}/o/{quote(key, safe='')}"

    @property
    def list_path(self) -> str:
        return f"/storage/v1/b/{self._bucket}/o"

    @property
    def upload_path(self) -> str:
        return f"/upload/storage/v1/b/{self._bucket}/o"


def _url(endpoint: str, path: str, query: Mapping[str, object] | None) -> URL:
    url = path if path.startswith("http") else endpoint.rstrip("/") + path
    given = {name: str(value) for name, value in (query or {}).items() if value is not None}
    # Encoded once, here: yarl would decode and encode again, and %2F in a name must stay %252F.
    return URL(f"{url}?{urlencode(given, quote_via=quote)}" if given else url, encoded=True)


@contextlib.contextmanager
def mapped_errors(key: str, *, writes: bool) -> Iterator[None]:
    """Raises Unavailable in place of broken connections and time-outs."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise Unavailable(key, error) from error  # nothing was sent
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(key, error, ambiguous=writes) from error


def failure(key: str, status: int, body: bytes, *, writes: bool) -> StoreError:
    """The error of the closed set for an answer that is no success."""
    cause = HttpFailure(status, *_reason(body))
    if status == HTTPStatus.NOT_FOUND:
        return NotFound(key, cause)
    if status in {HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED}:
        return Conflict(key, cause)
    if status == HTTPStatus.TOO_MANY_REQUESTS or cause.reason in {"rateLimitExceeded", "userRateLimitExceeded"}:
        return Throttled(key, cause)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return PermissionDenied(key, cause)
    return Unavailable(
        key,
        cause,
        ambiguous=writes and (status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR),
    )


def _reason(body: bytes) -> tuple[str, str]:
    try:
        error = json.loads(body)["error"]
        return str(error["errors"][0].get("reason", "")), str(error.get("message", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", body[:200].decode(errors="replace")


def date_of(headers: Mapping[str, str]) -> float:
    """GCS's clock at this answer; 0 when it did not say, which makes nothing look old."""
    try:
        return email.utils.parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return 0.0


def crc32c_of(headers: CIMultiDictProxy[str]) -> str | None:
    """The stored object's checksum from `X-Goog-Hash`, which may come in one line or in several."""
    for part in ",".join(headers.getall("X-Goog-Hash", [])).split(","):
        name, _, value = part.strip().partition("=")
        if name == "crc32c":
            return value
    return None
