"""What comments, docstrings and pages refer to is in the repository, so that whoever reads them can follow."""

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("fake_gcs", "infra", "service", "tests")
SUFFIXES = {".md", ".py", ".tf", ".toml", ".yaml"}
FILES = [
    path
    for path in sorted((*ROOT.glob("*.*"), *(found for folder in FOLDERS for found in (ROOT / folder).rglob("*"))))
    if path.suffix in SUFFIXES and not {".venv", ".terraform", "node_modules"} & set(path.parts)
]
PAGES = {path: path.read_text() for path in FILES if path.suffix == ".md"}

DOCUMENT = re.compile(r"\b([A-Z]{4,})(?:\.md\b|:? (?:section )?[0-9]+(?:\.[0-9]+)*\b|, \*)")
"""How a document is cited: its name in capitals, with a suffix, or the number or heading of a section."""
NO_DOCUMENTS = {"HTTP", "REST", "USER"}
"""Words that stand before a number and are something else."""
SECTION = re.compile(r"\b([\w-]+)(?:\.md)?, \*([A-Z][^*]+)\*")
PLACE = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./-]+\.(?:md|py|json|tf|yaml))\b")
DECISION = re.compile(r"\bdecisions? (\d{4})\b")
INVARIANT = re.compile(r"(?:\binvariant |\()(I\d)\b")
RULE = re.compile(r"\(rule \*(\w+)\*")


@functools.cache
def prose(path):
    """What a file says to its readers: of Python the comments and docstrings, of anything else all."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    said = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    alone = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    said += [one.value for one in alone if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return "\n".join(said)


def cited(pattern):
    """What a pattern finds, with the file that says it; this one has examples of its own."""
    found = [(path, match) for path in FILES if path != Path(__file__) for match in pattern.finditer(prose(path))]
    return [(str(path.relative_to(ROOT)), match) for path, match in found]


def headings(name):
    """The headings of all pages of a name."""
    texts = [text for path, text in PAGES.items() if path.stem == name]
    return [heading for text in texts for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("text", ["(DESIGN 5)", "of FACTS 1.2", "STYLE.md", "see REPORTS, *Faults*"])
def test_a_document_that_is_not_there_is_found(text):
    """In each form in which one may be cited."""
    assert DOCUMENT.search(text)[1] not in {path.stem for path in PAGES}


def test_every_document_is_in_the_repository():
    """A name in capitals that is cited is a page's."""
    known = {path.stem for path in PAGES} | NO_DOCUMENTS
    assert [(path, match[0]) for path, match in cited(DOCUMENT) if match[1] not in known] == []


def test_every_section_is_a_heading_of_its_page():
    """By the beginning of the heading."""
    names = {path.stem for path in PAGES}
    found = [(path, match) for path, match in cited(SECTION) if match[1] in names]
    assert len(found) > 10
    assert [
        (path, match[0]) for path, match in found if not any(h.startswith(match[2]) for h in headings(match[1]))
    ] == []


def test_every_file_is_there():
    """Where a path of the repository is named."""
    found = cited(PLACE)
    assert len(found) > 20
    assert [(path, match[1]) for path, match in found if not (ROOT / match[1]).exists()] == []


def test_every_decision_is_recorded():
    """By its number."""
    recorded = {path.name[:4] for path in PAGES if path.parent.name == "decisions"}
    assert [(path, match[0]) for path, match in cited(DECISION) if match[1] not in recorded] == []


def test_every_invariant_and_rule_of_the_protocol_can_be_looked_up():
    """Invariants in the table of ARCHITECTURE, rules in the tests that break without them."""
    told = (ROOT / "service" / "ARCHITECTURE.md").read_text()
    assert [(path, match[1]) for path, match in cited(INVARIANT) if f"| {match[1]} |" not in told] == []
    broken = "".join((ROOT / "tests" / name).read_text() for name in ("chaos/mutations.py", "support/replay.py"))
    assert [(path, match[1]) for path, match in cited(RULE) if f"*{match[1]}*" not in broken] == []
