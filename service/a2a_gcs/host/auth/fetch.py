"""JSON documents of an issuer over HTTP: its discovery document and its keys."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from a2a_gcs.errors import A2AGcsError

WITHIN_SECONDS = 5.0
MAX_BODY_BYTES = 512 * 1024


class FetchFailed(A2AGcsError):
    """A document could not be had, or is not what it should be."""


class JsonFetcher:
    """Gets JSON objects. Redirects are not followed: the setting names the place. May be made outside a loop."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient(timeout=WITHIN_SECONDS, follow_redirects=False)  # here: it loads certificates

    async def get(self, url: str) -> dict[str, Any]:
        """The object at a URL, within five seconds. Raises FetchFailed."""
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                body = await self._body(url)
            document = json.loads(body)
        except TimeoutError as e:
            raise FetchFailed(f"{url} did not answer within {WITHIN_SECONDS:.0f} s") from e
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            raise FetchFailed(f"{url} cannot be reached: {e or type(e).__name__}") from e
        except (ValueError, RecursionError) as e:
            raise FetchFailed(f"{url} is not JSON") from e
        if not isinstance(document, dict):
            raise FetchFailed(f"{url} is not a JSON object")
        return document

    async def _body(self, url: str) -> bytes:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        body = b""
        async with self._http.stream("GET", url, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                raise FetchFailed(f"{url} answered {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise FetchFailed(f"{url} is larger than {MAX_BODY_BYTES} bytes")
        return body

    async def aclose(self) -> None:
        """Closes connections."""
        await self._http.aclose()
