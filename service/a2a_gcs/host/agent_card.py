"""The agent card: what is really served, at the origin that clients see; signed, if there is a key."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from importlib.metadata import version
from urllib.parse import urlsplit

from a2a.server.agent_execution import AgentExecutor
from a2a.server.routes import create_agent_card_routes
from a2a.types.a2a_pb2 import (
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from a2a_gcs.host.settings import AgentSettings, Settings

LINEAR_EXECUTION = "urn:a2a-gcs:extensions:linear-execution:v1"
"""The extension by which a card says that a context runs one task at a time; no client has to activate it."""


def build_card(
    agent: AgentExecutor, settings: AgentSettings, origin: str, *, push: bool = True, name: str = ""
) -> AgentCard:
    """A card for an agent.

    Args:
        agent: The executor; one with a `card` attribute or method describes itself; its interfaces are replaced.
        settings: How it was named.
        origin: Where clients reach it, such as `http://127.0.0.1:8080`.
        push: Notifications are sent.
        name: What an agent is called that does not describe itself; empty for what it is.
    """
    own = getattr(agent, "card", None)
    own = own() if callable(own) else own
    card = AgentCard()
    if isinstance(own, AgentCard):
        card.CopyFrom(own)
    else:
        card.MergeFrom(_described(settings, name))
    declare_capabilities(card, push=push)
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(interfaces(origin))
    return card


def declare_capabilities(card: AgentCard, *, push: bool) -> None:
    """Makes a card say what any agent can do that is hosted here, and which rule its contexts follow."""
    card.capabilities.streaming = True
    card.capabilities.push_notifications = push
    if any(extension.uri == LINEAR_EXECUTION for extension in card.capabilities.extensions):
        return
    card.capabilities.extensions.append(
        AgentExtension(
            uri=LINEAR_EXECUTION,
            description="A context runs one task at a time. While one has not ended, a message that would start "
            "another is refused with UnsupportedOperationError, whose data has reason CONTEXT_BUSY and names the "
            "activeTaskId. A new task starts from the files of the task that completed last.",
            required=False,
        )
    )


def interfaces(origin: str) -> list[AgentInterface]:
    """Every binding that is served: JSON-RPC and REST, A2A 1.0 and 0.3, preferred one first.

    Clients of 0.3 add the `/v1` of its REST paths themselves (A2A 0.3.0, 3.2.3).
    """
    root = origin.rstrip("/")
    return [
        AgentInterface(url=f"{root}/", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=root, protocol_binding="HTTP+JSON", protocol_version="1.0"),
        AgentInterface(url=f"{root}/", protocol_binding="JSONRPC", protocol_version="0.3"),
        AgentInterface(url=root, protocol_binding="HTTP+JSON", protocol_version="0.3"),
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


def list_grpc(card: AgentCard, origin: str, port: int, *, alone: bool, tenant: str = "") -> None:
    """Adds both versions of gRPC, as host:port, which is what clients dial.

    Where a tenant tells several agents apart, 0.3 is left out: its clients send none, and would be refused. Alone it is
    there, as who has got the card, over 0.3's gRPC, knows how to name the agent.

    Args:
        card: The card to change.
        origin: Where clients reach the host.
        port: Where gRPC is served.
        alone: It is served at the origin's own port, and nothing else is.
        tenant: What requests have to put into their tenant, to reach this agent.
    """
    parts = urlsplit(origin)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    if alone:
        del card.supported_interfaces[:]
        port = parts.port or (443 if parts.scheme == "https" else 80)
    for protocol in ("1.0", "0.3") if alone or not tenant else ("1.0",):
        card.supported_interfaces.append(
            AgentInterface(url=f"{name}:{port}", protocol_binding="GRPC", protocol_version=protocol, tenant=tenant)
        )


def card_routes(card: AgentCard, *, max_age: int) -> list[BaseRoute]:
    """The card at its well-known path, with ETag, Cache-Control and the time since when it is served."""
    since = format_datetime(datetime.now(UTC), usegmt=True)
    cache_control = f"public, max-age={max_age}"

    def dated(route: Route) -> Route:
        async def endpoint(request: Request) -> Response:
            response: Response = await route.endpoint(request)
            response.headers["Last-Modified"] = since
            return response

        return Route(route.path, endpoint, methods=["GET"])

    return [dated(route) for route in create_agent_card_routes(card, cache_control=cache_control)]


def _described(settings: AgentSettings, name: str) -> AgentCard:
    spec, is_demo = settings.agent, settings.agent == "demo"
    return AgentCard(
        name=name or ("a2a-gcs demo" if is_demo else spec),
        description=settings.description
        or ("Keeps a journal in its workspace, to show what persists." if is_demo else f"The agent {spec}."),
        version=version("a2a-gcs"),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=_skills(spec),
    )


def _skills(spec: str) -> list[AgentSkill]:
    if spec == "demo":
        from a2a_gcs.executors import demo  # noqa: PLC0415 - loaded only when asked for

        return demo.skills()
    return [AgentSkill(id="agent", name=spec, description=f"What {spec} does.", tags=["agent"])]
