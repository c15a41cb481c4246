"""The tables of one suite: medians and spread, ratios to a reference, and how cost grows. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.benchmark import standing
from tests.benchmark.measures import amount, growths

TITLES = 2
"""How many columns say what was done, and by whom; the others are numbers."""


@dataclass(frozen=True)
class Table:
    """Texts, not yet escaped.

    Attributes:
        heads: Of its columns.
        rows: As many cells each.
    """

    heads: list[str]
    rows: list[list[str]]


def tables_of(results):
    """One for all that was done at no size, and one for all that was done at the same sizes, in their order."""
    whats = dict.fromkeys(one.what for one in results.series)
    by_sizes = [(tuple(_sizes(results, what)), what) for what in whats]
    plain = [what for sizes, what in by_sizes if sizes == (None,)]
    found = [_table(results, (None,), plain)] if plain else []
    sized = [pair for pair in by_sizes if pair[1] not in plain]
    for sizes, pairs in itertools.groupby(sized, key=lambda pair: pair[0]):
        found.append(_table(results, sizes, [what for _, what in pairs]))
    return found


def _sizes(results, what):
    return sorted({one.size for one in results.series if one.what == what}, key=lambda size: size or 0)


def _table(results, sizes, whats):
    exponents, reference = growths(results), standing.reference(results)
    heads = ["what", "by", *("median" if size is None else amount(size) for size in sizes)]
    rows, ratios, grown = [], [], []
    for what in whats:
        for subject in dict.fromkeys(one.subject for one in results.series if one.what == what):
            some = [standing.find(results, what, subject, size) for size in sizes]
            rows.append([what, subject, *map(_cell, some)])
            ratios.append(_ratio(results, reference, some))
            exponent = exponents.get((what, subject))
            grown.append("" if exponent is None else f"{exponent:.2f}")
    for head, column in ((f"÷ {reference}", ratios), ("exponent", grown)):
        if any(column):
            heads.append(head)
            rows = [[*row, cell] for row, cell in zip(rows, column, strict=True)]
    return Table(heads, rows)


def _cell(series):
    """A median, and its spread where there were several rounds."""
    if series is None:
        return ""
    spread = f" ±{series.spread:.0%}" if len(series.values) > 1 else ""
    return amount(series.median, series.unit) + spread


def _ratio(results, reference, some):
    """To the reference, at the largest size that both were measured at."""
    for series in reversed([one for one in some if one]):
        base = standing.find(results, series.what, reference, series.size)
        if base and base is not series and base.median:
            return amount(series.median / base.median, digits=2)
    return ""
