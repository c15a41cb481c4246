"""Tokens of a local issuer: what they have to say, how they are forged, and what its answers may be."""

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from a2a_gcs.host.app import create_app
from a2a_gcs.host.auth import Unauthenticated
from a2a_gcs.host.auth.jwks import PAUSE_SECONDS
from a2a_gcs.host.auth.jwts import STRIPPED
from a2a_gcs.host.settings import Settings
from tests.support.auth_hosts import (
    AUDIENCE,
    EC,
    FOREIGN,
    GOOGLE,
    RSA,
    authorization,
    google,
    hosts_in_process,
    message,
    oidc,
    owner,
    refusal,
)
from tests.support.issuer import Issuer, claims, encoded


@pytest.fixture
async def issuer():
    async with Issuer(RSA, EC).serving() as issuer:
        yield issuer


@pytest.fixture
async def open_host():
    async with hosts_in_process() as open_host:
        yield open_host


@pytest.mark.parametrize("key", [RSA, EC], ids=["RS256", "ES256"])
async def test_a_token_of_the_issuer_names_the_owner(open_host, issuer, key):
    """Found by the issuer's discovery document; the agent is told, and so is a caller of authenticate()."""
    http = await open_host(**oidc(issuer))
    token = key.sign(claims(iss=issuer.url))
    assert await owner(http, authorization(token)) == "alice"
    metadata = [("user-agent", "grpc-python"), ("authorization", f"Bearer {token}")]
    assert (await http._transport.app.state.authenticator.authenticate(metadata)).owner == "alice"


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", AUDIENCE]},
        {"exp": -20},
        {"nbf": 20, "iat": 20},
        {"iat": None},
        {"exp": 10**9},
    ],
)
async def test_what_the_rules_allow_is_accepted(open_host, issuer, changes):
    """One audience of several, clocks that differ by less than 30 seconds, no iat."""
    http = await open_host(**oidc(issuer))
    assert await owner(http, authorization(RSA.sign(claims(iss=issuer.url, **changes)))) == "alice"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"iss": "https://other.example"}, "the token is from another issuer"),
        ({"iss": GOOGLE}, "the token is from another issuer"),
        ({"iss": ["{issuer}"]}, "the token is from another issuer"),
        ({"iss": "{issuer}/"}, "the token is from another issuer"),
        ({"iss": None}, "the token has no iss claim"),
        ({"aud": "other"}, "the token is for another audience"),
        ({"aud": ["other", f"{AUDIENCE}.evil"]}, "the token is for another audience"),
        ({"aud": AUDIENCE[:-1]}, "the token is for another audience"),
        ({"aud": {"a": AUDIENCE}}, "the token is for another audience"),
        ({"aud": None}, "the token has no aud claim"),
        ({"aud": []}, "the token has no aud claim"),
        ({"exp": -40}, "the token has expired"),
        ({"exp": -(10**9)}, "the token has expired"),
        ({"exp": None}, "the token has no exp claim"),
        ({"exp": "soon"}, "the token is not valid"),
        ({"exp": float("nan")}, "the token is not valid"),
        ({"exp": float("inf")}, "the token is not valid"),
        ({"exp": [1]}, "the token is not valid"),
        ({"nbf": 60}, "the token is not valid yet"),
        ({"nbf": "now"}, "the token is not valid"),
        ({"iat": 60}, "the token is not valid yet"),
        ({"iat": float("inf")}, "the token is not valid"),
        ({"sub": None}, "the token has no usable sub claim"),
        ({"sub": ""}, "the token has no usable sub claim"),
        ({"sub": "a\nb"}, "the token has no usable sub claim"),
        ({"sub": "x" * 300}, "the token has no usable sub claim"),
    ],
)
async def test_a_signed_token_that_breaks_a_rule_is_refused_and_told_why(open_host, issuer, changes, says):
    """Its signature is good, so the reason helps its owner and nobody else; an unchanged one passes."""
    http = await open_host(**oidc(issuer))
    named = {
        name: json.loads(json.dumps(value).replace("{issuer}", issuer.url)) if name == "iss" else value
        for name, value in changes.items()
    }
    token = jwt.api_jws.encode(
        json.dumps(claims(**{"iss": issuer.url, **named})).encode(), RSA.private, "RS256", {"kid": "rsa"}
    )
    assert f'error="invalid_token", error_description="{says}"' in await refusal(http, authorization(token))
    assert await owner(http, authorization(RSA.sign(claims(iss=issuer.url)))) == "alice"


def hs256(good, secret, kid="rsa"):
    """A token signed with a shared secret that is the issuer's public key, as everybody knows it."""
    start = f"{encoded({'alg': 'HS256', 'kid': kid, 'typ': 'JWT'})}.{encoded(good)}"
    return f"{start}.{encoded(hmac.digest(secret, start.encode(), hashlib.sha256))}"


def public_pem(form=PublicFormat.SubjectPublicKeyInfo):
    return RSA.private.public_key().public_bytes(Encoding.PEM, form)


def resigned(token, **header):
    """The same token with another header, its signature left as it is."""
    head, body, signature = token.split(".")
    known = json.loads(base64.urlsafe_b64decode(head + "=="))
    return f"{encoded({**known, **header})}.{body}.{signature}"


FORGERIES = {
    "another key under a known name": lambda good: FOREIGN.sign(good, kid="rsa"),
    "an unknown key": FOREIGN.sign,
    "no name and a foreign key": lambda good: FOREIGN.sign(good, kid=None),
    "the key of another algorithm": lambda good: RSA.sign(good, kid="ec"),
    "an algorithm that is not on the list": lambda good: jwt.encode(good, RSA.private, "RS512", {"kid": "rsa"}),
    "PSS with the right key": lambda good: jwt.encode(good, RSA.private, "PS256", {"kid": "rsa"}),
    "none": lambda good: jwt.encode(good, None, "none", {"kid": "rsa"}),
    "None": lambda good: f"{encoded({'alg': 'None', 'kid': 'rsa'})}.{encoded(good)}.",
    "none with a good signature": lambda good: resigned(RSA.sign(good), alg="none"),
    "HS256 with the public key": lambda good: hs256(good, public_pem()),
    "HS256 with the public key, PKCS 1": lambda good: hs256(good, public_pem(PublicFormat.PKCS1)),
    "HS256 with the JWK": lambda good: hs256(good, json.dumps(RSA.jwk()).encode()),
    "HS256 with an empty secret": lambda good: hs256(good, b""),
    "HS256 in the header alone": lambda good: resigned(RSA.sign(good), alg="HS256"),
    "no algorithm": lambda good: f"{encoded({'kid': 'rsa'})}.{encoded(good)}.{encoded(b'x' * 256)}",
    "algorithms": lambda good: f"{encoded({'alg': ['RS256'], 'kid': 'rsa'})}.{encoded(good)}.{encoded(b'x' * 256)}",
    "a key of its own": lambda good: FOREIGN.sign(good, kid="rsa", jwk=FOREIGN.jwk()),
    "a key set of its own": lambda good: FOREIGN.sign(good, jku="http://127.0.0.1:9/keys"),
    "a critical extension": lambda good: RSA.sign(good, crit=["exp"]),
    "a name that is no text": lambda good: resigned(RSA.sign(good), kid=7),
    "another payload": lambda good: ".".join(
        [RSA.sign(good).split(".")[0], encoded({**good, "sub": "bob"}), RSA.sign(good).split(".")[2]]
    ),
    "no signature": lambda good: RSA.sign(good).rpartition(".")[0] + ".",
    "a part of the signature": lambda good: RSA.sign(good)[:-8],
    "the mark of Cloud Run": lambda good: f"{RSA.sign(good).rpartition('.')[0]}.{STRIPPED}",
    "two segments": lambda good: RSA.sign(good).rpartition(".")[0],
    "four segments": lambda good: f"{RSA.sign(good)}.x",
    "dots": lambda _: "....",
    "text": lambda _: "garbage",
    "a list": lambda good: f"{encoded(['alg', 'RS256'])}.{encoded(good)}.x",
    "a deep header": lambda good: f"{encoded(b'[' * 5000)}.{encoded(good)}.x",
    "a payload that is no object": lambda _: jwt.api_jws.encode(b"[1]", RSA.private, "RS256", {"kid": "rsa"}),
    "a deep payload": lambda _: jwt.api_jws.encode(b"[" * 5000, RSA.private, "RS256", {"kid": "rsa"}),
    "a payload that is no text": lambda _: jwt.api_jws.encode(b"\xff\xfe", RSA.private, "RS256", {"kid": "rsa"}),
    "a huge number": lambda _: jwt.api_jws.encode(b"9" * 5000, RSA.private, "RS256", {"kid": "rsa"}),
    "a huge name": lambda good: FOREIGN.sign(good, kid="x" * 5000),
    "16 kB": lambda good: RSA.sign({**good, "filling": "x" * 16384}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_token_is_refused_without_a_hint(open_host, issuer, forgery):
    """Never a 5xx, never a reason that a forger could learn from; the good token of the same claims passes."""
    http = await open_host(**oidc(issuer))
    good = claims(iss=issuer.url)
    hints = {"the token is not valid", "the token is too long"}
    challenge = await refusal(http, authorization(FORGERIES[forgery](good)))
    assert any(challenge.endswith(f'error="invalid_token", error_description="{hint}"') for hint in hints)
    assert await owner(http, authorization(RSA.sign(good))) == "alice"


async def test_nothing_that_is_no_token_makes_the_host_ask_the_issuer(open_host, issuer):
    """Keys are fetched for a token that could be one, and for nothing else."""
    http = await open_host(**oidc(issuer))
    for forgery in ("none", "HS256 with the public key", "dots", "text", "a list", "a deep header", "16 kB"):
        await refusal(http, authorization(FORGERIES[forgery](claims(iss=issuer.url))))
    assert issuer.served == 0
    await owner(http, authorization(RSA.sign(claims(iss=issuer.url))))
    assert issuer.served == 1


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://other.example"},
        {"jwks_uri": "http://0.0.0.0:{port}/keys"},
        {"jwks_uri": "https://["},
        {"jwks_uri": 7},
    ],
)
async def test_a_discovery_document_of_somebody_else_is_not_believed(open_host, issuer, discovery):
    """It has to name the issuer itself, and keys over https; until it does, tokens cannot be checked."""
    port = issuer.url.rpartition(":")[2]
    issuer.discovery = {k: v.replace("{port}", port) if isinstance(v, str) else v for k, v in discovery.items()}
    http = await open_host(**oidc(issuer))
    response = await http.get("/tasks", headers=authorization(RSA.sign(claims(iss=issuer.url))))
    assert (response.status_code, issuer.served) == (503, 0)


async def test_an_unreachable_issuer_is_503_and_not_401(open_host, issuer):
    """With a time to come back; what is certainly wrong is still 401, and the public paths still answer."""
    issuer.status = 500
    http = await open_host(**oidc(issuer))
    response = await http.post("/", json=message(), headers=authorization(RSA.sign(claims(iss=issuer.url))))
    assert response.status_code == 503
    assert 1 <= int(response.headers["retry-after"]) <= PAUSE_SECONDS
    await refusal(http, authorization("garbage"))
    await refusal(http, {})
    assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, "<html>"),
        (200, "[1]"),
        (200, "{}"),
        (200, '{"keys": 7}'),
        (200, "[" * 10_000),
        (200, json.dumps({"keys": [RSA.jwk()], "filling": "x" * 2**20})),
        (302, ""),
        (404, json.dumps({"keys": [RSA.jwk()]})),
    ],
    ids=["text", "list", "empty", "number", "deep", "huge", "redirect", "absent"],
)
async def test_an_issuer_that_answers_nonsense_counts_as_away(open_host, issuer, status, body):
    """Its answer is not read beyond half a megabyte, and nobody is sent elsewhere by it."""
    issuer.status, issuer.body = status, body
    http = await open_host(**google(issuer))
    response = await http.get("/tasks", headers=authorization(RSA.sign(claims(iss=GOOGLE))))
    assert (response.status_code, issuer.served) == (503, 1)


async def test_an_unauthenticated_principal_does_not_exist(issuer):
    """authenticate() either names an owner or raises, as gRPC needs it: there is no third answer."""
    authenticator = create_app(Settings(**oidc(issuer))).state.authenticator
    with pytest.raises(Unauthenticated) as caught:
        await authenticator.authenticate([("content-type", "application/grpc")])
    assert str(caught.value) == "a bearer token is needed"
    await authenticator.aclose()
