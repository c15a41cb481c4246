"""Where the product stands against what people would use instead: ratios, and what it is behind in. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tests.benchmark.measures import amount

OURS = "a2a-gcs"
PEERS = ("a2a-sdk", "a2akit", "fasta2a", "two puts", "tar czf", "tar | gzip -1", "tar | zstd -1", "restic")
"""How the subjects begin that somebody else made, or designed."""

REFERENCES = ("a2a-sdk, PostgreSQL", "a2a-sdk, in memory")
"""What tables divide by where a suite does not say: what people keep tasks in today; else its first peer."""

CHARTED = (
    ("tasks", "short tasks", None),
    ("streams", "streams of 200 chunks", None),
)
"""Suite, what, size: what the main chart shows."""

HEADLINES = (
    *CHARTED,
    ("tasks", "latency p50, open loop", None),
    ("streams", "between two events of a stream, p50", None),
)
"""And what the first table shows."""

LEVEL = 0.95
"""From here on two rates are level: what is between them is noise."""


def is_ours(series):
    return _begins(series, (OURS,))


def is_peer(series):
    return _begins(series, PEERS)


def _begins(series, names):
    return any(re.match(rf"{re.escape(name)}(?![\w-])", series.subject) for name in names)


def find(results, what, subject, size):
    """A series, or None."""
    try:
        return results.of(what, subject, size)
    except KeyError:
        return None


def reference(results):
    """The subject that the table of a suite divides by; empty if there is none."""
    there = dict.fromkeys(one.subject for one in results.series)
    peers = dict.fromkeys(one.subject for one in results.series if is_peer(one))
    return next((one for one in (results.reference, *REFERENCES, *peers) if one in there), "")


def advantage(ours, theirs):
    """How many times as good as theirs ours is: above 1 the product is ahead. None if that is no number."""
    more, less = (theirs, ours) if ours.better == "lower" else (ours, theirs)
    return more.median / less.median if less.median else None


def peers(found):
    """The peers that headlines are told against, in the order in which they were measured."""
    return list(dict.fromkeys(one.subject for some in _headlined(found) for one in some if is_peer(one)))


def headlines(found):
    """A row for each headline and store of ours: what, by which, and how many times as good as each peer."""
    columns = peers(found)
    rows = []
    for some in _headlined(found):
        theirs = {one.subject: one for one in some if is_peer(one)}
        for ours in filter(is_ours, some):
            factors = [advantage(ours, theirs[name]) if name in theirs else None for name in columns]
            if any(factors):
                rows.append((ours, factors))
    return rows


def _headlined(found):
    by_suite = {one.suite: one.series for one in found}
    for suite, what, size in HEADLINES:
        yield [one for one in by_suite.get(suite, []) if (one.what, one.size) == (what, size)]


def at_one_size(series):
    """Those of the largest size that most were measured at."""
    sizes = Counter(one.size for one in series)
    largest = max(sizes, key=lambda size: (sizes[size], size or 0))
    return [one for one in series if one.size == largest]


@dataclass(frozen=True)
class Behind:
    """Something that a peer does better.

    Attributes:
        title: Of the suite.
        what: What is done, with its size.
        pairs: Ours, and how many times as good it is as which peers.
        why: The reason, if the suite gives one.
    """

    title: str
    what: str
    pairs: list[str]
    why: str


def behind(found):
    """Everything, in all suites, in which the product is behind a peer, each at the size of `at_one_size`."""
    rows = []
    for results in found:
        for what in dict.fromkeys(one.what for one in results.series):
            some = at_one_size([one for one in results.series if one.what == what])
            size = some[0].size
            pairs = [text for ours in filter(is_ours, some) if (text := _lost(ours, filter(is_peer, some)))]
            if pairs:
                title = what if size is None else f"{what}, {amount(size)}"
                rows.append(Behind(results.title, title, pairs, results.reasons.get(what, "")))
    return rows


def _lost(ours, others):
    factors = [(advantage(ours, one), one.subject) for one in others]
    worse = [
        f"{amount(factor, digits=2)} of {name}" for factor, name in factors if factor is not None and factor < LEVEL
    ]
    return f"{ours.subject}: {'; '.join(worse)}" if worse else ""
