"""Which header counts, and what is refused because two readers could understand it differently."""

import pytest

from a2a_gcs.host.auth.credentials import MAX_TOKEN_CHARS, bearer, iap_assertion, serverless_bearer
from a2a_gcs.host.auth.errors import Unauthenticated
from a2a_gcs.host.auth.principal import Principal, principal_of

FORGED = ("authorization", "Bearer forged")


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer abc.def-_~+/==")],
        [(b"authorization", b"Bearer abc.def-_~+/==")],
        [("Authorization", "bearer   abc.def-_~+/==  ")],
        [("x-token", "x"), ("AUTHORIZATION", "BEARER abc.def-_~+/=="), ("cookie", "a=b")],
    ],
)
def test_the_token_of_the_one_authorization_header(headers):
    """Of ASGI or of gRPC, whatever the case."""
    assert bearer(headers) == "abc.def-_~+/=="


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([], None),
        ([("x-authorization", "Bearer abc")], None),
        ([("authorization", "")], None),
        ([("authorization", "Basic YTpi")], None),
        ([("authorization", "abc")], None),
        ([("authorization", "Bearer")], "invalid_request"),
        ([("authorization", "Bearer ")], "invalid_request"),
        ([("authorization", "Bearer a b")], "invalid_request"),
        ([("authorization", "Bearer a, Bearer b")], "invalid_request"),
        ([("authorization", "Bearer a\tb")], "invalid_request"),
        ([(b"authorization", b"Bearer \xff\xfe")], "invalid_request"),
        ([("authorization", "Bearer ="), ("authorization", "Bearer =")], "invalid_request"),
        ([("authorization", "Bearer a"), ("Authorization", "Bearer a")], "invalid_request"),
        ([("authorization", "Bearer a"), ("authorization", "Basic YTpi")], "invalid_request"),
        ([("authorization", f"Bearer {'a' * MAX_TOKEN_CHARS}")], "invalid_token"),
    ],
)
def test_what_is_missing_or_ambiguous_is_refused(headers, error):
    """Without a code where there were no credentials at all, as RFC 6750 wants it; a challenge always."""
    with pytest.raises(Unauthenticated) as caught:
        bearer(headers)
    assert caught.value.error == error
    assert caught.value.challenge.startswith('Bearer realm="a2a-gcs"')
    assert (error is None) == ("error=" not in caught.value.challenge)


def test_the_header_that_cloud_run_checked_hides_the_one_that_it_did_not():
    """X-Serverless-Authorization alone counts when it is there, as Authorization then came through unchecked."""
    assert serverless_bearer([("authorization", "Bearer own")]) == "own"
    assert serverless_bearer([FORGED, ("x-serverless-authorization", "Bearer checked")]) == "checked"


@pytest.mark.parametrize("value", ["", "Basic YTpi", "Bearer", "Bearer a b"])
def test_a_useless_serverless_header_does_not_bring_the_other_one_back(value):
    """Present is present."""
    with pytest.raises(Unauthenticated):
        serverless_bearer([("X-Serverless-Authorization", value), FORGED])


def test_two_serverless_headers_are_refused():
    """Which of them Cloud Run has checked cannot be told."""
    with pytest.raises(Unauthenticated):
        serverless_bearer([("x-serverless-authorization", "Bearer a"), ("x-serverless-authorization", "Bearer b")])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [FORGED],
        [("x-goog-authenticated-user-email", "accounts.google.com:alice@example.com")],
        [("x-goog-iap-jwt-assertion", "a.b.c"), ("X-Goog-IAP-JWT-Assertion", "d.e.f")],
        [("x-goog-iap-jwt-assertion", "a" * (MAX_TOKEN_CHARS + 1))],
    ],
)
def test_only_one_signed_assertion_counts_behind_iap(headers):
    """No bearer token, no plain header, no second assertion, nothing huge."""
    with pytest.raises(Unauthenticated):
        iap_assertion(headers)
    assert iap_assertion([("X-Goog-IAP-JWT-Assertion", " a.b.c "), FORGED]) == "a.b.c"


def test_a_principal_is_a_user_of_the_sdk_and_of_starlette():
    """Every name that either asks for is the owner."""
    user = Principal("alice@example.com")
    assert {user.owner, user.user_name, user.display_name, user.identity} == {"alice@example.com"}
    assert user.is_authenticated


@pytest.mark.parametrize("owner", [None, "", 7, True, ["alice"], {}, "a\nb", "a\x00", "\ud800", "x" * 241, "ü" * 41])
def test_what_cannot_be_part_of_a_key_is_no_owner(owner):
    """Found here, with 401, and not by the first write."""
    with pytest.raises(Unauthenticated):
        principal_of(owner, "sub")


@pytest.mark.parametrize("owner", ["alice", "accounts.google.com:1234", "a/b", "..", "x" * 240])
def test_any_other_text_names_an_owner_as_it_is(owner):
    """Also with characters that a key encodes."""
    assert principal_of(owner, "sub").owner == owner
