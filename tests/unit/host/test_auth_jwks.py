"""The cache of an issuer's keys: how often it asks, and what it knows while nobody answers. Time is moved by hand."""

import asyncio

import pytest
from jwt.algorithms import RSAAlgorithm

from a2a_gcs.host.auth.errors import AuthUnavailable, Unauthenticated
from a2a_gcs.host.auth.fetch import FetchFailed
from a2a_gcs.host.auth.jwks import FRESH_SECONDS, KEPT_SECONDS, PAUSE_SECONDS, KeySet, parse_keys
from tests.support.issuer import SigningKey

ONE, TWO, EC = SigningKey("one"), SigningKey("two"), SigningKey("ec", "ES256")


class Source:
    """An issuer without a network: what it holds, whether it answers, and how often it was asked."""

    def __init__(self, *keys):
        self.keys = [key.jwk() for key in keys]
        self.up, self.asked, self.now = True, 0, 1000.0
        self.answer = asyncio.Event()
        self.answer.set()
        self.set = KeySet(self._fetch, lambda: self.now)

    async def _fetch(self):
        self.asked += 1
        await self.answer.wait()
        if not self.up:
            raise FetchFailed("the issuer is away")
        return {"keys": self.keys}

    async def find(self, kid="one", algorithm="RS256"):
        return (await self.set.find(kid, algorithm)).kid

    async def fetched(self):
        """Waits for a fetch that somebody started in the background."""
        await self.set._fetching


async def test_keys_are_fetched_once_and_kept():
    """One fetch, however many tokens, and none before the first."""
    source = Source(ONE, EC)
    assert source.asked == 0
    for _ in range(3):
        assert [await source.find("one"), await source.find("ec", "ES256")] == ["one", "ec"]
    assert source.asked == 1


async def test_those_who_need_keys_at_once_share_a_fetch():
    """A hundred first requests are one question to the issuer."""
    source = Source(ONE)
    source.answer.clear()
    waiting = [asyncio.create_task(source.find()) for _ in range(100)]
    await asyncio.sleep(0)
    source.answer.set()
    assert set(await asyncio.gather(*waiting)) == {"one"}
    assert source.asked == 1


async def test_a_caller_that_goes_away_does_not_end_the_fetch_of_the_others():
    """The fetch belongs to nobody in particular."""
    source = Source(ONE)
    source.answer.clear()
    gone, stays = asyncio.create_task(source.find()), asyncio.create_task(source.find())
    await asyncio.sleep(0)
    gone.cancel()
    source.answer.set()
    assert await stays == "one"
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_an_unknown_key_costs_one_fetch_and_is_then_known():
    """A rotation: the first token by the new key is accepted."""
    source = Source(ONE)
    await source.find()
    source.now += PAUSE_SECONDS
    source.keys.append(TWO.jwk())
    assert await source.find("two") == "two"
    assert source.asked == 2


async def test_unknown_keys_cost_no_more_than_one_fetch_in_a_while():
    """Anybody can make up names of keys; the issuer does not pay for it, and neither do the known ones."""
    source = Source(ONE)
    await source.find()
    source.now += PAUSE_SECONDS
    for n in range(20):
        with pytest.raises(Unauthenticated):
            await source.find(f"made-up-{n}")
    assert (source.asked, await source.find()) == (2, "one")


async def test_a_withdrawn_key_is_gone_with_the_next_fetch():
    """Old keys are renewed in the background: the request that notices does not wait."""
    source = Source(ONE, TWO)
    await source.find("two")
    source.keys = [ONE.jwk()]
    source.now += FRESH_SECONDS + 1
    source.answer.clear()
    assert await source.find("two") == "two"
    await asyncio.sleep(0)
    source.answer.set()
    await source.fetched()
    with pytest.raises(Unauthenticated):
        await source.find("two")
    assert await source.find("one") == "one"


async def test_known_keys_outlive_an_outage_of_a_day_and_not_longer():
    """For a day tokens by them are accepted; after that nobody can be told apart, until the issuer is back."""
    source = Source(ONE)
    await source.find()
    source.up = False
    for _ in range(3):
        source.now += FRESH_SECONDS + 1
        assert await source.find() == "one"
        await source.fetched()
    source.now += KEPT_SECONDS
    with pytest.raises(AuthUnavailable):
        await source.find()
    source.up = True
    source.now += PAUSE_SECONDS
    assert await source.find() == "one"


async def test_without_any_keys_it_is_the_host_that_cannot_answer():
    """Not the caller's fault: a time to come back is told, and until then the issuer is left alone."""
    source = Source(ONE)
    source.up = False
    with pytest.raises(AuthUnavailable) as first:
        await source.find()
    source.now += 4
    with pytest.raises(AuthUnavailable) as second:
        await source.find()
    assert (first.value.retry_after, second.value.retry_after, source.asked) == (10, 6, 1)
    source.up = True
    source.now += second.value.retry_after
    assert await source.find() == "one"


async def test_an_unknown_key_in_an_outage_is_not_called_wrong():
    """It may be new; once the issuer answers again it is known to be wrong."""
    source = Source(ONE)
    await source.find()
    source.up = False
    source.now += PAUSE_SECONDS
    for _ in range(2):
        with pytest.raises(AuthUnavailable):
            await source.find("two")
    source.up = True
    source.now += PAUSE_SECONDS
    with pytest.raises(Unauthenticated):
        await source.find("two")


async def test_a_token_without_a_key_name_needs_an_issuer_with_one_fitting_key():
    """Which key was meant is never guessed."""
    assert await Source(ONE, EC).find(None) == "one"
    with pytest.raises(Unauthenticated):
        await Source(ONE, TWO).find(None)


@pytest.mark.parametrize(
    ("jwk", "algorithm", "fits"),
    [
        (ONE.jwk(), "RS256", True),
        (ONE.jwk(), "RS512", True),
        (ONE.jwk(), "PS256", True),
        (ONE.jwk(alg="RS256"), "RS256", True),
        (ONE.jwk(alg="RS256"), "RS512", False),
        (ONE.jwk(), "ES256", False),
        (ONE.jwk(), "HS256", False),
        (ONE.jwk(), "none", False),
        (EC.jwk(), "ES256", True),
        (EC.jwk(), "ES384", False),
        (EC.jwk(), "RS256", False),
        (SigningKey("p384", "ES384").jwk(), "ES256", False),
    ],
)
def test_a_key_verifies_only_what_it_is_made_for(jwk, algorithm, fits):
    """Its type, its curve, and the algorithm that the issuer reserves it for, if any."""
    (key,) = parse_keys({"keys": [jwk]})
    assert key.fits(algorithm) is fits


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "s", "alg": "HS256"},
        ONE.jwk(use="enc"),
        ONE.jwk(n="AQAB"),
        ONE.jwk(n=7),
        ONE.jwk(n=None),
        ONE.jwk(alg="RSA-OAEP"),
        ONE.jwk(alg=["RS256"]),
        {**RSAAlgorithm.to_jwk(ONE.private, as_dict=True), "kid": "private"},
        SigningKey("weak", bits=1024).jwk(),
        EC.jwk(crv="P-384"),
        EC.jwk(crv="secp256k1"),
        EC.jwk(x="AA"),
        {"kty": ["RSA"]},
        {},
        "a key",
        None,
    ],
)
def test_what_is_no_public_signing_key_is_skipped(jwk):
    """Shared secrets above all; the good key beside it stays."""
    assert [key.kid for key in parse_keys({"keys": [jwk, TWO.jwk()]})] == ["two"]


@pytest.mark.parametrize("document", [{}, {"keys": None}, {"keys": {"one": ONE.jwk()}}])
def test_a_document_without_keys_counts_as_no_answer(document):
    """So that it does not replace the keys that are known."""
    with pytest.raises(FetchFailed):
        parse_keys(document)


async def test_closing_ends_a_fetch_under_way():
    """Nothing is left running."""
    source = Source(ONE)
    source.answer.clear()
    waiting = asyncio.create_task(source.find())
    await asyncio.sleep(0)
    await source.set.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
