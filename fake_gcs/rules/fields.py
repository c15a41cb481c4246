"""Rule `fields`: a partial response, selected by the `fields` parameter.

Source: cloud.google.com/storage/docs/json_api#partial-response. `a,b` selects members,
`a/b` and `a(b,c)` within, `*` anything; lists are selected from element by element.
"""

from __future__ import annotations

import re
from typing import Any

from fake_gcs.rules.problems import Invalid

Selection = dict[str, "Selection"]

_TOKEN = re.compile(r"[A-Za-z0-9_\-.$]+|[*(),/]")


def parse(fields: str) -> Selection:
    """Reads a `fields` expression. An empty selection below a member means all of it."""
    tokens = _TOKEN.findall(fields)
    if not tokens or "".join(tokens) != fields.replace(" ", ""):
        raise _unreadable(fields)
    try:
        selection, rest = _members(tokens)
    except IndexError:
        raise _unreadable(fields) from None
    if rest:
        raise _unreadable(fields)
    return selection


def _members(tokens: list[str]) -> tuple[Selection, list[str]]:
    selection: Selection = {}
    while True:
        name, tokens = tokens[0], tokens[1:]
        if name in {"(", ")", ",", "/"}:
            raise IndexError
        below: Selection = {}
        if tokens and tokens[0] == "/":
            below, tokens = _path(tokens[1:])
        elif tokens and tokens[0] == "(":
            below, tokens = _members(tokens[1:])
            if tokens[0] != ")":
                raise IndexError
            tokens = tokens[1:]
        selection[name] = below
        if not tokens or tokens[0] != ",":
            return selection, tokens
        tokens = tokens[1:]


def _path(tokens: list[str]) -> tuple[Selection, list[str]]:
    """Reads the one member that may follow a slash; a comma belongs to the level above."""
    end, depth = 0, 0
    while end < len(tokens) and (depth > 0 or tokens[end] not in {",", ")"}):
        depth += {"(": 1, ")": -1}.get(tokens[end], 0)
        end += 1
    below, rest = _members(tokens[:end])
    if rest:
        raise IndexError
    return below, tokens[end:]


def pick(document: Any, selection: Selection) -> Any:
    """Answers what a selection keeps of a JSON document."""
    if not selection:
        return document
    if isinstance(document, list):
        return [pick(element, selection) for element in document]
    if not isinstance(document, dict):
        return document
    if "*" in selection:
        return {name: pick(value, selection.get(name, selection["*"])) for name, value in document.items()}
    return {name: pick(value, selection[name]) for name, value in document.items() if name in selection}


def _unreadable(fields: str) -> Invalid:
    return Invalid(f"Invalid field selection {fields}", parameter="fields", reason="invalidParameter")
