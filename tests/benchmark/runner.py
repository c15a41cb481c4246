"""Runs suites: rounds, progress, and what each suite finds; `python -m tests.benchmark --help`.

A suite is a module of `tests.benchmark.suites` with

    TITLE = "Short tasks"                     one line, a heading of RESULTS.md
    def run(bench: Bench) -> None             measures, and tells `bench`

Its docstring says how it measures, and is printed below the heading. A suite asks `bench.smoke` for how much it does:
a smoke run is for trying it, takes seconds, and its numbers mean nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import inspect
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.benchmark.measures import Aim, Results, Series, growths

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SEED = 20261
ROUNDS = 5
LINEAR = 1.1
"""Cost that grows with a fitted exponent up to this counts as linear: what is left is the noise of five rounds."""

SUITES = (
    "requests",
    "tasks",
    "streams",
    "histories",
    "hosts",
    "latency",
    "cancel",
    "recovery",
    "listing",
    "large_task",
    "workspaces",
    "starts",
    "memory",
    "gateway",
)


class Bench:
    """What a suite works with.

    Attributes:
        smoke: Whether this is only a try: one round, the smallest sizes.
        rounds: How many rounds to do: what is compared alternates within each.
        directory: An empty directory of the suite's own, removed afterwards.
        random: Numbers from a fixed seed, the same in each run.
        results: What was found so far.
    """

    def __init__(self, results, *, smoke, rounds, directory, console):
        self.results = results
        self.smoke = smoke
        self.rounds = 1 if smoke else rounds
        self.directory = directory
        self.random = random.Random(SEED)
        self._console = console

    def record(self, what, subject, value, unit, *, size=None, better="lower"):
        """Adds the value of one round. `better` is `higher` for rates."""
        try:
            series = self.results.of(what, subject, size)
        except KeyError:
            series = Series(what, subject, unit, size, better)
            self.results.series.append(series)
        assert (series.unit, series.better) == (unit, better)
        series.values.append(float(value))

    def median(self, what, subject, size=None):
        """Of what was recorded; KeyError if nothing was."""
        return self.results.of(what, subject, size).median

    def ratio(self, what, subject, other, size=None):
        """The median of one subject over that of another."""
        return self.median(what, subject, size) / self.median(what, other, size)

    def aim(self, statement, actual, *, at_least=None, at_most=None, unit=""):
        """Holds what was measured against a bound. Missing it fails nothing: the report tells."""
        bound = at_most if at_least is None else at_least
        self.results.aims.append(Aim(statement, float(actual), float(bound), at_least is not None, unit))

    def note(self, text):
        """What a reader has to know to read the numbers; in full sentences."""
        self.results.notes.append(text)

    def alternate(self, subjects, what="", *, rounds=None):
        """Yields every subject once a round, in turn, and shows how far it is; odd rounds in reverse.

        `rounds` are fewer than the suite's, for what takes minutes.
        """
        subjects, count = list(subjects), min(self.rounds, rounds or self.rounds)
        order = [one for n in range(count) for one in (reversed(subjects) if n % 2 else subjects)]
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            bar = progress.add_task(what or self.results.suite, total=len(order))
            for one in order:
                yield one
                progress.advance(bar)

    def _growth_aims(self):
        for (what, subject), exponent in growths(self.results).items():
            if subject.startswith("a2a-gcs"):
                self.aim(f"Growth of {what} ({subject}), fitted exponent", exponent, at_most=LINEAR)


def run_suite(name, *, smoke=False, rounds=ROUNDS, console=None):
    """Runs one suite and answers its Results; in a smoke run nothing is compared with anything."""
    module = importlib.import_module(f"tests.benchmark.suites.{name}")
    results = Results(name, module.TITLE, inspect.getdoc(module) or "")
    console = console or Console(stderr=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"a2a-gcs-bench-{name}-") as directory:
        bench = Bench(results, smoke=smoke, rounds=rounds, directory=Path(directory), console=console)
        module.run(bench)
        bench._growth_aims()
    results.run = _circumstances(name, bench.rounds, time.monotonic() - began)
    return results


def save(results):
    """Keeps what a suite found beside the report that is made of it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{results.suite}.json"
    path.write_text(json.dumps(results.to_json(), indent=1, ensure_ascii=False) + "\n")


def load_all():
    """The kept results of all suites, in the order of SUITES."""
    kept = [RESULTS / f"{name}.json" for name in SUITES]
    return [Results.from_json(json.loads(path.read_text())) for path in kept if path.exists()]


def _circumstances(name, rounds, seconds):
    return {
        "commit": _git("rev-parse", "--short=12", "HEAD") + ("+" if _git("status", "--porcelain", "service") else ""),
        "command": f"make bench-{name}",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "rounds": str(rounds),
        "seconds": f"{seconds:.0f}",
    }


def _git(*arguments):
    with contextlib.suppress(OSError):
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=HERE).stdout.strip()
    return ""


def print_results(results, file=sys.stdout):
    """The numbers of a suite, as plain text."""
    print(f"\n{results.title}  ({results.run.get('seconds', '?')} s)", file=file)
    width = max((len(f"{one.what} {one.subject}") for one in results.series), default=0)
    for one in results.series:
        size = "" if one.size is None else f"{one.size:12,.0f}"
        print(
            f"  {one.what + ' ' + one.subject:{width}} {size:12} {one.median:14,.4g} {one.unit} ±{one.spread:.0%}",
            file=file,
        )
    for aim in results.aims:
        sign = "≥" if aim.at_least else "≤"
        word = "met   " if aim.met else "MISSED"
        print(f"  {word} {aim.statement}: {aim.actual:.4g} {sign} {aim.bound:.4g} {aim.unit}", file=file)
    for note in results.notes:
        print(f"  note: {note}", file=file)
