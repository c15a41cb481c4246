"""A bucket in Google Cloud Storage, over the JSON API (decision 0001 tells what gcsfs does here)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import aiohttp
from gcsfs.core import GCSFileSystem
from google.auth.exceptions import GoogleAuthError
from multidict import CIMultiDictProxy

from a2a_gcs.errors import Conflict, NotFound, PermissionDenied, Unavailable
from a2a_gcs.objectstore.gcs_auth import TokenKeeper, default_credentials
from a2a_gcs.objectstore.gcs_http import Answer, Connection, GCSHttp, crc32c_of, date_of
from a2a_gcs.objectstore.gcs_upload import ResumableUpload, Target, multipart, pieces
from a2a_gcs.objectstore.port import MAX_PAGE, Blob, IfAbsent, IfVersion, Mode, ObjectInfo, ObjectStore, Page, Source
from a2a_gcs.objectstore.rules import (
    STREAM_CHUNK,
    Crc32c,
    crc32c,
    validate_key,
    validate_limit,
    validate_sources,
    validate_write,
)

_AGREEING_READS = 10
_FIELDS = "name,generation,size,crc32c,metadata,contentType,updated"


class GCSStore(ObjectStore):
    """One bucket. Connects with the first call; belongs to the event loop that made it.

    Without an emulator, credentials are required: there is no anonymous
    access. `STORAGE_EMULATOR_HOST` (with or without `http://`) names an
    emulator, which gets none.

    Args:
        bucket: Its name, without `gs://`.
        emulator: Address of an emulator, in place of the environment's.
        credentials: google-auth credentials; application default credentials when None.
        timeout: Seconds for a request and its answer; between two reads of a streamed one.
        sleep: Waits inside a resumable upload.
    """

    def __init__(
        self,
        bucket: str,
        *,
        emulator: str | None = None,
        credentials: Any = None,
        timeout: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bucket = bucket
        self._emulator = _base_url(emulator or os.environ.get("STORAGE_EMULATOR_HOST", ""))
        self._credentials = credentials
        self._sleep = sleep
        self._http = GCSHttp(self._connect, bucket, timeout)
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None
        self._closed = False

    async def get(self, key: str, *, version: int | None = None, with_metadata: bool = False) -> Blob:
        validate_key(key)
        for _ in range(_AGREEING_READS):
            if with_metadata:
                blob, info = await _both(self._media(key, version), self._resource(key, version))
                if blob.info.version != info.version:
                    continue
                blob = Blob(info, blob.body)
            else:
                blob = await self._media(key, version)
            if crc32c(blob.body) != blob.info.crc32c:
                raise Unavailable(key, ValueError("the checksum does not match"))
            return blob
        raise Unavailable(key, ValueError("it changes faster than it can be read"))

    async def head(self, key: str) -> ObjectInfo:
        validate_key(key)
        return await self._resource(key, None)

    async def put(
        self,
        key: str,
        body: bytes,
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        target = _target(key, mode, metadata, content_type)
        return _written(key, await multipart(self._http, target, body))

    async def put_stream(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        target = _target(key, mode, metadata, content_type)
        upload = ResumableUpload(self._http, target, sleep=self._sleep)
        started = False
        try:
            async with contextlib.aclosing(pieces(chunks)) as cut:
                async for piece, last in cut:
                    if last and not started:
                        return _written(key, await multipart(self._http, target, piece))
                    if not started:
                        await upload.start()
                        started = True
                    answer = await upload.send(piece, last=last)
        except BaseException:
            await asyncio.shield(upload.cancel())
            raise
        assert answer is not None
        info = _written(key, answer)
        if info.crc32c != upload.crc32c:
            await self.delete(key, version=info.version)
            raise Unavailable(key, ValueError("the checksum of the upload does not match"), ambiguous=True)
        return info

    async def stream(self, key: str, *, version: int | None = None) -> AsyncIterator[bytes]:
        validate_key(key)
        checksum = Crc32c()
        opening = self._http.open(key, "GET", self._http.object_path(key), _media_query(version))
        async with _mismatch_is_absence(), opening as response:
            info = await self._media_info(key, version, response.headers)
            async for chunk in response.content.iter_chunked(STREAM_CHUNK):
                checksum.update(chunk)
                yield chunk
        if checksum.encoded() != info.crc32c:
            raise Unavailable(key, ValueError("the checksum does not match"))

    async def delete(self, key: str, *, version: int | None = None) -> None:
        validate_key(key)
        await self._http.call(key, "DELETE", self._http.object_path(key), {"ifGenerationMatch": version}, writes=True)

    async def list(self, prefix: str, *, start: str = "", page: str | None = None, limit: int = MAX_PAGE) -> Page:
        validate_limit(limit)
        query = {
            "prefix": prefix or None,
            "startOffset": start or None,
            "pageToken": page,
            "maxResults": limit,
            "fields": f"nextPageToken,items({_FIELDS})",
        }
        answer = await self._http.call(prefix, "GET", self._http.list_path, query)
        listing = _json(prefix, answer)
        infos = [_info(resource, answer.as_of) for resource in listing.get("items", [])]
        return Page(infos, listing.get("nextPageToken") or None)

    async def compose(
        self,
        key: str,
        sources: Sequence[Source],
        mode: Mode,
        *,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> ObjectInfo:
        validate_sources(sources)
        target = _target(key, mode, metadata, content_type)
        destination = {name: value for name, value in target.resource.items() if name != "name"}
        body = {"sourceObjects": [_source(source) for source in sources], "destination": destination}
        answer = await self._http.call(
            key,
            "POST",
            self._http.object_path(key) + "/compose",
            target.query,
            writes=True,
            headers={"Content-Type": "application/json; charset=UTF-8"},
            data=json.dumps(body).encode(),
        )
        return _written(key, answer)

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.tokens.close()
            await connection.session.close()

    async def _media(self, key: str, version: int | None) -> Blob:
        async with _mismatch_is_absence():
            answer = await self._http.call(key, "GET", self._http.object_path(key), _media_query(version))
        info = await self._media_info(key, version, answer.headers)
        return Blob(replace(info, size=len(answer.body)), answer.body)

    async def _media_info(self, key: str, version: int | None, headers: CIMultiDictProxy[str]) -> ObjectInfo:
        """What the headers of a media response say; where they leave something out, a second request."""
        generation = headers.get("X-Goog-Generation")
        checksum = crc32c_of(headers)
        if generation is None or checksum is None:
            info = await self._resource(key, int(generation) if generation else version)
        else:
            info = ObjectInfo(
                key=key,
                version=int(generation),
                size=int(headers.get("Content-Length", 0)),
                crc32c=checksum,
                content_type=headers.get("Content-Type", "application/octet-stream"),
                as_of=date_of(headers),
            )
        if version not in {None, info.version}:
            raise NotFound(key)
        return info

    async def _resource(self, key: str, version: int | None) -> ObjectInfo:
        query = {"fields": _FIELDS, "ifGenerationMatch": version}
        async with _mismatch_is_absence():
            answer = await self._http.call(key, "GET", self._http.object_path(key), query)
        info = _info(_json(key, answer), answer.as_of)
        if version not in {None, info.version}:
            raise NotFound(key)
        return info

    async def _connect(self, key: str) -> Connection:
        if self._closed:
            raise Unavailable(key, RuntimeError("the store is closed"))
        if self._connection is None:
            async with self._connecting:
                if self._connection is None:
                    self._connection = await self._open_connection(key)
        return self._connection

    async def _open_connection(self, key: str) -> Connection:
        credentials = self._credentials
        if credentials is None and self._emulator is None:
            try:
                credentials = await default_credentials()
            except GoogleAuthError as error:
                raise PermissionDenied(key, error) from error
        filesystem = GCSFileSystem(
            token="anon" if credentials is None else credentials,
            asynchronous=True,
            use_listings_cache=False,
            skip_instance_cache=True,
            endpoint_url=self._emulator,
            session_kwargs={"auto_decompress": False, "cookie_jar": aiohttp.DummyCookieJar()},
        )
        session = await filesystem._set_session()  # noqa: SLF001 - decision 0001
        session._retry_connection = False  # noqa: SLF001 - aiohttp would send a DELETE again, unasked
        return Connection(filesystem, session, TokenKeeper(credentials))


def _base_url(host: str) -> str | None:
    if not host:
        return None
    return host if host.startswith(("http://", "https://")) else f"http://{host}"


async def _both(media: Coroutine[Any, Any, Blob], resource: Coroutine[Any, Any, ObjectInfo]) -> tuple[Blob, ObjectInfo]:
    """Both requests at once; the first failure ends the other."""
    tasks = asyncio.create_task(media), asyncio.create_task(resource)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _mismatch_is_absence() -> AsyncIterator[None]:
    """For reads: a version that is not current is not there."""
    try:
        yield
    except Conflict as error:
        raise NotFound(error.key, error.cause) from error


def _media_query(version: int | None) -> dict[str, object]:
    return {"alt": "media", "ifGenerationMatch": version}


def _target(key: str, mode: Mode, metadata: Mapping[str, str] | None, content_type: str) -> Target:
    copied = validate_write(key, mode, metadata)
    query: dict[str, object] = {}
    if isinstance(mode, IfAbsent):
        query["ifGenerationMatch"] = 0
    elif isinstance(mode, IfVersion):
        query["ifGenerationMatch"] = mode.version
    return Target(key, query, {"name": key, "contentType": content_type, "metadata": copied})


def _source(source: Source) -> dict[str, Any]:
    if source.version is None:
        return {"name": source.key}
    return {"name": source.key, "objectPreconditions": {"ifGenerationMatch": str(source.version)}}


def _written(key: str, answer: Answer) -> ObjectInfo:
    return _info(_json(key, answer, writes=True), answer.as_of)


def _json(key: str, answer: Answer, *, writes: bool = False) -> dict[str, Any]:
    try:
        decoded = json.loads(answer.body)
    except ValueError as error:
        raise Unavailable(key, error, ambiguous=writes) from error
    return decoded if isinstance(decoded, dict) else {}


def _info(resource: Mapping[str, Any], as_of: float) -> ObjectInfo:
    return ObjectInfo(
        key=resource["name"],
        version=int(resource["generation"]),
        size=int(resource.get("size", 0)),
        crc32c=resource["crc32c"],
        metadata=resource.get("metadata") or {},
        content_type=resource.get("contentType", "application/octet-stream"),
        updated=datetime.fromisoformat(resource["updated"]).timestamp(),
        as_of=as_of,
    )
