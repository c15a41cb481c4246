"""Google's ways to say who calls: ID tokens, the assertion of Identity-Aware Proxy, and Cloud Run's checked tokens."""

import jwt
import pytest

from a2a_gcs.host.auth.jwts import STRIPPED
from tests.support.auth_hosts import (
    AUDIENCE,
    EC,
    GOOGLE,
    IAP,
    RSA,
    TOKENS,
    authorization,
    google,
    hosts_in_process,
    iap,
    oidc,
    owner,
    refusal,
)
from tests.support.issuer import Issuer, SigningKey, claims, encoded


@pytest.fixture
async def issuer():
    async with Issuer(RSA, EC).serving() as issuer:
        yield issuer


@pytest.fixture
async def open_host():
    async with hosts_in_process() as open_host:
        yield open_host


async def test_google_id_tokens(open_host, issuer):
    """Both spellings of Google's name; nobody else's tokens, and RS256 alone."""
    http = await open_host(**google(issuer))
    for name in (GOOGLE, "accounts.google.com"):
        assert await owner(http, authorization(RSA.sign(claims(iss=name, sub="1234")))) == "1234"
    for refused in (
        RSA.sign(claims(iss=issuer.url)),
        RSA.sign(claims(iss="https://accounts.google.com.example")),
        RSA.sign(claims(iss=IAP)),
        RSA.sign(claims(iss=GOOGLE, aud="other")),
        EC.sign(claims(iss=GOOGLE)),
        f"{RSA.sign(claims(iss=GOOGLE)).rpartition('.')[0]}.{STRIPPED}",
    ):
        await refusal(http, authorization(refused))


@pytest.mark.parametrize("verified", [False, "true", None])
async def test_an_address_names_an_owner_only_if_it_is_verified(open_host, issuer, verified):
    """Otherwise whoever can write any address into a token of the issuer would own everything."""
    http = await open_host(**google(issuer), auth_owner_claim="email")
    known = {"iss": GOOGLE, "email": "alice@example.com"}
    assert await owner(http, authorization(RSA.sign(claims(**known, email_verified=True)))) == "alice@example.com"
    challenge = await refusal(http, authorization(RSA.sign(claims(**known, email_verified=verified))))
    assert "the token has no verified email" in challenge


PLAIN = {
    "X-Goog-Authenticated-User-Email": "accounts.google.com:alice@example.com",
    "X-Goog-Authenticated-User-Id": "accounts.google.com:1234",
}


@pytest.mark.parametrize("claim", ["sub", "email"])
async def test_the_signed_assertion_of_iap_names_the_owner(open_host, issuer, claim):
    """IAP vouches for the address; whatever the plain headers and Authorization say besides is of no account."""
    http = await open_host(**iap(issuer), auth_owner_claim=claim)
    known = {"sub": "accounts.google.com:1234", "email": "alice@example.com"}
    assertion = EC.sign(claims(iss=IAP, **known))
    forged = {"X-Goog-Authenticated-User-Email": "accounts.google.com:bob@example.com", **authorization("bob")}
    assert await owner(http, {"X-Goog-IAP-JWT-Assertion": assertion, **forged}) == known[claim]


@pytest.mark.parametrize(
    "make",
    [
        lambda _: PLAIN,
        lambda _: {**PLAIN, "X-Goog-IAP-JWT-Assertion": ""},
        lambda good: authorization(EC.sign(good)),
        lambda good: {"X-Goog-IAP-JWT-Assertion": f"Bearer {EC.sign(good)}"},
        lambda good: {"X-Goog-IAP-JWT-Assertion": RSA.sign(good)},
        lambda good: {"X-Goog-IAP-JWT-Assertion": SigningKey("ec", "ES256").sign(good)},
        lambda good: {"X-Goog-IAP-JWT-Assertion": EC.sign({**good, "iss": GOOGLE})},
        lambda good: {"X-Goog-IAP-JWT-Assertion": EC.sign({**good, "aud": "/projects/1/other"})},
        lambda good: {"X-Goog-IAP-JWT-Assertion": EC.sign({**good, "exp": good["iat"] - 60})},
        lambda good: {"X-Goog-IAP-JWT-Assertion": f"{EC.sign(good).rpartition('.')[0]}.{STRIPPED}"},
        lambda good: {"X-Goog-IAP-JWT-Assertion": jwt.encode(good, None, "none")},
    ],
    ids=[
        "plain",
        "empty",
        "bearer",
        "scheme",
        "rsa",
        "foreign-key",
        "issuer",
        "audience",
        "expired",
        "stripped",
        "none",
    ],
)
async def test_iap_mode_refuses_forged_headers(open_host, issuer, make):
    """What somebody writes who reaches the host around IAP; the real assertion passes."""
    http = await open_host(**iap(issuer))
    good = claims(iss=IAP)
    assert (await refusal(http, make(good))).startswith('Bearer realm="a2a-gcs"')
    assert await owner(http, {**PLAIN, "X-Goog-IAP-JWT-Assertion": EC.sign(good)}) == "alice"


def stripped(**changes):
    """A token as Cloud Run passes it on."""
    return f"{RSA.sign(claims(**{'iss': GOOGLE, **changes})).rpartition('.')[0]}.{STRIPPED}"


async def test_cloud_run_iam_believes_what_cloud_run_has_checked(open_host):
    """Whoever the audience, which Cloud Run has checked; unless one is set here too."""
    http = await open_host(auth="cloud-run-iam")
    assert await owner(http, authorization(stripped(aud="https://service.run.example"))) == "alice"
    http = await open_host(auth="cloud-run-iam", auth_audience=AUDIENCE)
    assert await owner(http, authorization(stripped())) == "alice"
    await refusal(http, authorization(stripped(aud="https://service.run.example")))


@pytest.mark.parametrize(
    "forged",
    [
        dict,
        lambda: PLAIN,
        lambda: authorization(RSA.sign(claims(iss=GOOGLE))),
        lambda: authorization(jwt.encode(claims(iss=GOOGLE), None, "none")),
        lambda: authorization(f"{stripped()}="),
        lambda: authorization(stripped().lower()),
        lambda: authorization(f"{stripped()}.{STRIPPED}"),
        lambda: authorization(f"{stripped()[:-1]}"),
        lambda: authorization(STRIPPED),
        lambda: authorization(f"..{STRIPPED}"),
        lambda: authorization(f"{encoded(b'[' * 5000)}.{encoded(b'[' * 5000)}.{STRIPPED}"),
        lambda: authorization(stripped(iss="https://issuer.example")),
        lambda: authorization(stripped(exp=-60)),
        lambda: authorization(stripped(exp=None)),
        lambda: authorization(stripped(exp=float("inf"))),
        lambda: authorization(stripped(nbf=60)),
        lambda: authorization(stripped(iat=60)),
        lambda: authorization(stripped(sub=None)),
        lambda: {"X-Goog-IAP-JWT-Assertion": stripped()},
        lambda: {"X-Serverless-Authorization": f"Bearer {RSA.sign(claims(iss=GOOGLE))}", **authorization(stripped())},
    ],
)
async def test_cloud_run_iam_refuses_forged_headers(open_host, forged):
    """Any signature but the mark, a real one included: then Cloud Run has not been there. A stripped one passes."""
    http = await open_host(auth="cloud-run-iam")
    await refusal(http, forged())
    assert await owner(http, authorization(stripped())) == "alice"


async def test_an_invoker_cannot_pass_for_another_behind_its_own_token(open_host):
    """Cloud Run checks X-Serverless-Authorization and passes Authorization on as it came: the first one counts."""
    http = await open_host(auth="cloud-run-iam")
    checked = {"X-Serverless-Authorization": f"Bearer {stripped(sub='mallory')}"}
    assert await owner(http, {**checked, **authorization(stripped(sub="alice"))}) == "mallory"


async def test_the_mark_of_cloud_run_is_worth_nothing_unless_switched_on(open_host, issuer):
    """In no other mode."""
    for settings in (TOKENS, oidc(issuer), google(issuer), iap(issuer)):
        http = await open_host(**settings)
        token = stripped(iss=settings.get("auth_issuer", GOOGLE))
        await refusal(http, {**authorization(token), "X-Goog-IAP-JWT-Assertion": token})
