"""How suites are run: rounds, aims, and what is kept of them."""

import importlib
import inspect
import io
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tests.benchmark import environments, runner
from tests.benchmark.__main__ import main, try_together
from tests.benchmark.measures import Results
from tests.support import postgres

ROOT = Path(__file__).parents[2]
FOLDER = sorted(path.stem for path in (runner.HERE / "suites").glob("[a-z]*.py"))


@pytest.fixture
def suite(monkeypatch):
    """Makes a suite of a function."""

    def make(run, **names):
        module = types.ModuleType("tests.benchmark.suites.made", doc="It measures\n    nothing.")
        vars(module).update(TITLE="Made", run=run, **names)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return "made"

    return make


def run_suite(name, **options):
    return runner.run_suite(name, console=Console(file=io.StringIO()), **options)


def test_subjects_take_turns_and_odd_rounds_go_backwards(suite):
    """So that what warms up or tires favours none."""
    order = []
    results = run_suite(suite(lambda bench: order.extend(bench.alternate("abc"))), rounds=3)
    assert "".join(order) == "abccbaabc"
    assert results.run["rounds"] == "3"
    assert results.run["command"] == "make bench-made ARGS='--rounds 3'"


def test_a_smoke_run_is_one_round(suite):
    """Whatever was asked for; the suite sees that it is one."""
    seen = []

    def run(bench):
        seen.append((bench.smoke, list(bench.alternate("ab"))))

    run_suite(suite(run), smoke=True, rounds=5)
    assert seen == [(True, ["a", "b"])]


def test_each_round_is_a_value_of_its_series(suite):
    """In the order in which they came; the same thing by others or at other sizes is another series."""

    def run(bench):
        for number, who in enumerate(bench.alternate(["a", "b"])):
            bench.record("put", who, number, "s", size=10)
            bench.record("put", who, 100 + number, "s", size=20)

    results = run_suite(suite(run), rounds=2)
    assert results.of("put", "a", 10).values == [0, 3]
    assert results.of("put", "b", 20).values == [101, 102]
    with pytest.raises(KeyError):
        results.of("put", "a")


def test_only_the_product_is_held_to_linear_growth(suite):
    """Each cost of it that was measured at three sizes, against the bound that counts as linear."""

    def run(bench):
        for size in (1, 10, 100):
            bench.record("put", "a2a-gcs, memory", size, "s", size=size)
            bench.record("get", "a2a-gcs, memory", size**1.5, "s", size=size)
            bench.record("put", "a2a-sdk, SQLite", size**2, "s", size=size)

    aims = run_suite(suite(run), rounds=1).aims
    assert [(aim.statement, round(aim.actual, 3), aim.met) for aim in aims] == [
        ("Growth of put (a2a-gcs, memory), fitted exponent", 1, True),
        ("Growth of get (a2a-gcs, memory), fitted exponent", 1.5, False),
    ]


def test_what_a_suite_tells_is_in_its_results(suite, monkeypatch, tmp_path):
    """And the same after it was kept and read again."""

    def run(bench):
        bench.record("put", "a2a-gcs, memory", 1, "puts/s", better="higher")
        bench.record("put", "a2a-sdk, SQLite", 2, "puts/s", better="higher")
        ratio = bench.ratio("put", "a2a-gcs, memory", "a2a-sdk, SQLite")
        bench.aim("Puts", ratio, at_least=1, unit="times", why="Slow.")
        bench.aim("Puts", ratio, at_most=0)
        bench.note("A note.")
        bench.reason("put", "A reason.")
        (bench.directory / "left").write_text("over")

    results = run_suite(suite(run, REFERENCE="a2a-sdk, SQLite"), rounds=1)
    assert (results.title, results.about, results.reference) == ("Made", "It measures\nnothing.", "a2a-sdk, SQLite")
    assert [(aim.actual, aim.bound, aim.at_least, aim.why) for aim in results.aims] == [
        (0.5, 1, True, "Slow."),
        (0.5, 0, False, ""),
    ]
    assert (results.notes, results.reasons) == (["A note."], {"put": "A reason."})

    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(runner, "SUITES", ("other", "made"))
    runner.save(results)
    assert runner.load_all() == [results]
    assert set(results.run) == {"commit", "command", "date", "machine", "peers", "rounds", "seconds"}


def test_numbers_by_chance_are_the_same_in_each_run(suite):
    """They come from a fixed seed."""
    drawn = []
    name = suite(lambda bench: drawn.append(bench.random.random()))
    run_suite(name)
    run_suite(name)
    assert drawn[0] == drawn[1]


def test_a_unit_cannot_change_between_rounds(suite):
    """A series has one unit."""

    def run(bench):
        bench.record("put", "a", 1, "s")
        bench.record("put", "a", 1, "ms")

    with pytest.raises(AssertionError):
        run_suite(suite(run))


def test_the_suites_are_those_in_the_folder():
    """None is forgotten by `make bench`, and none is named that there is not."""
    assert sorted(runner.SUITES) == FOLDER


@pytest.mark.parametrize("name", FOLDER)
def test_a_suite_has_a_heading_and_says_how_it_measures(name):
    """Both are printed for readers; what it divides by is a string."""
    module = importlib.import_module(f"tests.benchmark.suites.{name}")
    assert module.TITLE.strip() == module.TITLE
    assert "\n" not in module.TITLE
    assert len(inspect.getdoc(module)) > 60
    assert callable(module.run)
    assert isinstance(getattr(module, "REFERENCE", ""), str)


def test_titles_differ():
    """They are headings, and links lead to them."""
    titles = [importlib.import_module(f"tests.benchmark.suites.{name}").TITLE for name in FOLDER]
    assert len(set(titles)) == len(titles)


def test_kept_results_can_be_read():
    """Those that RESULTS.md is made of."""
    for path in runner.RESULTS.glob("*.json"):
        assert Results.from_json(json.loads(path.read_text())).suite == path.stem


def test_reasons_are_given_for_what_is_measured():
    """By what was done, or by how an aim begins; what a run said itself goes before."""
    for results in runner.load_all():
        named = getattr(importlib.import_module(f"tests.benchmark.suites.{results.suite}"), "REASONS", {})
        known = [one.what for one in results.series] + [aim.statement for aim in results.aims]
        assert [key for key in named if not any(one.startswith(key) for one in known)] == []
        assert {key: results.reasons[key] for key in named} == dict(named)


def test_a_name_that_there_is_not_is_answered_with_those_that_there_are():
    """For `make bench-<name>`, as for the command."""
    command = [sys.executable, "-m", "tests.benchmark", "taks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 2
    assert "There is no suite 'taks'" in done.stderr
    assert all(name in done.stderr for name in runner.SUITES)


def test_what_is_missing_is_told_before_anything_runs(monkeypatch):
    """As tests that need it say, with how to get it; a single suite says so when it comes to it."""

    def programs():
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")

    monkeypatch.setattr(postgres, "programs", programs)
    monkeypatch.setattr(runner, "SUITES", ())
    command = typer.Typer()
    command.command()(main)
    done = CliRunner().invoke(command, ["--smoke"])
    assert done.exit_code == 2
    assert "PostgreSQL is not installed; on Debian: apt-get" in done.output


def test_a_peer_that_cannot_be_installed_is_told_by_name(suite, monkeypatch, tmp_path):
    """Without a traceback, after what pip has said."""
    monkeypatch.setattr(environments, "HOME", environments.REPOSITORY / ".venv" / tmp_path.name)
    monkeypatch.setattr(environments, "PEERS", {"peer": ["./there-is-none"]})
    monkeypatch.setattr(environments, "make", lambda directory, *wanted: subprocess.run(["false"], check=True))
    monkeypatch.setattr(runner, "SUITES", (suite(lambda bench: environments.python("peer")),))
    command = typer.Typer()
    command.command()(main)
    done = CliRunner().invoke(command, ["made", "--no-keep"])
    assert done.exit_code == 2
    assert "installing ./there-is-none, once, into .venv/" in done.output
    assert "./there-is-none could not be installed" in done.output
    assert "Traceback" not in done.output


def test_a_suite_that_fails_does_not_keep_others_from_running(suite, monkeypatch):
    """Its results of before stay; the status tells, and which it was."""
    done = []

    def fail(bench):
        raise ValueError("broken")

    failing = suite(fail)
    other = types.ModuleType("tests.benchmark.suites.other", doc="It measures.")
    vars(other).update(TITLE="Other", run=done.append)
    monkeypatch.setitem(sys.modules, other.__name__, other)
    monkeypatch.setattr(runner, "SUITES", (failing, "other"))
    command = typer.Typer()
    command.command()(main)
    found = CliRunner().invoke(command, [failing, "other", "--no-keep"])
    assert (found.exit_code, len(done)) == (1, 1)
    assert "ValueError: broken" in found.output
    assert "failed: made" in found.output


def test_suites_that_are_only_tried_are_tried_together(capsys):
    """What each says is printed in their order, and which of them failed is answered."""
    assert try_together(["starts-", "taks"], Console()) == ["starts-", "taks"]
    told = capsys.readouterr().out
    assert told.index("There is no suite 'starts_'") < told.index("There is no suite 'taks'")
