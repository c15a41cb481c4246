"""RESULTS.md and its charts, out of the results that are kept.

Everything is made anew each time, of what each suite found last: so a run of one suite changes its own part alone.
`python -m tests.benchmark.report` does it without a run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tests.benchmark import standing
from tests.benchmark.bars import Bar, Panel, draw
from tests.benchmark.measures import amount, growths
from tests.benchmark.runner import LINEAR, SUITES, load_all
from tests.benchmark.standing import is_ours
from tests.benchmark.tables import TITLES, Table, tables_of

HERE = Path(__file__).parent
MOST_DIGITS = 12
MAIN = "main"
"""The chart that README shows."""


def write(found, place=HERE):
    """Makes RESULTS.md and charts/ at `place` of the Results of all suites; charts of earlier runs go."""
    charts = charts_of(found)
    directory = place / "charts"
    directory.mkdir(exist_ok=True)
    for old in directory.glob("*.svg"):
        if old.stem not in charts:
            old.unlink()
    for name, text in charts.items():
        (directory / f"{name}.svg").write_text(text, "utf-8")
    (place / "RESULTS.md").write_text(markdown(found, charts), "utf-8")


def charts_of(found):
    """The text of each chart, by its name: the main one, and one of each suite that compares anything."""
    panels = {MAIN: ("a2a-gcs and what else serves A2A agents", _main_panels(found))}
    panels |= {one.suite: (one.title, _panels(one)) for one in found}
    return {name: draw(title, some) for name, (title, some) in panels.items() if some}


def markdown(found, charts):
    """The text of RESULTS.md."""
    aims = [(results, aim) for results in found for aim in results.aims]
    run = _Run.of(found)
    return _TEMPLATE.render(
        run=run,
        charts=charts,
        main=MAIN,
        peers=standing.peers(found),
        standings=standing.headlines(found),
        behind=standing.behind(found),
        level=standing.LEVEL,
        aims=sorted(aims, key=lambda one: one[1].met),
        met=sum(aim.met for _, aim in aims),
        parts=[_Part.of(one, run) for one in found],
        missing=[name for name in SUITES if name not in {one.suite for one in found}],
        linear=LINEAR,
        titles=TITLES,
    )


@dataclass(frozen=True)
class _Run:
    """Under which circumstances the suites ran.

    Attributes:
        same: What was the same for all of them.
        differing: The names of what was not.
        command: What repeats all of it.
        commits: Each commit, with the suites that ran on it.
    """

    same: dict[str, str]
    differing: list[str]
    command: str
    commits: dict[str, list[str]]

    @classmethod
    def of(cls, found):
        names = ("commit", "date", "machine", "peers", "rounds")
        values = {name: {one.run.get(name, "") for one in found} for name in names}
        commits = {}
        for one in found:
            commits.setdefault(one.run.get("commit", ""), []).append(one.title)
        same = {name: next(iter(some)) for name, some in values.items() if len(some) == 1}
        differing = [name for name, some in values.items() if len(some) > 1]
        return cls(same, differing, _command(found), commits)


def _command(found):
    commands = [one.run.get("command", "") for one in found]
    if [f"make bench-{name}" for name in SUITES] == commands:
        return "make bench"
    plain = [one for one in commands if " " not in one.removeprefix("make ")]
    joined = ["make " + " ".join(one.removeprefix("make ") for one in plain)] if plain else []
    return "; ".join([*joined, *(one for one in commands if one not in plain)])


@dataclass(frozen=True)
class _Part:
    """What the report says of one suite.

    Attributes:
        results: What it found.
        circumstances: Those of its run that differ from other suites.
        tables: Its numbers.
        grows: Whether one of them has exponents.
    """

    results: object
    circumstances: dict[str, str]
    tables: list[Table]
    grows: bool

    @classmethod
    def of(cls, results, run):
        circumstances = {name: results.run.get(name, "") for name in run.differing}
        return cls(results, circumstances, tables_of(results), bool(growths(results)))


def _in_order(results):
    """Series by what was done, then by size: what is compared stands together."""
    whats = list(dict.fromkeys(one.what for one in results.series))
    return sorted(results.series, key=lambda one: (whats.index(one.what), one.size or 0))


def _main_panels(found):
    """What most people ask for first."""
    panels = []
    for suite, what, size in standing.CHARTED:
        some = [s for one in found if one.suite == suite for s in one.series if (s.what, s.size) == (what, size)]
        if len(some) > 1:
            panels.append(_panel(what, some, one_size=False))
    return panels


def _panels(results):
    """A panel for all that was done, at the largest size that most did it at; where only one did, one for all sizes."""
    panels = []
    for what in dict.fromkeys(one.what for one in results.series):
        some = [one for one in _in_order(results) if one.what == what]
        if len({one.subject for one in some}) == 1:
            panels.append(_panel(f"{what}, {some[0].subject}", some, one_size=False, sized=True))
            continue
        panels.append(_panel(what, standing.at_one_size(some), one_size=True))
    return [panel for panel in panels if len(panel.bars) > 1]


def _panel(what, some, *, one_size, sized=False):
    first = some[0]
    title = f"{what}, {amount(first.size)}" if one_size and first.size is not None else what
    bars = [
        Bar(
            amount(one.size) if sized and one.size is not None else one.subject,
            one.median,
            one.spread,
            amount(one.median, one.unit),
            is_ours(one),
        )
        for one in some
    ]
    return Panel(title, f"{first.unit}, {first.better} is better", bars)


def inline(text):
    """Text within a line of Markdown, or a cell of a table: nothing of it is markup but `code`."""
    return escaped(re.sub(r"\s+", " ", str(text)))


def escaped(text):
    """The same over several lines."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece.replace("|", r"\|") if n % 2 else re.sub(r"([\\`*_~<>&\[\]|])", r"\\\1", piece)
        for n, piece in enumerate(pieces)
    )


def anchor(title):
    """Of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")


def told(aim):
    """What was measured, and the bound, with as many digits as tell them apart."""
    digits = 3
    while digits < MOST_DIGITS and f"{aim.actual:.{digits - 1}e}" == f"{aim.bound:.{digits - 1}e}":
        digits += 1
    digits = 3 if aim.actual == aim.bound else digits
    texts = [amount(number, aim.unit, digits) for number in (aim.actual, aim.bound)]
    return texts[0], ("≥ " if aim.at_least else "≤ ") + texts[1]


def _environment():
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=False,  # Markdown is no HTML; `inline` escapes for it
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"inline": inline, "escaped": escaped, "anchor": anchor, "told": told, "amount": amount}
    return made


_TEMPLATE = _environment().get_template("RESULTS.md")


if __name__ == "__main__":
    write(load_all())
