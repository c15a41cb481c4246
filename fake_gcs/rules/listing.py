"""Rules `list_pages` and `list_glob`: which objects a page of a listing holds, and in which order.

Source: JSON API reference, Objects: list; glob syntax from "List objects using a glob pattern".
Order is that of the names' UTF-8 bytes, which is also Python's order of text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fake_gcs.rules.problems import Invalid

MAX_PAGE = 1000
_LAST = "\U0010ffff"

Item = TypeVar("Item")
Scan = Callable[[str], Iterable[tuple[str, Item]]]


@dataclass(frozen=True)
class Query:
    """What a listing asks for. start is inclusive, end exclusive ("" for none)."""

    prefix: str = ""
    delimiter: str = ""
    start: str = ""
    end: str = ""
    limit: int = MAX_PAGE
    trailing: bool = False
    glob: re.Pattern[str] | None = None


@dataclass
class Page(Generic[Item]):
    """One page. next_start is where the following one starts, None when there is none."""

    items: list[Item] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    next_start: str | None = None


def parse(params: Mapping[str, str], *, pages: bool = True, globs: bool = True) -> Query:
    """Reads a listing's parameters. pages=False knows no limit (rule list_pages off), globs=False no matchGlob.

    Raises:
        Invalid: maxResults, pageToken or matchGlob cannot be used.
    """
    start = params.get("startOffset", "")
    if "pageToken" in params:
        start = max(start, start_of_token(params["pageToken"]))
    glob = params.get("matchGlob") if globs else None
    return Query(
        prefix=params.get("prefix", ""),
        delimiter=params.get("delimiter", ""),
        start=start,
        end=params.get("endOffset", ""),
        limit=_limit(params) if pages else 2**62,
        trailing=params.get("includeTrailingDelimiter", "").lower() == "true",
        glob=translate_glob(glob) if glob else None,
    )


def page(query: Query, scan: Scan[Item]) -> Page[Item]:
    """Fills one page from scan(start), which yields (name, item) from start on, in order of names.

    All versions of one name stay on one page. Below a folded prefix the scan is started again
    behind it, so that a page costs what it shows.
    """
    found: Page[Item] = Page()
    position: str | None = max(query.start, query.prefix)
    while position is not None:
        position = _scan_to_fold(query, scan, position, found)
        if found.next_start is not None:
            break
    return found


def _scan_to_fold(query: Query, scan: Scan[Item], start: str, found: Page[Item]) -> str | None:
    """Adds items up to the first folded prefix, and answers where to go on, None at the end."""
    previous = None
    for name, item in scan(start):
        if not name.startswith(query.prefix) or (query.end and name >= query.end):
            return None
        if query.glob is not None and not query.glob.match(name):
            continue
        folded = _fold(name, query)
        full = len(found.items) + len(found.prefixes) >= query.limit
        if full and name != previous:
            found.next_start = name
            return None
        if folded is None or (query.trailing and folded == name):
            found.items.append(item)
            previous = name
        if folded is not None:
            found.prefixes.append(folded)
            return successor(folded)
    return None


def _fold(name: str, query: Query) -> str | None:
    if not query.delimiter:
        return None
    at = name.find(query.delimiter, len(query.prefix))
    return None if at < 0 else name[: at + len(query.delimiter)]


def successor(prefix: str) -> str | None:
    """Answers the first text that sorts after everything that starts with prefix, None if there is none."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    last = ord(kept[-1])
    return kept[:-1] + ("\ue000" if last == 0xD7FF else chr(last + 1))  # noqa: PLR2004 - surrogates are no text


def token_of_start(start: str) -> str:
    return base64.urlsafe_b64encode(start.encode()).decode()


def start_of_token(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise Invalid(f"Invalid page token: {token}", parameter="pageToken") from None


def _limit(params: Mapping[str, str]) -> int:
    text = params.get("maxResults")
    if text is None:
        return MAX_PAGE
    if not (text.isascii() and text.isdigit()):
        raise Invalid(f"Invalid unsigned integer value: '{text}'.", parameter="maxResults")
    return min(int(text), MAX_PAGE) or MAX_PAGE


_GLOB = re.compile(
    r"(?P<deep>\*\*)|(?P<star>\*)|(?P<one>\?)|(?P<set>\[[^\]]+\])|(?P<group>[{},])|(?P<text>.)", re.DOTALL
)


def translate_glob(glob: str) -> re.Pattern[str]:
    """Turns a matchGlob pattern into an expression that matches whole names.

    `*` and `?` stay within a path segment, `**` does not; `[a-z]`, `[!a]` and `{one,two}` as usual.

    Raises:
        Invalid: brackets or braces are not closed.
    """
    depth, parts = 0, []
    for token in _GLOB.finditer(glob):
        kind, text = token.lastgroup, token.group()
        if kind == "group":
            depth += {"{": 1, "}": -1}.get(text, 0)
            parts.append({"{": "(?:", "}": ")", ",": "|" if depth else ","}[text])
        elif kind == "set":
            inner = text[1:-1].replace("\\", r"\\")
            parts.append(f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]")
        else:
            parts.append({"deep": ".*", "star": "[^/]*", "one": "[^/]"}.get(kind or "", re.escape(text)))
        if depth < 0:
            break
    try:
        if depth != 0 or "[" in re.sub(r"\[[^\]]+\]", "", glob):
            raise re.error("unbalanced")
        return re.compile("".join(parts) + r"\Z", re.DOTALL)
    except re.error:
        raise Invalid(f"Invalid glob pattern: {glob}", parameter="matchGlob") from None
