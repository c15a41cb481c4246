"""Bodies, in the real fake-gcs-server, one blob each, under a name that is never used twice.

A blob is written once and never changed, so a reader keeps what it began to read, and an
overwrite damages nothing until the catalogue says so. The name shows the object's name for
the reader's eye; what fake-gcs-server's file system backend could not hold (README, *How it works*)
is written in another way, and `@` with a number at the end makes it unique and keeps `a` apart from
the folder of `a/b`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from fake_gcs.catalogue import Catalogue
    from fake_gcs.spool import Spool

BUCKET = "bodies"
SMALL = 256 * 1024
_PIECE = 256 * 1024
_MAX_COMPONENT = 120
_MAX_NAME = 800

log = logging.getLogger(__name__)


class BackendFailed(Exception):
    """fake-gcs-server answered what it should not; becomes a 500."""


class Blobs:
    def __init__(self, url: str, catalogue: Catalogue, root: Path) -> None:
        """Takes fake-gcs-server's url, the catalogue that tells which blobs are needed, and the server's directory."""
        self._url = url
        self._folder = root / BUCKET
        self._catalogue = catalogue
        self._in_use: collections.Counter[str] = collections.Counter()
        self._passed_over = False
        self._wanted = asyncio.Event()
        self._collector: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
        )
        self.collect()
        self._collector = asyncio.create_task(self._collect_forever())

    async def close(self) -> None:
        if self._collector is not None:
            self._collector.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._collector
        await self._session.close()

    @contextlib.contextmanager
    def reserve(self, bucket: str, name: str) -> Iterator[str]:
        """Yields a fresh blob name for an upload; without a commit in the catalogue the blob is garbage."""
        blob = blob_name(bucket, name, self._catalogue.next_number())
        self._catalogue.expect_blob(blob)
        with self._using([blob]):
            yield blob
        self.collect()

    async def put(self, blob: str, body: Spool) -> dict[str, Any]:
        """Stores a body and answers its facts: size, crc32c, md5Hash."""
        url = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(blob, safe='')}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(body.size)}
        answer = await self._json("POST", url, data=body.content(), headers=headers)
        return {"size": str(answer["size"]), "crc32c": answer["crc32c"], "md5Hash": answer["md5Hash"]}

    async def compose(self, blob: str, sources: list[str]) -> dict[str, Any]:
        """Joins blobs into a new one and answers its facts; a composite has no md5."""
        body = {"sourceObjects": [{"name": source} for source in sources], "destination": {}}
        url = f"/storage/v1/b/{BUCKET}/o/{quote(blob, safe='')}/compose"
        headers = {"Content-Type": "application/json"}
        with self._using(sources):
            answer = await self._json("POST", url, data=json.dumps(body), headers=headers)
        return {"size": str(answer["size"]), "crc32c": answer["crc32c"]}

    async def copy(self, blob: str, source: str) -> None:
        target = f"b/{BUCKET}/o/{quote(blob, safe='')}"
        url = f"/storage/v1/b/{BUCKET}/o/{quote(source, safe='')}/rewriteTo/{target}"
        with self._using([source]):
            await self._json("POST", url, data="{}", headers={"Content-Type": "application/json"})

    async def read(self, blob: str, first: int, last: int) -> AsyncIterator[bytes]:
        """Answers the bytes first..last of a blob in pieces.

        The blob may be removed once this has answered: the file is open by then.

        Raises:
            BackendFailed: it cannot be read.
        """
        url = URL(f"{self._url}/storage/v1/b/{BUCKET}/o/{quote(blob, safe='')}?alt=media", encoded=True)
        with self._using([blob]):
            answer = await self._session.get(url, headers={"Range": f"bytes={first}-{last}"})
        if answer.status not in {200, 206}:
            answer.release()
            raise BackendFailed(f"{blob}: {answer.status}")
        return _pieces(answer, small=last - first < SMALL)

    def collect(self) -> None:
        """Lets the blobs that no object needs be removed, in the background."""
        self._wanted.set()

    @contextlib.contextmanager
    def _using(self, blobs: list[str]) -> Iterator[None]:
        """Keeps blobs from being removed while fake-gcs-server is asked for them.

        Between the look-up of a blob in the catalogue and this there must be no await.
        """
        self._in_use.update(blobs)
        try:
            yield
        finally:
            self._in_use.subtract(blobs)
            self._in_use += collections.Counter()  # drops what is no longer used
            if self._passed_over:
                self.collect()

    async def _collect_forever(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._passed_over = False
            for blob in self._catalogue.garbage():
                if blob in self._in_use:
                    self._passed_over = True
                elif self._catalogue.is_garbage(blob):  # an upload that was under way may be an object by now
                    await self._remove(blob)

    async def _remove(self, blob: str) -> None:
        url = URL(f"{self._url}/storage/v1/b/{BUCKET}/o/{quote(blob, safe='')}", encoded=True)
        try:
            async with self._session.delete(url) as answer:
                await answer.read()
            if answer.status == 404:  # noqa: PLR2004
                self._remove_unfinished(blob)
        except (aiohttp.ClientError, OSError) as error:
            log.debug("%s stays for now: %s", blob, error)
            return
        self._catalogue.forget_garbage([blob])

    def _remove_unfinished(self, blob: str) -> None:
        """Removes what a fake-gcs-server that was killed has left of an upload, and does not find again.

        It puts a body in its place first and writes its metadata then, and begins by trying, with an
        empty file `.NAMEnumber` beside it, whether it can rename files to there.
        """
        path = self._folder / blob
        for left in (path, *path.parent.glob(f".{path.name}*")):
            left.unlink(missing_ok=True)

    async def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        async with self._session.request(method, URL(self._url + path, encoded=True), **request) as answer:
            raw = await answer.read()
            if answer.status != 200:  # noqa: PLR2004
                raise BackendFailed(f"{method} {path}: {answer.status} {raw[:500]!r}")
            document: dict[str, Any] = json.loads(raw)
            return document


async def _pieces(answer: aiohttp.ClientResponse, *, small: bool) -> AsyncIterator[bytes]:
    async with answer:
        if small:
            yield await answer.read()
            return
        async for piece in answer.content.iter_chunked(_PIECE):
            yield piece


_UNSAFE = re.compile(rb"[^A-Za-z0-9_.=,+-]")


def blob_name(bucket: str, name: str, number: int) -> str:
    """Answers where the body of an object lies: readable, and safe in every file system."""
    safe = "/".join(_safe_component(component) for component in name.split("/"))
    if len(safe) > _MAX_NAME:
        safe = safe[:_MAX_NAME].rstrip("/") + "~"
    return f"{bucket}/{safe}@{number}"


def _safe_component(component: str) -> str:
    safe = _UNSAFE.sub(lambda found: b"%%%02X" % found.group()[0], component.encode()).decode()
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe) > _MAX_COMPONENT:
        safe = safe[:_MAX_COMPONENT] + "~"
    return safe or "%"
