"""The card names what is enforced: in the form of 1.0, and in that of 0.3, which the same document carries."""

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3.conversions import to_compat_agent_card
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types.a2a_pb2 import (
    AgentCard,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from a2a_gcs.executors.demo import DemoAgent
from a2a_gcs.host.agent_card import build_card, declare_security
from a2a_gcs.host.settings import AgentSettings, Settings

AUDIENCE = {"auth_audience": "agent.example"}
OIDC = {"auth": "oidc", "auth_issuer": "https://issuer.example/tenant/", **AUDIENCE}
JWT = ("http", "Bearer", "JWT")


def of_1_0(scheme):
    if scheme.HasField("http_auth_security_scheme"):
        http = scheme.http_auth_security_scheme
        return "http", http.scheme, http.bearer_format or None
    return "openIdConnect", scheme.open_id_connect_security_scheme.open_id_connect_url


def of_0_3(scheme):
    if scheme.root.type == "http":
        return "http", scheme.root.scheme, scheme.root.bearer_format
    return scheme.root.type, scheme.root.open_id_connect_url


def card_with(agent=None, **settings):
    card = build_card(agent or DemoAgent(), AgentSettings(name="demo", agent="demo"), "https://agent.example")
    declare_security(card, Settings(**settings))
    return card


@pytest.mark.parametrize(
    ("settings", "name", "scheme"),
    [
        ({"auth": "tokens", "tokens": "a:b"}, "bearer", ("http", "Bearer", None)),
        (
            OIDC,
            "oidc",
            ("openIdConnect", "https://issuer.example/tenant/.well-known/openid-configuration"),
        ),
        ({**OIDC, "auth_jwks_url": "https://issuer.example/keys"}, "oidc", JWT),
        (
            {"auth": "google", **AUDIENCE},
            "google",
            ("openIdConnect", "https://accounts.google.com/.well-known/openid-configuration"),
        ),
        ({"auth": "iap", **AUDIENCE}, "iap", JWT),
        ({"auth": "cloud-run-iam"}, "cloudRun", JWT),
    ],
)
def test_the_one_scheme_is_declared_and_required(settings, name, scheme):
    """With the same content in 1.0, in 0.3, and in the document that clients of both read."""
    card = card_with(**settings)
    assert {n: of_1_0(s) for n, s in card.security_schemes.items()} == {name: scheme}
    assert [list(r.schemes) for r in card.security_requirements] == [[name]]
    old = to_compat_agent_card(card)
    assert {n: of_0_3(s) for n, s in old.security_schemes.items()} == {name: scheme}
    assert old.security == [{name: []}]
    document = agent_card_to_dict(card)
    assert document["security"] == [{name: []}]
    assert document["securitySchemes"][name]["type"] == scheme[0]
    read = parse_agent_card(document)
    assert of_1_0(read.security_schemes[name]) == scheme
    assert read.security_requirements == card.security_requirements


def test_a_client_learns_the_audience_to_ask_for():
    """It is what it cannot find out elsewhere."""
    card = card_with(auth="google", **AUDIENCE)
    scheme = card.security_schemes["google"].open_id_connect_security_scheme
    assert scheme.description == "A Google ID token for the audience agent.example."


class Boasting(DemoAgent):
    """An agent whose own card names schemes that nobody here enforces."""

    def card(self):
        requirement = SecurityRequirement(schemes={"own": StringList()})
        return AgentCard(
            name="boasting",
            skills=[AgentSkill(id="s", security_requirements=[requirement])],
            security_schemes={"own": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Digest"))},
            security_requirements=[requirement],
        )


def names(card):
    skills = [name for skill in card.skills for r in skill.security_requirements for name in r.schemes]
    return set(card.security_schemes) | {n for r in card.security_requirements for n in r.schemes} | set(skills)


def test_what_the_agents_own_card_claims_is_replaced():
    """It stays only where something in front is said to enforce it."""
    assert names(card_with(Boasting())) == set()
    assert names(card_with(Boasting(), auth="cloud-run-iam")) == {"cloudRun"}
    assert names(card_with(Boasting(), auth="cloud-run-iam", allow_unauthenticated=True)) == {"cloudRun"}
    assert names(card_with(Boasting(), allow_unauthenticated=True)) == {"own"}
