"""What a console is made over, handed in by the host, and the visit of one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import DefaultServerCallContextBuilder
from starlette.requests import Request

from a2a_gcs.console.measures import HostFacts
from a2a_gcs.errors import A2AGcsError
from a2a_gcs.layout import decode_segment, encode_segment
from a2a_gcs.objectstore.port import ObjectStore

PATH = "/console"


class Missing(A2AGcsError):
    """There is no such page, task, context or file here; the text says which."""


@dataclass(frozen=True)
class ConsoleAgent:
    """An agent whose tasks the console shows.

    Attributes:
        name: Its name; empty where it is the only one.
        title: What its card calls it.
        handler: Answers requests, as for every binding.
        store_of: The store below the root of a call. Raises InvalidId.
        root_of: That root.
    """

    name: str
    title: str
    handler: RequestHandler
    store_of: Callable[[ServerCallContext], ObjectStore]
    root_of: Callable[[ServerCallContext], str]


@dataclass(frozen=True)
class Site:
    """One host's console.

    Attributes:
        agents: Its agents.
        facts: What the host page shows to who may see this root.
        hosts: Names in a Host header that are ours; None for any. Keeps pages of other sites out, whose name they let
            resolve to this machine.
        translated: The A2A error for an error of this package.
        signs_in: People sign in with a bearer token, which a cookie then stands for.
    """

    agents: Sequence[ConsoleAgent]
    facts: Callable[[str], Awaitable[HostFacts]]
    translated: Callable[[A2AGcsError], Exception]
    hosts: frozenset[str] | None = None
    signs_in: bool = False


@dataclass(frozen=True)
class Visit:
    """A request to one agent's pages, below one root.

    Attributes:
        site: The console.
        request: The request.
        agent: Whose pages.
        tenant: Of which tenant; empty for none.
        base: Where these pages begin, without a `/` at the end.
    """

    site: Site
    request: Request
    agent: ConsoleAgent
    tenant: str
    base: str

    @classmethod
    def of(cls, site: Site, request: Request) -> Visit:
        """Raises Missing where there is no such agent, or where a name is none: what is asked of it is no other's."""
        given = request.path_params
        named = {scope: _decoded(given[scope]) for scope in ("agent", "tenant") if scope in given}
        if "" in named.values():
            raise Missing("there is no such agent or tenant on this host")
        name, tenant = named.get("agent", ""), named.get("tenant", "")
        agent = next((one for one in site.agents if one.name == name), None)
        if agent is None:
            raise Missing("there is no such agent on this host")
        return cls(site, request, agent, tenant, base_of(name, tenant))

    @property
    def context(self) -> ServerCallContext:
        """A fresh call context, as the HTTP bindings build it."""
        context = DefaultServerCallContextBuilder().build(self.request)
        context.tenant = self.tenant
        return context

    @property
    def store(self) -> ObjectStore:
        """What is stored for this caller."""
        return self.agent.store_of(self.context)

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; bytes that are no UTF-8, as in file names, stay as surrogates."""
        raw = self.request.scope["query_string"].decode("latin-1")
        return dict(parse_qsl(raw, keep_blank_values=True, errors="surrogateescape"))

    def id_in_path(self, name: str) -> str:
        """An id from the path. Raises Missing for what is none."""
        if value := _decoded(self.request.path_params[name]):
            return value
        raise Missing(f"this is no id of a {name}")

    def number(self, name: str, otherwise: int = 0) -> int:
        """A small number from the query."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise  # noqa: PLR2004

    # ------------------------------------------------------------------ addresses

    def context_url(self, context_id: str) -> str:
        return f"{self.base}/contexts/{segment(context_id)}"

    def task_url(self, task_id: str, *more: str) -> str:
        return "/".join((f"{self.base}/tasks/{segment(task_id)}", *more))

    def file_url(self, task_id: str, kind: str, path: str) -> str:
        return f"{self.task_url(task_id, kind)}?path={quote(path, safe='/', errors='surrogateescape')}"


def base_of(agent: str, tenant: str) -> str:
    """Where the pages of an agent begin."""
    parts = (("agents", agent), ("tenants", tenant))
    return PATH + "".join(f"/{kind}/{segment(value)}" for kind, value in parts if value)


def segment(value: str) -> str:
    """An id as one segment of an address, whatever is in it."""
    return quote(encode_segment(value))


def _decoded(value: Any) -> str:
    return (decode_segment(value) or "") if isinstance(value, str) else ""
