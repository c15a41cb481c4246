"""Which agent an RPC is for, as gRPC has no paths: the beginning of the request's tenant, or metadata, tells.

A2A 1.0 has `AgentInterface.tenant` for what a client has to put into every request; a card
of one agent among several names the agent's path there. A tenant of the caller's own
follows after a `/`. 0.3 has no tenant, so there the metadata `a2a-agent` names the
path; 1.0 takes it too, and then the tenant is the caller's alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any, NamedTuple

from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message as Proto

from a2a_gcs.host.checked import CheckedHandler
from a2a_gcs.host.grpc.servicers import Context, Service03, Service10

AGENT_METADATA = "a2a-agent"


class ServedAgent(NamedTuple):
    """An agent to serve over gRPC.

    Attributes:
        path: Names it; empty for the only one.
        handler: Answers, as it does over HTTP.
        card: The agent card, which 0.3 asks for over gRPC.
    """

    path: str
    handler: CheckedHandler
    card: AgentCard


class NoSuchAgent(LookupError):
    """The request names no agent of this host."""


def addressed(paths: Collection[str], tenant: str, named: list[str]) -> tuple[str, str]:
    """The path of the agent that a request is for, and what is left of its tenant.

    Args:
        paths: The agents' paths, without slashes around; only the empty one where there is one agent.
        tenant: Of the request.
        named: Values of the metadata `a2a-agent`.

    Raises:
        NoSuchAgent: Neither names an agent, or the metadata names two.
    """
    if named:
        path = named[0].strip("/")
        if path not in paths or len(set(named)) > 1:
            raise NoSuchAgent(path)
        return path, tenant
    if "" in paths:
        return "", tenant
    parts = tenant.split("/")
    for length in range(len(parts), 0, -1):  # the longest path first: /a/b is not the tenant b of /a
        if (path := "/".join(parts[:length])) in paths:
            return path, "/".join(parts[length:])
    raise NoSuchAgent(tenant)


def by_agent(service: ServiceDescriptor, servicers: Mapping[str, Service10 | Service03]) -> Any:
    """A servicer that hands each RPC to the one of its agent.

    Args:
        service: What is served.
        servicers: One for each agent, by path.
    """
    paths = {path.strip("/"): servicer for path, servicer in servicers.items()}
    methods = {m.name: (_streaming if m.server_streaming else _unary)(m.name, paths) for m in service.methods}
    return type("ByAgent", (), {name: staticmethod(method) for name, method in methods.items()})()


def _unary(name: str, servicers: Mapping[str, Service10 | Service03]) -> Callable[[Proto, Context], Any]:
    async def method(request: Proto, context: Context) -> Any:
        servicer = await _chosen(request, context, servicers)
        return await getattr(servicer, name)(request, context)

    return method


def _streaming(name: str, servicers: Mapping[str, Service10 | Service03]) -> Callable[[Proto, Context], Any]:
    async def method(request: Proto, context: Context) -> AsyncIterator[Any]:
        servicer = await _chosen(request, context, servicers)
        async with contextlib.aclosing(getattr(servicer, name)(request, context)) as items:
            async for item in items:
                yield item

    return method


async def _chosen(
    request: Proto, context: Context, servicers: Mapping[str, Service10 | Service03]
) -> Service10 | Service03:
    """The servicer of the agent; what it then sees of the tenant is the caller's own."""
    named = [str(value) for key, value in context.invocation_metadata() or () if key.lower() == AGENT_METADATA]
    tenant = getattr(request, "tenant", "")
    try:
        path, rest = addressed(servicers, tenant, named)
    except NoSuchAgent:
        await next(iter(servicers.values())).abort_context(
            TaskNotFoundError(
                "not found: the request's tenant has to begin as the agent's card says, or the metadata "
                f"{AGENT_METADATA} to name the agent's path"
            ),
            context,
        )
        raise AssertionError("abort has raised") from None
    if rest != tenant:
        request.tenant = rest  # type: ignore[attr-defined]  # only 1.0's requests have one to be changed
    return servicers[path]
