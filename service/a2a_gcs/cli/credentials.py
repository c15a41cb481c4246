"""A token goes where the user has sent it: to the origin of --url, whatever address the card names."""

from __future__ import annotations

from collections.abc import Generator

import httpx

from a2a_gcs.cli.errors import CommandFailed

_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0", "::"})  # noqa: S104 - dialled, not listened on
_DEFAULT_PORTS = {"http": 80, "https": 443}


class BearerFor(httpx.Auth):
    """Adds a bearer token to requests to one origin, and lets none go elsewhere.

    The card comes from whoever answers at the URL, and says where the agent is: without this it
    could have any token sent to any host. Names of this machine count as one host.

    Args:
        token: The token.
        url: Where the user has sent it.
        anywhere: The user trusts the card: the token goes where that says.
    """

    def __init__(self, token: str, url: str, *, anywhere: bool = False) -> None:
        self._token = token
        self._url = url
        self._origin = _origin(httpx.URL(url))
        self._anywhere = anywhere

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Called by httpx before each request. Raises CommandFailed instead of sending it elsewhere."""
        if not self._anywhere and _origin(request.url) != self._origin:
            there = f"{request.url.scheme}://{request.url.netloc.decode().rpartition('@')[2]}"
            raise CommandFailed(
                f"the card at {self._url} says that the agent is at {there}, which is another origin: neither "
                "message nor token was sent there. If that is the agent you mean, name its own address with --url, "
                "or let the card decide with --allow-other-origin"
            )
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    host = "localhost" if url.host in _THIS_MACHINE else url.host
    return url.scheme, host, url.port or _DEFAULT_PORTS.get(url.scheme)
