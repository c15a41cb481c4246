"""What keeps a page from doing what its visitor did not want: headers, the origin of writes, and names of this host.

Everything that a task holds is hostile: its text, its file names, its media
types. It is escaped where it is shown, and where it is handed out as it is, it
is a download, or an image, in a sandbox.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from a2a_gcs.console.site import PATH
from a2a_gcs.errors import A2AGcsError

CSRF_COOKIE = "a2a-gcs-csrf"
CSRF_FIELD = "csrf"

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
DATA_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""For what a task holds, handed out as it is: no script, no plug-in, no form, an origin of its own."""

_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without a referrer a form would send Origin: null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class WriteRefused(A2AGcsError):
    """A form that did not come from a page of ours."""


class SecureHeaders:
    """Adds the headers to every response that does not bring its own, and answers under no other name than ours.

    Args:
        app: The console.
        hosts: Names in a Host header that are ours; None for any.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] == "http" and self._hosts is not None:
            name = urlsplit(f"//{Request(scope).headers.get('host', '')}").hostname or ""
            if name not in self._hosts:
                await _misdirected()(scope, receive, hardened)
                return
        await self._app(scope, receive, hardened)


def _misdirected() -> Response:
    text = (
        "This host does not know the name that it was called by. Without authentication the console answers only to "
        "loopback names; set A2A_GCS_PUBLIC_URL to the address that you use.\n"
    )
    return Response(text, status_code=421, media_type="text/plain")


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form that came from a page of ours.

    Two independent proofs are asked for: the browser says so itself (Fetch Metadata and Origin), and the form brings
    the secret of the cookie, which no other site can read.

    Raises:
        WriteRefused: It did not.
    """
    _from_here(request)
    body = (await request.body()).decode("utf-8", "replace")
    form = dict(parse_qsl(body, keep_blank_values=True))
    if not _same(request.cookies.get(CSRF_COOKIE, ""), form.get(CSRF_FIELD, "")):
        raise WriteRefused("the form has expired; open the page again and repeat what you did")
    return form


def _from_here(request: Request) -> None:
    """Sec-Fetch-Site decides, which no proxy that rewrites Host confuses; on plain HTTP browsers leave it out."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is not None:
        site = "same-origin" if urlsplit(origin).netloc == request.headers.get("host") else "cross-site"
    if site not in {None, "same-origin"}:
        raise WriteRefused("the form came from another site; nothing was done")


def _same(cookie: str, field: str) -> bool:
    return bool(cookie) and hmac.compare_digest(cookie.encode(), field.encode())


def csrf_secret(request: Request) -> str:
    """The secret of this browser: what its cookie says, or a fresh one."""
    known = request.cookies.get(CSRF_COOKIE, "")
    return known if known.isascii() and len(known) >= 32 else secrets.token_urlsafe(32)  # noqa: PLR2004


def keep_csrf(response: Response, request: Request, secret: str) -> None:
    """Sets the cookie, unless the browser has it."""
    if request.cookies.get(CSRF_COOKIE) != secret:
        set_cookie(response, request, CSRF_COOKIE, secret)


def set_cookie(response: Response, request: Request, name: str, value: str) -> None:
    """A cookie for the console alone, which no script reads and no other site sends; it goes with the browser."""
    response.set_cookie(name, value, path=PATH, secure=over_tls(request), httponly=True, samesite="strict")


def over_tls(request: Request) -> bool:
    """Whether the browser speaks TLS, also to a proxy in front. A lie costs the liar nothing but its own cookie."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").startswith("https")
