"""What a check is, and carrying all of them out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from a2a_gcs.errors import A2AGcsError

if TYPE_CHECKING:
    from a2a_gcs.doctor.patient import Patient

MOST_SHOWN = 10
"""Findings of one check that are told one by one; a bucket may have the same fault a million times."""


class Severity(StrEnum):
    """How bad a finding is: with an error something does not work or is lost, with a warning it costs or may fail."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Attributes:
        found: What.
        fix: How to mend it.
        repair: Mends it and says what was done, where that is safe beside running hosts. Raises LeftAlone.
    """

    found: str
    fix: str
    repair: Callable[[], Awaitable[str]] | None = None


class LeftAlone(A2AGcsError):
    """A repair would do harm, or cannot be made; the reason says why."""


class NotChecked(Exception):
    """A check cannot be made; the reason says why."""


Look = Callable[["Patient"], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at.

    Attributes:
        id: Its name, for scripts.
        asks: What has to be so, for people.
        severity: Of what it finds.
        look: Finds; raises NotChecked where it cannot tell.
    """

    id: str
    asks: str
    severity: Severity
    look: Look


@dataclass(slots=True)
class Result:
    """What became of a check.

    Attributes:
        findings: What is wrong, the first of it.
        more: How much more of the same there is.
        not_checked: Why nobody knows; None if it was checked.
        repaired: What was done about findings.
        not_repaired: Why nothing could be done about others.
    """

    check: Check
    findings: Sequence[Finding] = ()
    more: int = 0
    not_checked: str | None = None
    repaired: list[str] = field(default_factory=list)
    not_repaired: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.findings and self.not_checked is None

    @property
    def mended(self) -> bool:
        """Nothing of what was found is left."""
        return len(self.repaired) == len(self.findings) + self.more

    async def repair(self, finding: Finding) -> None:
        """Mends a finding, if that can be, and keeps what was done."""
        if finding.repair is None:
            return
        try:
            self.repaired.append(await finding.repair())
        except A2AGcsError as e:
            self.not_repaired.append(str(e))


async def examine(patient: Patient, checks: Iterable[Check], *, fix: bool = False) -> AsyncIterator[Result]:
    """Carries out one check after the other; none depends on what another one found.

    Args:
        patient: What is looked at.
        checks: What to look for.
        fix: Repair what can be.
    """
    for check in checks:
        result = Result(check)
        try:
            found = await check.look(patient)
            result.findings, result.more = found[:MOST_SHOWN], max(0, len(found) - MOST_SHOWN)
            for one in found if fix else ():
                await result.repair(one)
        except NotChecked as e:
            result.not_checked = str(e)
        except A2AGcsError as e:
            result.not_checked = f"the store failed: {e}"
        yield result
