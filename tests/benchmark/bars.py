"""Charts of bars as SVG, on a ground of their own, so that they can be read on light and dark pages.

The same numbers give the same text to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

WIDTH = 760
"""Of a drawing: what a page of a repository shows without scaling."""

_EDGE, _TITLE, _HEAD, _ROW, _BAR, _GAP = 16, 36, 24, 24, 16, 14
_CHARACTER = 6.7
"""About as wide as one of the labels, at 12 pixels in what systems have as their own font."""

_LEAST = 1.5


@dataclass(frozen=True)
class Bar:
    """One value.

    Attributes:
        label: Whose it is.
        value: How long the bar is, in the unit of its panel.
        spread: Half the distance between the quartiles, as a fraction of the value.
        text: The value as people read it.
        ours: Whether it is the product's.
    """

    label: str
    value: float
    spread: float
    text: str
    ours: bool


@dataclass(frozen=True)
class Panel:
    """Bars to one scale, below a heading.

    Attributes:
        title: What was measured.
        hint: Its unit, and whether more or less is better.
        bars: From top to bottom.
    """

    title: str
    hint: str
    bars: list[Bar]


def draw(title, panels):
    """The text of an SVG file. The same in words, for who does not see it, is its description."""
    bars = [bar for panel in panels for bar in panel.bars]
    left = _EDGE + _CHARACTER * max((len(bar.label) for bar in bars), default=0) + 10
    room = WIDTH - _EDGE - left - _CHARACTER * max((len(bar.text) for bar in bars), default=0) - 10
    top, placed = _EDGE + _TITLE, []
    for panel in panels:
        placed.append(_place(panel, top, left, room))
        top += _HEAD + _ROW * len(panel.bars) + _GAP
    return _TEMPLATE.render(title=title, panels=placed, width=WIDTH, height=top + _EDGE - _GAP, edge=_EDGE)


def _place(panel, top, left, room):
    """Where a panel and its bars are, in pixels; whiskers reach as far as the spread."""
    longest = max((bar.value * (1 + bar.spread) for bar in panel.bars), default=0)
    rows = []
    for number, bar in enumerate(panel.bars):
        y = top + _HEAD + _ROW * number
        length = bar.value / longest * room if longest > 0 else 0
        ends = [length * (1 + sign * bar.spread) for sign in (-1, 1)]
        rows.append(
            {
                "label": bar.label,
                "text": bar.text,
                "kind": "ours" if bar.ours else "theirs",
                "x": _px(left),
                "y": _px(y),
                "width": _px(max(_LEAST, length)),
                "height": _BAR,
                "label_x": _px(left - 8),
                "text_x": _px(left + max(_LEAST, *ends) + 8),
                "base": _px(y + _BAR - 4),
                "whisker": [_px(left + max(0, end)) for end in ends] if bar.spread else None,
                "middle": _px(y + _BAR / 2),
            }
        )
    return {"title": panel.title, "hint": panel.hint, "y": _px(top + 10), "rows": rows}


def _px(number):
    return f"{number:.1f}".removesuffix(".0")


_TEMPLATE = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
).get_template("chart.svg")
