"""One notification as one HTTP request, to exactly the address that was checked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version

import httpx

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.host.push.addresses import PushUrlRefused, Target, parse_target, permitted

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name. Raises OSError."""

AT_ONCE = 32
"""Requests of one host at a time: what slow receivers can hold of it, in sockets and in memory."""


class DeliveryFailed(A2AGcsError):
    """A notification that was not accepted; the message says why. It may have been received all the same."""


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that the system's resolver gives for a name, or for an address in any of its spellings."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


class Sender:
    """Sends notifications.

    A name is resolved for each request anew, and the connection made to the address that was
    checked: a name that resolves to something else a moment later reaches nothing.
    Redirects are not followed, proxies of the environment not used, and no connection is kept,
    as a kept one would belong to an address and not to the name that its certificate was checked for.

    Args:
        allowed_hosts: Hosts that need neither https nor a public address.
        timeout: Seconds that one request may take in all.
        resolve: Resolves names.
        verify: Which certificates are trusted; None for the public ones, or those that SSL_CERT_FILE names.
    """

    def __init__(
        self,
        allowed_hosts: Sequence[str] = (),
        *,
        timeout: float = 10.0,
        resolve: Resolve = resolve,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed = tuple(allowed_hosts)
        self._timeout = timeout
        self._resolve = resolve
        self._verify = verify
        self._http: httpx.AsyncClient | None = None
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._agent = f"a2a-gcs/{version('a2a-gcs')}"

    async def check(self, url: str) -> None:
        """Raises PushUrlRefused for a URL that nothing is sent to: also one that cannot be resolved right now."""
        target = parse_target(url, self._allowed)
        try:
            httpx.URL(url)
        except httpx.InvalidURL as e:  # it is stricter with names and what follows brackets, and would never be sent
            raise PushUrlRefused(f"the push URL cannot be read: {e}") from e
        if not target.allowed:
            await self._addresses(target)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Sends one notification. Returns once the receiver has answered with 2xx; nothing of its answer is read.

        Raises:
            DeliveryFailed: It did not.
            PushUrlRefused: It points to where nothing is sent.
        """
        async with self._gate:
            try:
                async with asyncio.timeout(self._timeout):
                    status = await self._request(parse_target(url, self._allowed), headers, body)
            except TimeoutError as e:
                raise DeliveryFailed(f"no answer within {self._timeout:g} s") from e
            except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as e:
                raise DeliveryFailed(str(e) or type(e).__name__) from e
        if not httpx.codes.is_success(status):
            raise DeliveryFailed(f"answered {status}")

    async def _request(self, target: Target, headers: Mapping[str, str], body: bytes) -> int:
        client = await self._client()
        failure: httpx.TransportError | None = None
        for address in await self._addresses(target):
            request = _pinned(client, target, address, {"User-Agent": self._agent, **headers}, body)
            try:
                response = await client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as e:
                failure = e
                continue
            await response.aclose()
            return response.status_code
        raise failure or DeliveryFailed("there is no address")

    async def _addresses(self, target: Target) -> list[str]:
        try:
            found = await self._resolve(target.host, target.port)
        except OSError as e:
            raise PushUrlRefused(f"the push URL's host {target.host} cannot be resolved: {e}") from e
        return permitted(target, found)

    async def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            verify = self._verify
            if verify is None:  # it reads a file of all public certificates
                verify = await asyncio.to_thread(httpx.create_ssl_context)
            if self._http is None:
                self._http = httpx.AsyncClient(
                    verify=verify,
                    timeout=self._timeout,
                    follow_redirects=False,
                    trust_env=False,
                    limits=httpx.Limits(max_keepalive_connections=0),
                )
        return self._http

    async def aclose(self) -> None:
        """Closes connections."""
        if self._http is not None:
            await self._http.aclose()


def _pinned(
    client: httpx.AsyncClient, target: Target, address: str, headers: Mapping[str, str], body: bytes
) -> httpx.Request:
    """A request that goes to one address, while Host and the TLS server name stay those of the URL."""
    url = httpx.URL(target.url)
    named = {"Host": url.netloc.decode("ascii"), **headers}
    extensions = {"sni_hostname": url.raw_host.decode("ascii")} if target.scheme == "https" else {}
    return client.build_request(
        "POST", url.copy_with(host=address, fragment=None), headers=named, content=body, extensions=extensions
    )
