"""Signing in with a bearer token, for the modes in which a browser could not send one: a cookie stands for it.

The cookie holds the token itself, which every request checks anew, as the API does: a token that is withdrawn opens
nothing any more, on any host, and no host keeps sessions. It counts for the console alone, which sends it nowhere; no
script can read it, and no other site can have it sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from a2a_gcs.console.security import SecureHeaders, WriteRefused, csrf_secret, form_of, keep_csrf, set_cookie
from a2a_gcs.console.site import PATH

TOKEN_COOKIE = "a2a-gcs-token"  # noqa: S105 - a name
MAX_TOKEN_CHARS = 3500
"""Browsers keep about 4,000 bytes of a cookie."""

_ENTER, _LEAVE = f"{PATH}/sign-in", f"{PATH}/sign-out"
_SEE_OTHER = 303

Headers = list[tuple[bytes, bytes]]
Check = Callable[[Headers], Awaitable[str]]
"""Tells what is wrong with the credentials in headers; nothing if they are good."""


class SignIn:
    """What the console adds to authentication by headers.

    Args:
        title: Whose console it is.
        check: Tells whether a token is good.
    """

    def __init__(self, title: str, check: Check) -> None:
        self._title = title
        self._check = check
        self._app: ASGIApp = SecureHeaders(self._answer, hosts=None)

    def covers(self, scope: Scope) -> bool:
        """Whether a request is for the console."""
        path: str = scope["path"] if scope["type"] == "http" else ""
        return path == PATH or path.startswith(f"{PATH}/")

    def is_open(self, scope: Scope) -> bool:
        """Whether a request of the console needs no credentials: style sheet and scripts, the same for everybody."""
        return self.covers(scope) and scope["method"] in {"GET", "HEAD"} and scope["path"].startswith(f"{PATH}/static/")

    def handles(self, scope: Scope) -> bool:
        """Whether a request is about signing in or out."""
        return self.covers(scope) and scope["path"] in {_ENTER, _LEAVE}

    def headers(self, scope: Scope) -> Headers:
        """The headers of a request, with the cookie's token where they bring no credentials of their own."""
        headers: Headers = list(scope["headers"])
        token = Request(scope).cookies.get(TOKEN_COOKIE, "")
        if not token or any(name.lower() == b"authorization" for name, _ in headers):
            return headers
        return [*headers, _bearer(token)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request that lacks credentials, or is about them."""
        await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._response(Request(scope, receive))
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        try:
            if request.method == "POST" and request.url.path == _ENTER:
                return await self._enter(request)
            if request.method == "POST" and request.url.path == _LEAVE:
                await form_of(request)
                response = RedirectResponse(PATH, _SEE_OTHER)
                response.delete_cookie(TOKEN_COOKIE, path=PATH)
                return response
        except WriteRefused as e:
            return self._form(request, str(e), status=403)
        return self._form(request, "")

    async def _enter(self, request: Request) -> Response:
        form = await form_of(request)
        token, following = form.get("token", "").strip(), _inside(form.get("next", ""))
        problem = (
            "this token is too long for a browser to keep"
            if len(token) > MAX_TOKEN_CHARS
            else await self._check([_bearer(token)])
        )
        if problem:
            return self._form(request, problem, following=following)
        response = RedirectResponse(following, _SEE_OTHER)
        set_cookie(response, request, TOKEN_COOKIE, token)
        return response

    def _form(self, request: Request, problem: str, *, status: int = 401, following: str = "") -> Response:
        from a2a_gcs.console.rendering import bare_page  # noqa: PLC0415 - templates, which no start should wait for

        secret = csrf_secret(request)
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = following or (_inside(request.url.path + query) if request.method in {"GET", "HEAD"} else PATH)
        html = bare_page("sign_in.html", title=self._title, csrf=secret, problem=problem, next=wanted)
        response = HTMLResponse(html, status_code=status, headers={"WWW-Authenticate": 'Bearer realm="a2a-gcs"'})
        keep_csrf(response, request, secret)
        return response


def _bearer(token: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + token.encode("latin-1", "replace")


def _inside(path: str) -> str:
    """A path of the console to go to; its beginning for anything else."""
    plain = path.isascii() and path.isprintable() and "\\" not in path and "//" not in path.partition("?")[0]
    inside = path == PATH or path.startswith((f"{PATH}/", f"{PATH}?"))
    return path if plain and inside and path not in {_ENTER, _LEAVE} else PATH
