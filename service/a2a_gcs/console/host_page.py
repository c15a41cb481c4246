"""The host: who is alive, what runs for this caller, and what the bucket was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import Response

from a2a_gcs.console.measures import Histogram
from a2a_gcs.console.rendering import duration, page
from a2a_gcs.console.site import Visit


@dataclass(frozen=True, slots=True)
class Column:
    """One bar of a chart, in percent of the height of the drawing."""

    label: str
    value: int
    height: float


async def host(visit: Visit) -> Response:
    """The host page."""
    facts = await visit.site.facts()
    return page(
        visit,
        "host.html",
        facts=facts,
        latency=latency_columns(facts.latency) if facts.latency else [],
        errors=columns(sorted(facts.errors.items())),
    )


def latency_columns(found: Histogram) -> list[Column]:
    """Buckets of a histogram, each named by its upper bound. Pure."""
    names = [f"≤ {duration(bound)}" for bound in found.bounds] + [f"> {duration(found.bounds[-1])}"]
    return columns(list(zip(names, found.counts, strict=True)))


def columns(values: Sequence[tuple[str, int]] | Mapping[str, int]) -> list[Column]:
    """Bars, the tallest one over the whole height. Pure."""
    pairs = list(values.items()) if isinstance(values, Mapping) else list(values)
    most = max((value for _, value in pairs), default=0)
    return [Column(label, value, round(100 * value / most, 1) if most else 0.0) for label, value in pairs]
