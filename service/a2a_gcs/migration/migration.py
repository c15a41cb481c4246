"""Writes what a source holds below a root, context by context; the source is never changed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from a2a_gcs.errors import InvalidId
from a2a_gcs.layout import root_of
from a2a_gcs.migration.context_move import ContextMove
from a2a_gcs.migration.outcome import ContextPlan, planned
from a2a_gcs.migration.report import MigrationRefused, Report, Step
from a2a_gcs.migration.source import Entry, Problem, Source
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.objectstore.prefix import PrefixStore

_AT_ONCE = 8


@dataclass
class Migration:
    """One migration.

    Args:
        source: What is read.
        bucket: Where it goes: the bucket at its prefix.
        root: The root below it; empty for the prefix itself.
        owner: Only the tasks of this owner of the source; None: of all.
        by_owner: Below the root, each owner of the source gets a root of its own, `users/<owner>`.
        step: Told of progress.
    """

    source: Source
    bucket: ObjectStore
    root: str = ""
    owner: str | None = None
    by_owner: bool = False
    step: Step = lambda doing, count: None  # noqa: ARG005 - nobody watches
    report: Report = field(default_factory=Report, init=False)

    async def plan(self) -> Sequence[ContextPlan]:
        """Reads all of the source and groups it; writes nothing.

        Raises:
            MigrationRefused: The source has tasks of several owners, who would see each other's.
            A2AGcsError: The source cannot be read.
        """
        groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        async for found in self.source.entries():
            self.step("listing", 1)
            if isinstance(found, Problem):
                self.report.problems.append(found)
                continue
            if self.owner not in {None, found.owner}:
                continue
            if self.by_owner and (why := _no_owner(found.owner)):
                self.report.problems.append(Problem(f"task {found.task_id}", why))
                continue
            self.report.tasks += 1
            self.report.minted += found.minted
            groups[found.owner, found.context_id].append(found)
        owners = sorted({owner for owner, _ in groups})
        if len(owners) > 1 and not self.by_owner:
            raise MigrationRefused(
                f"{self.source.name} holds tasks of {len(owners)} owners, who would see each other's below one root. "
                "--by-owner gives each a root of its own, users/<owner>; --owner takes the tasks of one"
            )
        self.report.contexts = len(groups)
        plans = [planned(self._root_of(owner), context, entries) for (owner, context), entries in groups.items()]
        return sorted(plans, key=lambda plan: (plan.root, plan.context_id))

    async def run(self, plans: Iterable[ContextPlan], *, dry: bool = False) -> Report:
        """Writes the contexts of a plan, some at a time, or with `dry` looks what that would do.

        Raises:
            A2AGcsError: Source or bucket failed: plan and run again.
        """
        waiting = iter(plans)
        failures: list[BaseException] = []

        async def work() -> None:
            for plan in waiting:
                if failures:
                    return
                try:
                    await self._move(plan, dry=dry).run()
                except BaseException as e:
                    failures.append(e)
                    raise

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)), return_exceptions=True)
        if failures:
            raise failures[0]
        return self.report

    def _move(self, plan: ContextPlan, *, dry: bool) -> ContextMove:
        store = PrefixStore(self.bucket, plan.root) if plan.root else self.bucket
        return ContextMove(self.source, store, plan, self.report, self.step, dry=dry)

    def _root_of(self, owner: str) -> str:
        parts = (self.root, root_of(owner=owner) if self.by_owner and owner else "")
        return "/".join(part for part in parts if part)


def _no_owner(name: str) -> str:
    """Why nobody can be called by a name here; nothing if somebody can, or the source names nobody."""
    try:
        root_of(owner=name)
    except InvalidId as e:
        return f"its owner cannot have a root: {e}"
    return ""
