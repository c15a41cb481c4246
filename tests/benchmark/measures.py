"""What a run of benchmarks found: values of each round, aims, and how cost grows with size. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field

THOUSAND = 1000
LEAST, MOST = 1e-6, 1e15
"""What is written out; beyond are powers of ten."""


@dataclass
class Series:
    """The values of one thing, one a round.

    Attributes:
        what: What was done: `short tasks`.
        subject: By whom: `a2a-gcs, memory`.
        unit: Of the values: `tasks/s`, `s`, `requests`.
        size: The size it was done at, for what is done at several; else None.
        better: `higher` or `lower`.
        values: One a round.
    """

    what: str
    subject: str
    unit: str
    size: float | None = None
    better: str = "lower"
    values: list[float] = field(default_factory=list)

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def spread(self):
        """Half the distance between the quartiles, as a fraction of the median; of under four rounds, all of it."""
        if len(self.values) < 2 or not self.median:
            return 0.0
        low, high = min(self.values), max(self.values)
        if len(self.values) >= 4:
            low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return (high - low) / 2 / abs(self.median)


@dataclass
class Aim:
    """A bound that the product sets itself, and what was measured.

    Attributes:
        statement: What is promised, in words, without the number.
        actual: What was measured.
        bound: The number it is held against.
        at_least: Whether the bound is a lower one.
        unit: Of both numbers.
        why: What keeps it from being met, for the report of a run that misses it.
    """

    statement: str
    actual: float
    bound: float
    at_least: bool
    unit: str = ""
    why: str = ""

    @property
    def met(self):
        return self.actual >= self.bound if self.at_least else self.actual <= self.bound


@dataclass
class Results:
    """All that one suite found in one run.

    Attributes:
        suite: Its name, as `make bench-<name>` has it.
        title: What it is about, in a line.
        about: How it measures, in sentences.
        series: Every series.
        aims: Every aim.
        notes: What a reader has to know to read the numbers.
        reasons: Why the product is behind a peer in something, if it is: by what was done.
        reference: The subject that others are divided by in the report; empty: a peer, if there is one.
        run: Where, when and how: `commit`, `command`, `date`, `machine`, `peers`, `rounds`, `seconds`.
    """

    suite: str
    title: str
    about: str
    series: list[Series] = field(default_factory=list)
    aims: list[Aim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    reference: str = ""
    run: dict[str, str] = field(default_factory=dict)

    def of(self, what, subject, size=None):
        """One series; KeyError if nothing was measured."""
        for one in self.series:
            if (one.what, one.subject, one.size) == (what, subject, size):
                return one
        raise KeyError((what, subject, size))

    def to_json(self):
        return asdict(self)

    @classmethod
    def from_json(cls, found):
        return cls(
            **{
                **found,
                "series": [Series(**one) for one in found["series"]],
                "aims": [Aim(**one) for one in found["aims"]],
            }
        )


def growth(points):
    """The exponent k of cost = c * size^k, fitted to (size, cost) pairs by least squares of the logarithms.

    None for fewer than three different sizes, or where a cost is not positive: 1 is linear, 2 is quadratic.
    """
    usable = [(math.log(size), math.log(cost)) for size, cost in points if size > 0 and cost > 0]
    if len(usable) != len(points) or len({x for x, _ in usable}) < 3:
        return None
    return statistics.linear_regression(*zip(*usable, strict=True)).slope


def growths(results):
    """(what, subject) to the fitted exponent of cost, of all costs that were measured at three sizes or more.

    Costs are what is better when lower: seconds, bytes, requests of the whole. Rates are left out.
    """
    found = {}
    for series in results.series:
        if series.size is not None and series.better == "lower":
            found.setdefault((series.what, series.subject), []).append((series.size, series.median))
    fitted = {key: growth(points) for key, points in found.items()}
    return {key: exponent for key, exponent in fitted.items() if exponent is not None}


def amount(value, unit="", digits=3):
    """A number for people: so many significant digits, thousands apart, with its unit; bytes as kB, MB and GB."""
    if not math.isfinite(value):
        return f"{value} {unit}".strip()
    if unit == "bytes":
        value, unit = _scaled(value)
    if value and not LEAST <= abs(value) < MOST:
        return f"{value:.{digits - 1}e} {unit}".strip()
    places = 0 if float(value).is_integer() else max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f} {unit}".strip()


def _scaled(count):
    for unit in ("bytes", "kB", "MB"):
        if abs(count) < THOUSAND:
            return count, unit
        count /= THOUSAND
    return count, "GB"
