"""Static tokens: what a list may hold, what is accepted, and what a change of the file does."""

import hashlib
import hmac

import pytest

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.auth import tokens
from a2a_gcs.host.auth.errors import Unauthenticated
from a2a_gcs.host.auth.tokens import RELOAD_EVERY_SECONDS, StaticTokens, TokensFile, parse_tokens

ALICE, BOB, OTHER = "alice-token-0123456789", "bob-token-0123456789ab", "other-token-0123456789"
HASHED = hashlib.sha256(BOB.encode()).hexdigest()


async def owner(checks, token):
    return (await checks.check(token)).owner


async def refused(checks, token):
    with pytest.raises(Unauthenticated) as caught:
        await checks.check(token)
    assert token not in caught.value.challenge
    return caught.value


async def test_a_token_is_its_names(tmp_path):
    """Plain or hashed, with comments and blank lines between; the name is the owner."""
    checks = StaticTokens(parse_tokens(f"# team\n\nalice:{ALICE}\n  bob:sha256:{HASHED.upper()}  \r\n"))
    assert [await owner(checks, ALICE), await owner(checks, BOB)] == ["alice", "bob"]


@pytest.mark.parametrize("token", [OTHER, ALICE[:-1], ALICE + "x", ALICE.upper(), HASHED, f"sha256:{HASHED}", "alice"])
async def test_nothing_but_the_token_is_accepted(token):
    """Not a part of it, nor another case, nor the digest that the list holds, nor the name."""
    checks = StaticTokens(parse_tokens(f"alice:{ALICE}\nbob:sha256:{HASHED}"))
    error = await refused(checks, token)
    assert (
        error.challenge == 'Bearer realm="a2a-gcs", error="invalid_token", error_description="the token is not valid"'
    )


async def test_a_name_may_have_two_tokens():
    """So that one can be replaced without a gap."""
    checks = StaticTokens(parse_tokens(f"alice:{ALICE}\nalice:{OTHER}"))
    assert [await owner(checks, ALICE), await owner(checks, OTHER)] == ["alice", "alice"]


async def test_every_entry_is_compared_whatever_was_found(monkeypatch):
    """In constant time: neither the first hit nor a miss ends the search early."""
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(tokens.hmac, "compare_digest", lambda a, b: compared.append(a) or real(a, b))
    checks = StaticTokens(parse_tokens(f"alice:{ALICE}\nbob:{BOB}\ncarol:{OTHER}"))
    await checks.check(ALICE)
    assert len(compared) == 3
    await refused(checks, "nobody-0123456789")
    assert len(compared) == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alice", "line 1: write name:token"),
        (f"\n:{ALICE}", "line 2: write name:token"),
        (f"../bob:{ALICE}", "line 1: write name:token"),
        ("alice:short", "fewer than 16 characters can be guessed"),
        ("alice:", "line 1: tokens hold letters"),
        (f"alice:two words {ALICE}", "line 1: tokens hold letters"),
        ("alice:sha256:abc", "line 1: tokens hold letters"),
        (f"alice:{BOB}\nbob:sha256:{HASHED}", "line 2: bob has the same token as alice"),
    ],
)
def test_a_wrong_line_is_named_and_never_quoted(text, says):
    """The number and the rule; the token itself stays out of terminals and logs."""
    with pytest.raises(ConfigError) as caught:
        parse_tokens(text)
    assert says in str(caught.value)
    assert not any(token in str(caught.value) for token in (ALICE, BOB, HASHED))


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def tick(self):
        self.now += RELOAD_EVERY_SECONDS


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"alice:{ALICE}\n")
    return path


async def test_a_changed_file_is_in_force_after_a_moment(file):
    """Added and removed tokens alike, with one look at the file in that time."""
    clock = Clock()
    checks = TokensFile(file, clock)
    file.write_text(f"bob:{BOB}\n")
    assert await owner(checks, ALICE) == "alice"
    clock.tick()
    await refused(checks, ALICE)
    assert await owner(checks, BOB) == "bob"


async def test_an_emptied_file_accepts_nobody(file):
    """Emptying it revokes everything; it is no mistake that could be passed over."""
    clock = Clock()
    checks = TokensFile(file, clock)
    file.write_text("")
    clock.tick()
    await refused(checks, ALICE)


@pytest.mark.parametrize("damage", ["missing", "wrong line", "no text", "huge"])
async def test_a_file_that_cannot_be_used_leaves_the_last_good_list(file, damage):
    """Until it is right again, which is noticed."""
    clock = Clock()
    checks = TokensFile(file, clock)
    if damage == "missing":
        file.unlink()
    else:
        huge = b"#" * (tokens.MAX_FILE_BYTES + 1)
        file.write_bytes({"wrong line": b"bob", "no text": b"\xff\xfe", "huge": huge}[damage])
    clock.tick()
    assert await owner(checks, ALICE) == "alice"
    file.write_text(f"bob:{BOB}\n")
    clock.tick()
    assert await owner(checks, BOB) == "bob"
    await refused(checks, ALICE)


@pytest.mark.parametrize(
    ("content", "says"), [(None, "cannot be read: No such file"), (b"# nobody\n", "holds no token"), (b"\xff", "UTF-8")]
)
def test_a_file_that_cannot_be_used_at_the_start_is_refused(tmp_path, content, says):
    """There is no list yet that could stay in force."""
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        TokensFile(path)
