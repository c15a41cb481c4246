"""Listings: tables for people, a line of JSON an entry for programs; longer than the screen, they go to a pager."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from a2a_gcs.workspaces.differences import shown

Row = Sequence[str | Text]

_UNFOLDED = 100_000
"""Columns of what is no terminal: a line an entry, for grep and its likes."""

_STYLES = {
    "completed": "green",
    "failed": "red",
    "canceled": "magenta",
    "rejected": "red",
    "input-required": "yellow",
    "auth-required": "yellow",
}


def table(columns: Sequence[str], rows: Sequence[Row], *, right: Sequence[str] = ()) -> Table:
    """A table of plain text: what is not printable is escaped, so that stored content does nothing to a terminal.

    Args:
        columns: Their headings.
        rows: A cell for each column; only a Text is styled.
        right: Headings of columns of numbers.
    """
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row))
    return made


def state_text(name: str) -> Text:
    """A state such as TASK_STATE_INPUT_REQUIRED, as people write it."""
    word = name.removeprefix("TASK_STATE_").lower().replace("_", "-")
    return Text(shown(word), style=_STYLES.get(word, "cyan"))


def lines(text: str) -> Text:
    """Text of several lines, with all but the ends of its lines escaped."""
    return Text("\n".join(shown(line) for line in text.split("\n")))


def moment(millis: int) -> str:
    """Unix milliseconds as UTC, to the second; a dash where nothing is known."""
    try:
        return dt.datetime.fromtimestamp(millis / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if millis else "-"
    except (ValueError, OverflowError, OSError):
        return "-"


def print_json(entry: dict[str, Any]) -> None:
    """One entry as a line of JSON, in ASCII: that too does nothing to a terminal."""
    sys.stdout.write(json.dumps(entry) + "\n")


def print_paged(*parts: Table | Text | str) -> None:
    """Prints what a command has found, by way of a pager where it is longer than the terminal it goes to."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _UNFOLDED
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=not isinstance(part, Table))
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    if console.is_terminal and text.count("\n") >= console.height:
        click.echo_via_pager(text)
    else:
        sys.stdout.write(text)


@contextlib.contextmanager
def counting(doing: str) -> Iterator[Callable[[int], None]]:
    """A line on stderr that tells how much has been looked at, where somebody watches; call it with the count."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        row = progress.add_task(doing, total=None)
        yield lambda count: progress.update(row, completed=count)
