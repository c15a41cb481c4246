"""The pages for operators name what there is, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from a2a_gcs.claims import End
from a2a_gcs.host import errors
from a2a_gcs.records import TaskMeta

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "service" / "docs"
PAGES = [ROOT / "README.md", ROOT / "infra" / "README.md", *sorted(DOCS.glob("*.md"))]
LINKED = [*PAGES, ROOT / "tests" / "benchmark" / "RESULTS.md"]


def rows(page, header):
    """The first cells of the table whose header begins with this."""
    table = (DOCS / page).read_text().split(f"| {header} |")[1].split("\n\n")[0].splitlines()[2:]
    return [row.strip("| ").split("|")[0].strip() for row in table]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """To files of the repository, and to headings in them."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}, target


def test_every_metric_is_in_the_table():
    """By the name that it is made with, in the one module where all are made."""
    source = (ROOT / "service" / "a2a_gcs" / "telemetry.py").read_text()
    made = set(re.findall(r'"(a2a_gcs\.[a-z_.]+)"', source))
    assert len(made) > 10
    assert {row.strip("`") for row in rows("observability.md", "metric | kind | labels | tells")} == made


def test_every_end_of_a_turn_is_told():
    """The values of the label are those of the enumeration."""
    text = (DOCS / "observability.md").read_text()
    assert all(f"`{end.value}`" in text for end in End)


def test_every_metadata_name_of_a_task_is_in_the_table():
    """Somebody may read a bucket without us."""
    named = set(re.findall(r"`([a-z0-9-]+)`", " ".join(rows("bucket.md", "name | value"))))
    assert named == TaskMeta._NAMES


def test_the_example_of_costs_adds_up():
    """Requests and dollars of the table are what its rows say, at the prices above it."""
    table = (DOCS / "costs.md").read_text().split("| class A | class B | $ |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().replace(",", "") for cell in row.strip("|").split("|")] for row in table]
    *parts, total = [[float(cell or 0) for cell in row[2:]] for row in cells]
    for (a, b, dollars), row in zip(parts, cells, strict=False):
        if a or b:
            assert dollars == pytest.approx(a * 5e-6 + b * 0.4e-6, abs=0.006), row
    assert [sum(column) for column in zip(*parts, strict=True)] == pytest.approx(total)


@pytest.mark.parametrize(
    "reason", sorted(set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', Path(errors.__file__).read_text())))
)
def test_every_reason_of_a_refusal_is_told_somewhere(reason):
    """Who gets one can look it up."""
    assert any(reason in page.read_text() for page in PAGES)
