"""Runs suites: rounds, progress, and what each suite finds; `python -m tests.benchmark --help`.

A suite is a module of `tests.benchmark.suites` with

    TITLE = "Short tasks"                     one line, a heading of RESULTS.md
    def run(bench: Bench) -> None             measures, and tells `bench`
    REASONS = {"short tasks": "..."}          why the product is behind in something, or misses an aim; if it is

Its docstring says how it measures, and is printed below the heading. REFERENCE may name the subject that the table
divides by; otherwise it is a peer. A suite asks `bench.smoke` for how much it does:
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
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.benchmark.environments import PEERS
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

    def aim(self, statement, actual, *, at_least=None, at_most=None, unit="", why=""):
        """Holds what was measured against a bound. Missing it fails nothing: the report tells, and `why` then."""
        bound = at_most if at_least is None else at_least
        self.results.aims.append(Aim(statement, float(actual), float(bound), at_least is not None, unit, why))

    def note(self, text):
        """What a reader has to know to read the numbers; in full sentences."""
        self.results.notes.append(text)

    def reason(self, what, text):
        """Why the product is behind a peer in this; the report prints it where it is."""
        self.results.reasons[what] = text

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
    results = Results(name, module.TITLE, inspect.getdoc(module) or "", reference=getattr(module, "REFERENCE", ""))
    console = console or Console(stderr=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"a2a-gcs-bench-{name}-") as directory:
        bench = Bench(results, smoke=smoke, rounds=rounds, directory=Path(directory), console=console)
        module.run(bench)
        bench._growth_aims()
    arguments = "" if rounds == ROUNDS else f" ARGS='--rounds {rounds}'"
    results.run = {
        **_circumstances(),
        "command": f"make bench-{name}{arguments}",
        "rounds": str(bench.rounds),
        "seconds": f"{time.monotonic() - began:.0f}",
    }
    return results


def save(results):
    """Keeps what a suite found beside the report that is made of it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{results.suite}.json"
    path.write_text(json.dumps(results.to_json(), indent=1, ensure_ascii=False) + "\n", "utf-8")


def load_all():
    """The kept results of all suites, in the order of SUITES, with the reasons that suites give for what they find."""
    kept = [RESULTS / f"{name}.json" for name in SUITES]
    return [_explained(Results.from_json(json.loads(path.read_text("utf-8")))) for path in kept if path.exists()]


def _explained(results):
    """A suite's REASONS lie by what was done, or by how the statement of an aim begins; what a run said goes before."""
    reasons = getattr(importlib.import_module(f"tests.benchmark.suites.{results.suite}"), "REASONS", {})
    results.reasons = {**reasons, **results.reasons}
    for aim in results.aims:
        aim.why = aim.why or next((why for start, why in reasons.items() if aim.statement.startswith(start)), "")
    return results


def _circumstances():
    changed = _git("status", "--porcelain", "--", "service", "fake_gcs", "tests/support", "tests/benchmark/*.py")
    return {
        "commit": (_git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if changed else ""),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": _machine(),
        "peers": ", ".join(re.sub(r"\[.*\]==", " ", wanted[0]).replace("==", " ") for wanted in PEERS.values()),
    }


def _machine():
    """What the numbers depend on, as far as the system tells."""
    told = [f"{os.cpu_count()} cores", platform.machine()]
    with contextlib.suppress(OSError):
        model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        told += [model[1].strip()] if model else []
    with contextlib.suppress(OSError, ValueError):
        told.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB")
    return ", ".join([*told, platform.system(), f"Python {platform.python_version()}"])


def _git(*arguments):
    """What git says of this repository; nothing where there is none."""
    with contextlib.suppress(OSError):
        command = ["git", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1]).stdout.strip()
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
