"""What a migration has found and done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.migration.source import Problem

Step = Callable[[str, int], None]
"""Told of progress: what is being done, and by how many tasks it has come on."""


class MigrationRefused(A2AGcsError):
    """Nothing is written; the message says why, and what to do."""


@dataclass
class Report:
    """What was found and done, or would be.

    Attributes:
        contexts: Contexts of the source.
        tasks: Tasks of the source that can be read.
        moved: Tasks that were written, or would be.
        present: Tasks that were there already, from an earlier run.
        failed: Of the moved ones, those that became FAILED as nothing runs them any more.
        minted: Tasks of the source without a context, which got one of their own.
        workspaces: Workspaces that were copied, or would be; those of an earlier run are not counted.
        size: Their bytes.
        problems: What was not moved, and why.
    """

    contexts: int = 0
    tasks: int = 0
    moved: int = 0
    present: int = 0
    failed: int = 0
    minted: int = 0
    workspaces: int = 0
    size: int = 0
    problems: list[Problem] = field(default_factory=list)
