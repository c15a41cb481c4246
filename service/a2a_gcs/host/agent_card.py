"""The agent card: what is really served, at the origin that clients see."""

from __future__ import annotations

from importlib.metadata import version

from a2a.server.agent_execution import AgentExecutor
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill

from a2a_gcs.executors import demo
from a2a_gcs.host.settings import AgentSettings


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
