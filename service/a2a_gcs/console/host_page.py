"""The host: who is alive, what runs for this caller, and what the bucket was asked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.responses import Response

from a2a_gcs.console.measures import Measures
from a2a_gcs.console.rendering import duration, page, state_label
from a2a_gcs.console.site import Visit


@dataclass(frozen=True, slots=True)
class Row:
    """One bar of a chart; its length is in percent of the longest one."""

    label: str
    value: int
    length: float


async def host(visit: Visit) -> Response:
    """The host page."""
    facts = await visit.site.facts(visit.agent.root_of(visit.context))
    running = [task for one in facts.hosts for task in one.tasks]
    return page(
        visit, "host.html", facts=facts, running=running, charts=_charts(facts.measures) if facts.measures else []
    )


def _charts(found: Measures) -> list[tuple[str, str, list[Row]]]:
    """Title, kind and bars of each."""
    return [
        ("Storage calls, by how long they took", "ran", rows((_within(b), n) for b, n in found.latency)),
        ("Storage calls that failed, by error", "failed", rows(sorted(found.failures.items()))),
        ("Tasks, by the states that they came to", "ran", rows((state_label(s), n) for s, n in found.states.items())),
    ]


def _within(bound: float) -> str:
    return "longer" if math.isinf(bound) else f"up to {duration(bound)}"


def rows(values: Iterable[tuple[str, int]]) -> list[Row]:
    """Bars of a chart, the longest one over its whole width. Pure."""
    pairs = list(values)
    most = max((value for _, value in pairs), default=0)
    return [Row(label, value, round(100 * value / most, 1) if most else 0.0) for label, value in pairs]
