"""Which settings go together: a host that would check less than its operator thinks does not start."""

import pytest
from pydantic import ValidationError

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.auth import open_authenticator
from a2a_gcs.host.settings import Settings

OIDC = {"auth": "oidc", "auth_issuer": "https://issuer.example", "auth_audience": "a"}
TOKENS = {"auth": "tokens", "tokens": "alice:alice-token-0123456789"}
OUTSIDE = {"host": "0.0.0.0"}


@pytest.mark.parametrize(
    "given",
    [
        TOKENS,
        OIDC,
        {"auth": "google", "auth_audience": "a"},
        {"auth": "iap", "auth_audience": "/projects/1/global/backendServices/2"},
    ],
)
def test_with_authentication_a_host_may_listen_anywhere(given):
    """And without it on loopback only, as before."""
    assert Settings(**OUTSIDE, **given).host == "0.0.0.0"
    with pytest.raises(ValidationError, match="there is no authentication"):
        Settings(**OUTSIDE)


def test_cloud_run_iam_listens_beyond_loopback_only_on_cloud_run(monkeypatch):
    """Elsewhere there is nobody who checks what it trusts."""
    monkeypatch.delenv("K_SERVICE", raising=False)
    assert Settings(auth="cloud-run-iam")
    with pytest.raises(ValidationError, match="it is for Cloud Run"):
        Settings(**OUTSIDE, auth="cloud-run-iam")
    with pytest.raises(ValidationError, match="it is for Cloud Run"):
        Settings(**OUTSIDE, auth="cloud-run-iam", allow_unauthenticated=True)
    monkeypatch.setenv("K_SERVICE", "agent")
    assert Settings(**OUTSIDE, auth="cloud-run-iam").host == "0.0.0.0"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"auth": "tokens"}, "auth tokens needs either tokens_file or tokens"),
        ({**TOKENS, "tokens_file": "t"}, "auth tokens needs either tokens_file or tokens"),
        ({"auth": "oidc", "auth_audience": "a"}, "auth oidc needs auth_issuer"),
        ({**OIDC, "auth_audience": " , "}, "auth oidc needs auth_audience"),
        ({"auth": "google"}, "auth google needs auth_audience"),
        ({"auth": "iap"}, "auth iap needs auth_audience"),
        ({**TOKENS, "auth": "none"}, "tokens is set but auth none does not read it"),
        ({**OIDC, "auth": "none"}, "auth_audience is set but auth none does not read it"),
        ({**OIDC, "tokens_file": "t"}, "tokens_file is set but auth oidc does not read it"),
        ({"auth": "google", "auth_audience": "a", "auth_issuer": "https://i.example"}, "auth_issuer is set but"),
        ({**OIDC, "auth_issuer": "http://issuer.example"}, "auth_issuer has to begin with https"),
        ({**OIDC, "auth_issuer": "issuer.example"}, "auth_issuer has to begin with https"),
        ({**OIDC, "auth_issuer": "https://["}, "auth_issuer has to begin with https"),
        ({**OIDC, "auth_jwks_url": "http://127.0.0.1.example/keys"}, "auth_jwks_url has to begin with https"),
        ({**OIDC, "auth_jwks_url": "file:///keys"}, "auth_jwks_url has to begin with https"),
        ({"auth": "basic"}, "Input should be 'none', 'tokens'"),
    ],
)
def test_what_is_missing_or_left_over_is_named(given, says):
    """A setting of another mode is a mistake that would leave a host open, or shut."""
    with pytest.raises(ValidationError, match=says):
        Settings(**given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**OIDC, "auth_algorithms": "HS256"}, "A2A_GCS_AUTH_ALGORITHMS: choose of ES256"),
        ({**OIDC, "auth_algorithms": "RS256,none"}, "A2A_GCS_AUTH_ALGORITHMS: choose of ES256"),
        ({**OIDC, "auth_algorithms": ""}, "A2A_GCS_AUTH_ALGORITHMS: choose of ES256"),
        ({**TOKENS, "tokens": " \n,"}, "A2A_GCS_TOKENS holds no token"),
        ({**TOKENS, "tokens": "alice:x"}, "tokens, line 1: a token of fewer than 16"),
        ({"auth": "tokens", "tokens_file": "/nowhere/tokens"}, "tokens file /nowhere/tokens cannot be read"),
    ],
)
def test_lists_that_cannot_be_used_are_found_at_the_start(given, says):
    """Shared secrets and no signature at all are never among the algorithms."""
    with pytest.raises(ConfigError, match=says):
        open_authenticator(Settings(**given))


async def test_tokens_of_the_environment_may_be_one_line(monkeypatch):
    """With commas between, as line ends are hard to write there."""
    monkeypatch.setenv("A2A_GCS_TOKENS", "alice:alice-token-0123456789,bob:bob-token-0123456789ab")
    authenticator = open_authenticator(Settings(auth="tokens"))
    principal = await authenticator.authenticate([("authorization", "Bearer bob-token-0123456789ab")])
    assert principal.owner == "bob"


def test_tokens_are_not_shown_with_the_settings():
    """Neither in a repr nor in a dump."""
    settings = Settings(**TOKENS)
    assert "alice-token" not in repr(settings)
    assert "alice-token" not in str(settings.model_dump(mode="json"))


def test_without_authentication_there_is_no_authenticator():
    """The default."""
    assert open_authenticator(Settings()) is None
