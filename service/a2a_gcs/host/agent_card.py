"""The agent card: what is really served, at the origin that clients see."""

from __future__ import annotations

from importlib.metadata import version

from a2a.server.agent_execution import AgentExecutor
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from a2a_gcs.executors import demo
from a2a_gcs.host.settings import AgentSettings, Settings


def build_card(agent: AgentExecutor, settings: AgentSettings, origin: str) -> AgentCard:
    """A card for an agent.

    Args:
        agent: The executor; one with a `card` attribute or method describes itself; its interfaces are replaced.
        settings: How it was named.
        origin: Where clients reach it, such as `http://127.0.0.1:8080`.
    """
    own = getattr(agent, "card", None)
    own = own() if callable(own) else own
    card = AgentCard()
    if isinstance(own, AgentCard):
        card.CopyFrom(own)
    else:
        card.MergeFrom(_described(settings))
    card.capabilities.MergeFrom(AgentCapabilities(streaming=True, push_notifications=False))
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(interfaces(origin))
    return card


def interfaces(origin: str) -> list[AgentInterface]:
    """Every binding that is served: JSON-RPC and REST, A2A 1.0 and 0.3, preferred one first."""
    root = origin.rstrip("/")
    return [
        AgentInterface(url=f"{root}/", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=root, protocol_binding="HTTP+JSON", protocol_version="1.0"),
        AgentInterface(url=f"{root}/", protocol_binding="JSONRPC", protocol_version="0.3"),
        AgentInterface(url=f"{root}/v1", protocol_binding="HTTP+JSON", protocol_version="0.3"),
    ]


def declare_security(card: AgentCard, settings: Settings) -> None:
    """Makes a card name the one scheme that the host enforces, in place of what the agent's own card names.

    Without authentication it names none, unless something in front enforces what the agent's card says.
    """
    if settings.auth == "none" and settings.allow_unauthenticated:
        return
    card.ClearField("security_schemes")
    card.ClearField("security_requirements")
    for skill in card.skills:
        skill.ClearField("security_requirements")
    if settings.auth == "none":
        return
    name, scheme = _scheme(settings)
    card.security_schemes[name].CopyFrom(scheme)
    card.security_requirements.append(SecurityRequirement(schemes={name: StringList()}))


def _scheme(settings: Settings) -> tuple[str, SecurityScheme]:
    """What a client has to bring. It is a bearer token in every mode, also where a proxy in front reads it."""
    audience = f" for the audience {settings.auth_audience}" if settings.auth_audience else ""
    match settings.auth:
        case "oidc" if settings.auth_jwks_url is None:
            return "oidc", _open_id(settings.auth_issuer or "", f"A token{audience}.")
        case "oidc":
            return "oidc", _bearer("JWT", f"A token of {settings.auth_issuer}{audience}.")
        case "google":
            return "google", _open_id("https://accounts.google.com", f"A Google ID token{audience}.")
        case "iap":
            return "iap", _bearer("JWT", "A token that Identity-Aware Proxy in front of the agent accepts.")
        case "cloud-run-iam":
            return "cloudRun", _bearer("JWT", "A Google ID token of an invoker of the Cloud Run service.")
        case _:
            return "bearer", _bearer("", "A token that the operator of the agent has given out.")


def _bearer(token_format: str, description: str) -> SecurityScheme:
    scheme = HTTPAuthSecurityScheme(scheme="Bearer", bearer_format=token_format, description=description)
    return SecurityScheme(http_auth_security_scheme=scheme)


def _open_id(issuer: str, description: str) -> SecurityScheme:
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    scheme = OpenIdConnectSecurityScheme(open_id_connect_url=url, description=description)
    return SecurityScheme(open_id_connect_security_scheme=scheme)


def _described(settings: AgentSettings) -> AgentCard:
    spec, is_demo = settings.agent, settings.agent == "demo"
    skill = AgentSkill(id="agent", name=spec, description=f"What {spec} does.", tags=["agent"])
    return AgentCard(
        name="a2a-gcs demo" if is_demo else spec,
        description=settings.description
        or ("Keeps a journal in its workspace, to show what persists." if is_demo else f"The agent {spec}."),
        version=version("a2a-gcs"),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=demo.skills() if is_demo else [skill],
    )
