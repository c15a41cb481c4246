"""What people should know about a snapshot that succeeded."""

from __future__ import annotations

from dataclasses import dataclass, field

from a2a_gcs.workspaces.errors import shown

_MAX_NOTES = 100


@dataclass(slots=True)
class Notes:
    """Remarks for people; the first hundred, and how many more there were."""

    _lines: list[str] = field(default_factory=list)
    _more: int = 0

    def add(self, path: bytes, remark: str) -> None:
        if len(self._lines) < _MAX_NOTES:
            self._lines.append(f"{shown(path)}: {remark}")
        else:
            self._more += 1

    def lines(self) -> tuple[str, ...]:
        return (*self._lines, *([f"and {self._more:,} more"] if self._more else []))
