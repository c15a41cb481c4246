"""Bars of a timeline: when the turns of tasks ran, and when they waited, on an axis without long gaps; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from a2a_gcs.console.history import Past

WIDTH = 1000.0
"""Of the axis, in units of the drawing."""

_LEAST = 6.0
_IDLE_SHARE = 0.3
"""Of the axis is left to all times together in which nothing ran, and each of them gets the same."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a task.

    Attributes:
        kind: It ran, or waited for somebody.
        left: Where it begins.
        width: How wide it is; never too narrow to be seen.
        seconds: How long it took.
    """

    kind: Literal["ran", "waited"]
    left: float
    width: float
    seconds: float


def bars(tasks: Sequence[Past], now: int) -> dict[str, list[Bar]]:
    """The bars of each task, by its id. `now` is in Unix milliseconds."""
    stretches = {task.id: _stretches(task, now) for task in tasks}
    at = _axis([(since, until) for some in stretches.values() for _, since, until in some])
    return {task_id: [_bar(at, *one) for one in some] for task_id, some in stretches.items()}


def _stretches(task: Past, now: int) -> list[tuple[Literal["ran", "waited"], int, int]]:
    ran = [(turn.since, turn.until or now) for turn in task.turns] or [(task.since, task.changed)]
    found: list[tuple[Literal["ran", "waited"], int, int]] = []
    for (since, until), (following, _) in pairwise([*ran, (task.changed if task.terminal else now, 0)]):
        found.append(("ran", since, max(since, until)))
        if following > until:
            found.append(("waited", until, following))
    return found


class _Axis:
    def __init__(self, marks: Sequence[tuple[int, float]]) -> None:
        self._marks = marks

    def __call__(self, moment: int) -> float:
        for (left, at), (right, upto) in pairwise(self._marks):
            if moment <= right:
                return at + (upto - at) * (moment - left) / max(1, right - left)
        return self._marks[-1][1]


def _axis(stretches: Sequence[tuple[int, int]]) -> _Axis:
    """Time within stretches is drawn to scale; the gaps between them are not."""
    busy: list[list[int]] = []
    for since, until in sorted(stretches):
        if busy and since <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], until)
        else:
            busy.append([since, until])
    gaps = max(0, len(busy) - 1)
    idle = _IDLE_SHARE * WIDTH / gaps if gaps else 0.0
    scale = (WIDTH - gaps * idle) / max(1, sum(until - since for since, until in busy))
    marks, at = [], 0.0
    for since, until in busy:
        marks.append((since, at))
        at += (until - since) * scale
        marks.append((until, at))
        at += idle
    return _Axis(marks or [(0, 0.0)])


def _bar(at: _Axis, kind: Literal["ran", "waited"], since: int, until: int) -> Bar:
    left = at(since)
    width = max(_LEAST, at(until) - left)
    return Bar(kind, round(min(left, WIDTH - width), 1), round(width, 1), (until - since) / 1000)
