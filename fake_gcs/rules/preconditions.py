"""Rule `preconditions`: generation and metageneration conditions, on every verb.

Source: JSON API reference, Objects (insert, get, delete, patch, compose, copy, rewrite) and
"Request preconditions" (cloud.google.com/storage/docs/request-preconditions). 0 stands for "no live
object". Where there is no live object every NotMatch condition fails, whatever its number. A miss
is 412 for a Match, and 304 for a NotMatch, which the documentation does not limit to reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fake_gcs.rules.problems import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping


class ConditionNotMet(Exception):
    """A precondition does not hold: 412."""


class NotModified(Exception):
    """A NotMatch condition does not hold: 304."""


@dataclass(frozen=True)
class Version:
    """The two numbers that conditions speak about; both 0 where there is no live object."""

    generation: int = 0
    metageneration: int = 0


ABSENT = Version()


@dataclass(frozen=True)
class Preconditions:
    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    def check(self, current: Version) -> None:
        """Returns if all conditions hold for the current version.

        Raises:
            ConditionNotMet: a Match condition does not hold.
            NotModified: only a NotMatch condition does not hold.
        """
        for wanted, actual in (
            (self.generation_match, current.generation),
            (self.metageneration_match, current.metageneration),
        ):
            if wanted is not None and wanted != actual:
                raise ConditionNotMet
        for unwanted, actual in (
            (self.generation_not_match, current.generation),
            (self.metageneration_not_match, current.metageneration),
        ):
            if unwanted is not None and actual in {0, unwanted}:
                raise NotModified


NONE = Preconditions()


def parse(params: Mapping[str, str], prefix: str = "if") -> Preconditions:
    """Reads the conditions from query parameters: `ifGenerationMatch` and so on, or `ifSource...`.

    Raises:
        Invalid: a value is not a number.
    """
    return Preconditions(
        _number(params, f"{prefix}GenerationMatch"),
        _number(params, f"{prefix}GenerationNotMatch"),
        _number(params, f"{prefix}MetagenerationMatch"),
        _number(params, f"{prefix}MetagenerationNotMatch"),
    )


_XML_HEADERS = {
    "x-goog-if-generation-match": "ifGenerationMatch",
    "x-goog-if-metageneration-match": "ifMetagenerationMatch",
}


def parse_xml(headers: Mapping[str, str]) -> Preconditions:
    """Reads the conditions from the headers of the XML API."""
    return parse({name: headers[header] for header, name in _XML_HEADERS.items() if header in headers})


def _number(params: Mapping[str, str], name: str) -> int | None:
    text = params.get(name)
    if text is None:
        return None
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()):
        raise Invalid(f"Invalid long value: '{text}'.", parameter=name)
    return int(text)
