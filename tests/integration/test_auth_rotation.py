"""An issuer that rotates its keys or goes away, over HTTP; keys grow old by a clock that is moved by hand."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_gcs.host.auth import Authenticator
from a2a_gcs.host.auth.credentials import bearer
from a2a_gcs.host.auth.fetch import JsonFetcher
from a2a_gcs.host.auth.jwks import FRESH_SECONDS, PAUSE_SECONDS, KeySet
from a2a_gcs.host.auth.jwts import Rules, SignedTokens
from a2a_gcs.host.auth.middleware import AuthMiddleware
from tests.support.auth_hosts import AUDIENCE, EC, NEXT, RSA, authorization
from tests.support.issuer import Issuer, claims


@pytest.fixture
async def issuer():
    async with Issuer(RSA, EC).serving() as issuer:
        yield issuer


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
async def clock():
    return Clock()


@pytest.fixture
async def guarded(issuer, clock):
    """A small application behind tokens of the issuer, whose keys grow old by the clock."""
    fetcher = JsonFetcher()
    rules = Rules(frozenset({issuer.url}), (AUDIENCE,), frozenset({"RS256"}))
    keys = KeySet(lambda: fetcher.get(issuer.jwks_url), clock)
    authenticator = Authenticator(bearer, SignedTokens(rules, keys, fetcher.aclose))

    async def who(request):
        return PlainTextResponse(request.user.display_name)

    app = AuthMiddleware(Starlette(routes=[Route("/", who)]), authenticator)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as http:

        async def status(key):
            return (await http.get("/", headers=authorization(key.sign(claims(iss=issuer.url))))).status_code

        status.keys = keys
        yield status
    await authenticator.aclose()


async def test_keys_rotate_without_a_restart(issuer, clock, guarded):
    """The new key works with its first token, beside the old one; a withdrawn key stops within minutes."""
    assert [await guarded(RSA), await guarded(NEXT), issuer.served] == [200, 401, 1]
    issuer.keys = [RSA.jwk(), NEXT.jwk()]
    clock.now += PAUSE_SECONDS
    assert [await guarded(NEXT), await guarded(RSA), issuer.served] == [200, 200, 2]
    issuer.keys = [NEXT.jwk()]
    clock.now += FRESH_SECONDS + 1
    await guarded(RSA)
    await guarded.keys._fetching
    assert [await guarded(RSA), await guarded(NEXT), issuer.served] == [401, 200, 3]


@pytest.mark.parametrize("outage", ["500", "silent"])
async def test_known_keys_work_through_an_outage(issuer, clock, guarded, outage):
    """Nobody with a known key waits for an issuer that is away or hangs; unknown keys are 503 until it is back."""
    assert await guarded(RSA) == 200
    issuer.status, issuer.silent = (500, False) if outage == "500" else (200, True)
    clock.now += FRESH_SECONDS + 1
    assert [await guarded(RSA) for _ in range(3)] == [200, 200, 200]
    if outage == "500":
        assert await guarded(NEXT) == 503
    issuer.release.set()
    issuer.status, issuer.silent, issuer.keys = 200, False, [RSA.jwk(), NEXT.jwk()]
    clock.now += PAUSE_SECONDS
    assert [await guarded(NEXT), await guarded(RSA)] == [200, 200]
