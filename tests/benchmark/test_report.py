"""What RESULTS.md and its charts say of results that are made up."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.benchmark import report, runner, standing
from tests.benchmark.bars import Bar, Panel, draw
from tests.benchmark.measures import Aim, Results, Series, amount

RUN = {
    "commit": "0123456789ab",
    "date": "2026-12-01",
    "machine": "2 cores",
    "peers": "a2a-sdk 1.3.0",
    "rounds": "5",
    "seconds": "61",
}
SVG = "{http://www.w3.org/2000/svg}"
AWKWARD = 'two puts, <"a" & b> | *c*'


def results(suite, title, series=(), aims=(), **more):
    run = {**RUN, "command": f"make bench-{suite}", **more.pop("run", {})}
    return Results(suite, title, f"How {suite} measures.", list(series), list(aims), run=run, **more)


def rates(what, size=None, unit="tasks/s", **medians):
    subjects = {"ours": "a2a-gcs, memory", "sdk": "a2a-sdk, PostgreSQL", "other": AWKWARD}
    return [
        Series(what, subjects[who], unit, size, "higher", [median * factor for factor in (0.9, 0.95, 1, 1.05, 1.1)])
        for who, median in medians.items()
    ]


@pytest.fixture
def tasks():
    return results(
        "tasks",
        "Short tasks",
        [
            *rates("short tasks", ours=1200, sdk=300, other=2400),
            Series("latency p50", "a2a-gcs, memory", "ms", None, "lower", [30]),
            Series("latency p50", "a2a-sdk, PostgreSQL", "ms", None, "lower", [10]),
        ],
        [
            Aim("Short tasks a | b, as `a|b`", 4.0, 4, at_least=True, unit="times", why="not to be seen"),
            Aim("Half of *memory*", 0.4996, 0.5, at_least=True, why="It writes <twice>."),
            Aim("Bytes", 3.002, 3, at_least=False),
        ],
        reasons={"short tasks": "Two <unconditional> writes | a task."},
        notes=["One note,\nover two lines."],
    )


@pytest.fixture
def growing():
    """A suite that measures at three sizes, and compares nothing."""
    costs = [
        Series("listing", "a2a-gcs, memory", "s", size, "lower", [size / 1000] * 3) for size in (100, 1000, 10_000)
    ]
    return results("listing", "ListTasks", costs, [Aim("Growth of listing", 1.0, 1.1, at_least=False)])


def rows(text, heading):
    """The cells of the first table below a heading."""
    table = text.split(f"\n{heading}\n", 1)[1].split("\n| ", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table]


def written(place, *found):
    report.write(list(found), place)
    return (place / "RESULTS.md").read_text("utf-8")


def part(text, title):
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_aim_is_told_as_met_or_missed(tasks, growing, tmp_path):
    """Missed ones first, with their reason; what was measured never reads as the bound unless it is."""
    text = written(tmp_path, tasks, growing)
    assert "2 of 4 are met." in text
    assert rows(text, "## Aims") == [
        [
            "**missed**",
            r"Half of \*memory\*. It writes \<twice\>.",
            "0.4996",
            "≥ 0.5000",
            "[Short tasks](#short-tasks)",
        ],
        ["**missed**", "Bytes", "3.002", "≤ 3", "[Short tasks](#short-tasks)"],
        ["met", r"Short tasks a \| b, as `a\|b`", "4 times", "≥ 4 times", "[Short tasks](#short-tasks)"],
        ["met", "Growth of listing", "1", "≤ 1.10", "[ListTasks](#listtasks)"],
    ]
    assert "not to be seen" not in text


def test_the_table_of_a_suite_has_medians_spreads_and_ratios(tasks, tmp_path):
    """To the peer that people use today, unless the suite names another one."""
    text = written(tmp_path, tasks)
    assert "| what | by | median | ÷ a2a-sdk, PostgreSQL |" in text
    assert rows(text, "## Short tasks") == [
        ["short tasks", "a2a-gcs, memory", "1,200 tasks/s ±5%", "4"],
        ["short tasks", "a2a-sdk, PostgreSQL", "300 tasks/s ±5%", ""],
        ["short tasks", r'two puts, \<"a" \& b\> \| \*c\*', "2,400 tasks/s ±5%", "8"],
        ["latency p50", "a2a-gcs, memory", "30 ms", "3"],
        ["latency p50", "a2a-sdk, PostgreSQL", "10 ms", ""],
    ]
    tasks.reference = "a2a-gcs, memory"
    assert "÷ a2a-gcs, memory" in part(written(tmp_path, tasks), "Short tasks")
    for one in tasks.series:
        one.subject = one.subject.replace("a2a-sdk, PostgreSQL", "tar czf")
    tasks.reference = "not measured"
    assert "÷ tar czf" in part(written(tmp_path, tasks), "Short tasks")


def test_sizes_stand_side_by_side_with_how_cost_grows(growing, tasks, tmp_path):
    """What was done at the same sizes in one table; the ratio is the one at the largest size that both did."""
    growing.series += [
        *(Series("listing", "a2a-sdk, PostgreSQL", "s", size, "lower", [size**2 / 10_000]) for size in (100, 1000)),
        *(Series("pages", "a2a-gcs, memory", "pages/s", size, "higher", [7]) for size in (100, 1000, 10_000)),
        Series("other", "a2a-gcs, memory", "s", 5, "lower", [1]),
    ]
    text = part(written(tmp_path, growing, tasks), "ListTasks")
    assert [line for line in text.splitlines() if line.startswith("| what")] == [
        "| what | by | 100 | 1,000 | 10,000 | ÷ a2a-sdk, PostgreSQL | exponent |",
        "| what | by | 5 |",
    ]
    assert "| listing | a2a-gcs, memory | 0.100 s ±0% | 1 s ±0% | 10 s ±0% | 0.010 | 1.00 |" in text
    assert "| listing | a2a-sdk, PostgreSQL | 1 s | 100 s |  |  |  |" in text
    assert "| pages | a2a-gcs, memory | 7 pages/s | 7 pages/s | 7 pages/s |  |  |" in text
    assert "| other | a2a-gcs, memory | 1 s |" in text
    assert "1 is linear" in text
    assert "1 is linear" not in part(written(tmp_path, growing, tasks), "Short tasks")


def test_what_a_suite_says_is_below_its_heading(tasks, tmp_path):
    """How it measures, what repeats it, its notes, a line each."""
    text = part(written(tmp_path, tasks), "Short tasks")
    assert "\nHow tasks measures.\n" in text
    assert "`make bench-tasks` took 61 s." in text
    assert "\n- One note, over two lines.\n" in text


def test_ratios_to_peers_say_who_is_ahead(tasks, tmp_path):
    """Of a rate and of a cost alike: above 1 it is the product; what it is behind in is told with its reason."""
    text = written(tmp_path, tasks)
    assert rows(text, "## Where we stand") == [["short tasks", "a2a-gcs, memory", "4", "**0.50**"]]
    behind = text.split("Behind, by more than the 5 % that count as level:")[1].split("\n\n")[1]
    assert "[Short tasks](#short-tasks): short tasks | a2a-gcs, memory: 0.50 of two puts," in behind
    assert r"Two \<unconditional\> writes \| a task." in behind
    assert "latency p50 | a2a-gcs, memory: 0.33 of a2a-sdk, PostgreSQL |" in behind
    assert "4 of" not in behind


@pytest.mark.parametrize(
    ("subject", "ours", "peer"),
    [
        ("a2a-gcs", True, False),
        ("a2a-gcs, gs://", True, False),
        ("a2a-gcs-like", False, False),
        ("a2a-sdk, SQLite", False, True),
        ("two puts, emulator", False, True),
        ("tar | gzip -1", False, True),
        ("the emulator by itself", False, False),
        ("target", False, False),
    ],
)
def test_who_made_what_is_told_by_how_it_is_named(subject, ours, peer):
    """The product, a peer, or neither: such as a limit that nobody can pass."""
    series = Series("put", subject, "s")
    assert (standing.is_ours(series), standing.is_peer(series)) == (ours, peer)


def test_what_is_behind_is_told_at_the_largest_size():
    """The largest that most were measured at, as in the charts; smaller ones are in the table."""
    some = [*rates("put", 10, ours=1, sdk=2), *rates("put", 20, ours=3, sdk=4), *rates("put", 40, ours=5)]
    assert [(one.what, one.pairs) for one in standing.behind([results("tasks", "Short tasks", some)])] == [
        ("put, 20", ["a2a-gcs, memory: 0.75 of a2a-sdk, PostgreSQL"])
    ]


def test_what_is_level_is_not_behind(tmp_path):
    """Noise is no news, and a suite without peers has nothing to be behind in."""
    level = results("tasks", "Short tasks", rates("short tasks", ours=96, sdk=100))
    assert "In nothing that was compared is the product behind a peer." in written(tmp_path, level)
    assert standing.behind([level]) == []


def test_the_report_says_where_and_how_it_was_made(tasks, growing, tmp_path):
    """Once, where it was the same for all."""
    text = written(tmp_path, tasks, growing)
    for line in (
        "| machine | 2 cores |",
        "| commit | 0123456789ab |",
        "| repeat it | `make bench-tasks bench-listing` |",
    ):
        assert line in text
    assert "did not run on one commit" not in text
    assert "commit" not in part(text, "Short tasks")


def test_suites_of_different_commits_say_so(tasks, growing, tmp_path):
    """At the top, and each below its heading; also that sources were changed."""
    growing.run |= {"commit": "ba9876543210+", "date": "2026-12-02"}
    text = written(tmp_path, tasks, growing)
    assert "- `0123456789ab`: Short tasks\n- `ba9876543210+`: ListTasks" in text
    assert "changes that were not committed" in text
    assert "took 61 s; commit 0123456789ab; date 2026-12-01." in part(text, "Short tasks")
    assert "took 61 s; commit ba9876543210+; date 2026-12-02." in part(text, "ListTasks")


def test_a_run_of_everything_is_repeated_by_one_command(tmp_path):
    """And one of some suites names the rest as not run."""
    everything = [results(name, name.title()) for name in runner.SUITES]
    text = written(tmp_path, *everything)
    assert "| repeat it | `make bench` |" in text
    assert "Not run yet" not in text
    assert f"Not run yet: {runner.SUITES[-1]}." in written(tmp_path, *everything[:-1])


def test_a_run_of_one_suite_changes_its_part_alone(tasks, growing, tmp_path):
    """What others have found stays as it is, to the letter, and so do their charts."""
    before = written(tmp_path, tasks, growing)
    charts = {path.name: path.read_text("utf-8") for path in (tmp_path / "charts").iterdir()}
    growing.series[0].values = [5.0]
    after = written(tmp_path, tasks, growing)
    assert part(before, "Short tasks") == part(after, "Short tasks")
    assert part(before, "ListTasks") != part(after, "ListTasks")
    changed = {path.name for path in (tmp_path / "charts").iterdir() if path.read_text("utf-8") != charts[path.name]}
    assert changed == {"listing.svg"}


def test_the_same_results_make_the_same_files(tasks, growing, tmp_path):
    """To the byte, wherever they are written."""
    for name in "ab":
        (tmp_path / name).mkdir()
        written(tmp_path / name, tasks, growing)
    files = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in "ab"
    ]
    assert files[0] == files[1]
    assert len(files[0]) == 4


def test_every_chart_that_is_shown_is_there_and_none_is_left_over(tasks, growing, tmp_path):
    """A suite without anything to compare has none."""
    charts = tmp_path / "charts"
    charts.mkdir()
    (charts / "gone.svg").write_text("<svg/>")
    text = written(tmp_path, tasks, growing, results("starts", "Starts", rates("start", ours=1)))
    shown = re.findall(r"!\[[^]]+\]\((\S+)\)", text)
    assert sorted(shown) == ["charts/listing.svg", "charts/main.svg", "charts/tasks.svg"]
    assert sorted(path.name for path in charts.iterdir()) == ["listing.svg", "main.svg", "tasks.svg"]


def test_a_report_of_nothing_is_no_failure(tmp_path):
    """As before the first run."""
    assert "0 of 0 are met." in written(tmp_path)


def test_a_chart_has_each_label_and_value_and_says_them_in_words(tasks, growing, tmp_path):
    """It is XML, with what must be escaped escaped; who does not see it is told the same."""
    written(tmp_path, tasks, growing)
    for name in ("tasks", "main"):
        svg = ET.fromstring((tmp_path / "charts" / f"{name}.svg").read_text("utf-8"))
        texts = ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]
        described = svg.find(f"{SVG}desc").text
        for expected in ("a2a-gcs, memory", "a2a-sdk, PostgreSQL", AWKWARD, "1,200 tasks/s", "2,400 tasks/s"):
            assert expected in texts
            assert expected in described
        assert svg.find(f"{SVG}title").text in texts
        assert svg.get("role") == "img"
        assert svg.get("aria-labelledby").split() == [svg.find(f"{SVG}{tag}").get("id") for tag in ("title", "desc")]
    sizes = ET.fromstring((tmp_path / "charts" / "listing.svg").read_text("utf-8"))
    assert {"100", "1,000", "10,000"} <= {"".join(text.itertext()) for text in sizes.iter(f"{SVG}text")}


def test_a_chart_shows_the_largest_size_at_which_most_were_measured(tmp_path):
    """Smaller ones are in the table, and so is a size that only one has reached."""
    some = [*rates("put", 10, ours=1, sdk=2), *rates("put", 20, ours=3, sdk=4), *rates("put", 40, ours=5)]
    written(tmp_path, results("tasks", "Short tasks", some))
    svg = (tmp_path / "charts" / "tasks.svg").read_text("utf-8")
    assert re.findall(r'class="head"[^>]*>([^<]*) <', svg) == ["put, 20"]
    assert re.findall(r">(\d) tasks/s<", svg) == ["3", "4"]


def bars(**values):
    return [Bar(label, value, 0.1, str(value), label == "ours") for label, value in values.items()]


def boxes(svg):
    return [rect for rect in ET.fromstring(svg).iter(f"{SVG}rect") if rect.get("class") != "ground"]


def test_bars_are_as_long_as_their_values():
    """Within a panel; each panel has a scale of its own."""
    made = boxes(draw("t", [Panel("p", "s", bars(ours=10, b=5, c=0)), Panel("q", "s", bars(d=1000))]))
    ours, b, c, d = (float(rect.get("width")) for rect in made)
    assert b == pytest.approx(ours / 2, abs=0.2)
    assert 0 < c < 2
    assert d == pytest.approx(ours, abs=0.2)
    assert [rect.get("class") for rect in made] == ["ours", "theirs", "theirs", "theirs"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text("abc<&\"' ", max_size=30), st.floats(0, 1e9), st.floats(0, 3)), max_size=6))
def test_nothing_is_drawn_outside_of_the_chart(values):
    """Neither bars and whiskers nor the text beside them, whatever the values and labels are."""
    made = [Bar(label, value, spread, amount(value), ours=False) for label, value, spread in values]
    svg = ET.fromstring(draw("t", [Panel("p", "s", made)]))
    width, height = float(svg.get("width")), float(svg.get("height"))
    for rect in svg.iter(f"{SVG}rect"):
        assert 0 <= float(rect.get("x")) <= float(rect.get("x")) + float(rect.get("width")) <= width
        assert 0 <= float(rect.get("y")) <= float(rect.get("y")) + float(rect.get("height")) <= height
    for line in svg.iter(f"{SVG}line"):
        assert 0 <= float(line.get("x1")) <= float(line.get("x2")) <= width
    for text in svg.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x")) <= width
        assert float(text.get("y")) <= height


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain, (text): 5 %", "plain, (text): 5 %"),
        ("a|b", r"a\|b"),
        ("two\n  lines", "two lines"),
        ("<b> & *c* _d_ ~e~ [f](g)", r"\<b\> \& \*c\* \_d\_ \~e\~ \[f\](g)"),
        ("`a|b <c> *d*` | e", r"`a\|b <c> *d*` \| e"),
        ("a ` b", r"a \` b"),
        ("a\\|b", r"a\\\|b"),
    ],
)
def test_markup_in_texts_is_escaped(text, escaped):
    """But for code, in which only what would end a cell is."""
    assert report.inline(text) == escaped


def test_the_results_that_are_kept_make_the_report_that_is_kept(tmp_path):
    """Nobody has written into it, and it was made anew with the last change of how it looks."""
    found = runner.load_all()
    written(tmp_path, *found)
    for path in (*tmp_path.rglob("*.svg"), tmp_path / "RESULTS.md"):
        assert (report.HERE / path.relative_to(tmp_path)).read_text("utf-8") == path.read_text("utf-8"), path.name
    assert {path.name for path in (report.HERE / "charts").iterdir()} == {
        path.name for path in (tmp_path / "charts").iterdir()
    }


def test_what_the_first_table_shows_was_measured():
    """Under the names that the suites record it by."""
    found = {one.suite: one for one in runner.load_all()}
    for suite, what, size in standing.HEADLINES:
        if suite in found:
            assert {one.what for one in found[suite].series if one.size == size} >= {what}
