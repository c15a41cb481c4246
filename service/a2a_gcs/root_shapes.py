"""Which roots a host reaches, and whether a bucket holds data below others (ARCHITECTURE, *Who may call*).

A root has up to three parts: an agent, a tenant, an owner. Hosting several agents and
authenticating callers decide on two of them for every call; a tenant is up to the call.
So a change of either setting makes what is below the roots of before invisible.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import NamedTuple

from a2a_gcs.layout import AGENTS, CONTEXTS_PREFIX, POINTERS_PREFIX, TENANTS, USERS, first_after, root_above
from a2a_gcs.objectstore.port import ObjectStore

MOST_NAMES = 8
"""Agents, and tenants of each, that are looked below: a setting that changed concerns all of them."""


class RootShape(NamedTuple):
    """The kinds of parts that a root is made of."""

    agent: bool
    tenant: bool
    owner: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(itertools.compress((AGENTS, TENANTS, USERS), self))

    def reached_by(self, hosting: Hosting) -> bool:
        return self.agent == hosting.several_agents and self.owner == hosting.authenticated


@dataclass(frozen=True, slots=True)
class Hosting:
    """What decides on the roots of a host.

    Attributes:
        several_agents: Each agent has a root of its own.
        authenticated: So has each caller.
    """

    several_agents: bool
    authenticated: bool

    @property
    def root(self) -> str:
        """Where everything is kept, for people."""
        parts = ["agents/<agent>/"] * self.several_agents + ["users/<owner>/"] * self.authenticated
        return "".join(parts) or "the bucket's prefix itself"

    def moved(self, root: str) -> str:
        """Where a host would see what is below `root`; what only people know stands in brackets."""
        parts = root.split("/")
        named = dict(zip(parts[::2], parts[1::2], strict=False))
        wanted = [(AGENTS, "<agent>")] if self.several_agents else []
        wanted += [(TENANTS, named[TENANTS])] if TENANTS in named else []
        wanted += [(USERS, "<owner>")] if self.authenticated else []
        return "/".join(f"{kind}/{named.get(kind, unknown)}" for kind, unknown in wanted) or "/"


def unreached(hosting: Hosting) -> tuple[RootShape, ...]:
    """The shapes of all roots that no call to such a host can have; data below them could not be seen."""
    every = (RootShape(*parts) for parts in itertools.product((False, True), repeat=3))
    return tuple(shape for shape in every if not shape.reached_by(hosting))


class Elsewhere(NamedTuple):
    """Data that a host could not see.

    Attributes:
        prefix: What was listed to find it.
        root: The root that it is below.
    """

    prefix: str
    root: str


class Survey:
    """Looks for data below roots: at most a few hundred list requests, and four in a bucket without agents or tenants.

    Args:
        bucket: The bucket at its prefix.
    """

    def __init__(self, bucket: ObjectStore) -> None:
        self._bucket = bucket
        self._names: dict[str, list[str]] = {}

    async def elsewhere(self, hosting: Hosting) -> Elsewhere | None:
        """Some data that such a host could not see, or None.

        Raises:
            StoreError: The bucket could not be read.
        """
        for shape in unreached(hosting):
            if found := await self._below(shape):
                return found
        return None

    async def _below(self, shape: RootShape) -> Elsewhere | None:
        """Data right below a root of this very shape."""
        roots = [""]
        for kind in shape.kinds:
            if kind == USERS:
                break
            prefixes = [f"{above}{kind}/" for above in roots]
            named = await asyncio.gather(*(self._named(prefix) for prefix in prefixes))
            roots = [f"{prefix}{n}/" for prefix, names in zip(prefixes, named, strict=True) for n in names]
        data = (f"{USERS}/",) if shape.owner else (CONTEXTS_PREFIX, POINTERS_PREFIX)
        places = [f"{root}{below}" for root in roots for below in data]
        pages = await asyncio.gather(*(self._bucket.list(place, limit=1) for place in places))
        for place, page in zip(places, pages, strict=True):
            if page.objects:
                return Elsewhere(place, root_above(page.objects[0].key))
        return None

    async def _named(self, prefix: str) -> list[str]:
        """The first names below a prefix, each found by one list request that skips what is below the one before."""
        if prefix not in self._names:
            names = self._names[prefix] = []
            start = ""
            while len(names) < MOST_NAMES:
                page = (await self._bucket.list(prefix, start=start, limit=1)).objects
                if not page:
                    break
                names.append(page[0].key.removeprefix(prefix).split("/")[0])
                start = first_after(f"{prefix}{names[-1]}/")
        return self._names[prefix]
