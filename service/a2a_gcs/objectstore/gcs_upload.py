"""Uploads: one multipart request, or a resumable session that never sends blindly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from a2a_gcs.errors import NotFound, StoreError, Throttled, Unavailable
from a2a_gcs.objectstore.gcs_http import RESUME_INCOMPLETE, Answer, GCSHttp
from a2a_gcs.objectstore.rules import Crc32c, crc32c

CHUNK = 8 * 1024 * 1024
"""Bytes per request of a resumable upload, and the most that goes out as one multipart request."""
_RECOVERIES = 5
_CANCEL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be written: the query's precondition, and the object resource without its checksum."""

    key: str
    query: dict[str, object]
    resource: dict[str, Any]

    @property
    def content_type(self) -> str:
        return str(self.resource["contentType"])


async def multipart(http: GCSHttp, target: Target, body: bytes) -> Answer:
    """Writes body and metadata in one request; GCS checks the declared crc32c before it commits."""
    resource = json.dumps({**target.resource, "crc32c": crc32c(body)}).encode()
    boundary = secrets.token_hex(24).encode()
    data = b"".join(
        [
            b"--" + boundary + b"\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n" + resource + b"\r\n",
            b"--" + boundary + b"\r\nContent-Type: " + target.content_type.encode() + b"\r\n\r\n",
            body,
            b"\r\n--" + boundary + b"--\r\n",
        ]
    )
    return await http.call(
        target.key,
        "POST",
        http.upload_path,
        {"uploadType": "multipart", **target.query},
        writes=True,
        headers={"Content-Type": f'multipart/related; boundary="{boundary.decode()}"'},
        data=data,
    )


async def pieces(chunks: AsyncIterator[bytes], size: int = CHUNK) -> AsyncGenerator[tuple[bytes, bool], None]:
    """Cuts a stream into pieces of `size` bytes and tells which is the last; it is empty only for an empty stream."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) > size:
            piece = bytes(memoryview(buffer)[:size])
            del buffer[:size]
            yield piece, False
    yield bytes(buffer), True


class ResumableUpload:
    """One session: `start`, then `send` every piece; `cancel` whatever else happens.

    Args:
        sleep: Waits between a failure and the question how far the session is.
    """

    def __init__(self, http: GCSHttp, target: Target, *, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._http = http
        self._target = target
        self._sleep = sleep
        self._session = ""
        self._offset = 0  # first byte that GCS has not confirmed
        self._recoveries = 0
        self._checksum = Crc32c()

    @property
    def crc32c(self) -> str:
        """Checksum of everything that was given to `send`."""
        return self._checksum.encoded()

    async def start(self) -> None:
        answer = await self._http.call(
            self._target.key,
            "POST",
            self._http.upload_path,
            {"uploadType": "resumable", **self._target.query},
            headers={
                "Content-Type": "application/json; charset=UTF-8",
                "X-Upload-Content-Type": self._target.content_type,
            },
            data=json.dumps(self._target.resource).encode(),
        )
        self._session = answer.headers.get("Location", "")
        if not self._session:
            raise Unavailable(self._target.key, ValueError("no session in the answer"))

    async def send(self, piece: bytes, *, last: bool) -> Answer | None:
        """Sends one piece, as often as GCS says that some of it is missing.

        Returns:
            The answer that carries the object once the last piece is in.
        """
        self._checksum.update(piece)
        base = self._offset
        end = base + len(piece)
        total = str(end) if last else "*"
        answer = await self._try(piece, total, last=last)
        while answer.status == RESUME_INCOMPLETE:
            self._offset = _persisted(answer)
            if not base <= self._offset <= end:
                raise Unavailable(self._target.key, ValueError(f"the session is at byte {self._offset}"))
            if self._offset == end and not last:
                return None
            answer = await self._try(piece[self._offset - base :], total, last=last)
        if not last:
            raise Unavailable(self._target.key, ValueError("the session ended early"), ambiguous=True)
        return answer

    async def cancel(self) -> None:
        """Ends the session so that it can publish nothing; a failure to do so leaves it to expire unfinished."""
        if self._session:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self._http.call(self._target.key, "DELETE", self._session)

    async def _try(self, data: bytes, total: str, *, last: bool) -> Answer:
        """Sends bytes from the confirmed offset on; when the answer is lost, asks how far the session is."""
        span = f"{self._offset}-{self._offset + len(data) - 1}"
        headers = {"Content-Range": f"bytes {span}/{total}", "Content-Type": self._target.content_type}
        if last:
            headers["X-Goog-Hash"] = f"crc32c={self.crc32c}"
        ambiguous = False
        try:
            return await self._http.call(
                self._target.key, "PUT", self._session, writes=last, headers=headers, data=data
            )
        except (Unavailable, Throttled) as error:
            ambiguous = error.ambiguous
            await self._pause(error)
        while True:
            try:
                return await self._status(total)
            except NotFound as error:  # the session is gone, so it may have been finished
                raise Unavailable(self._target.key, error.cause, ambiguous=ambiguous) from error
            except (Unavailable, Throttled) as error:
                error.ambiguous = ambiguous
                await self._pause(error)

    async def _status(self, total: str) -> Answer:
        return await self._http.call(
            self._target.key, "PUT", self._session, headers={"Content-Range": f"bytes */{total}"}, data=b""
        )

    async def _pause(self, error: StoreError) -> None:
        self._recoveries += 1
        if self._recoveries > _RECOVERIES:
            raise error
        await self._sleep(2.0 ** (self._recoveries - 1) if isinstance(error, Throttled) else 0.2 * self._recoveries)


def _persisted(answer: Answer) -> int:
    """How many bytes the session holds: `Range: bytes=0-<last>`, no header for none."""
    span = answer.headers.get("Range", "")
    try:
        return int(span.rpartition("-")[2]) + 1 if span else 0
    except ValueError:
        return -1
