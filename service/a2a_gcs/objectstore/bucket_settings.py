"""The settings that a bucket should have, and how one differs from them; pure.

The one place that says so: `a2a-gcs bucket apply` and `doctor` go by it, and infra/terraform
mirrors it, which a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rule = Mapping[str, Any]
"""A lifecycle rule as the JSON API has it."""

LEFTOVER_DAYS = 7
"""Age at which what a dead host left behind is removed; nothing reads it after a minute."""

JOURNAL_SUFFIX = ".events.json"
ENFORCED = "enforced"

JOURNAL_LEFTOVERS: Rule = {
    "action": {"type": "Delete"},
    "condition": {"age": LEFTOVER_DAYS, "matchesSuffix": [JOURNAL_SUFFIX]},
}
UPLOAD_LEFTOVERS: Rule = {
    "action": {"type": "AbortIncompleteMultipartUpload"},
    "condition": {"age": LEFTOVER_DAYS},
}
OLD_VERSIONS: Rule = {
    "action": {"type": "Delete"},
    "condition": {"daysSinceNoncurrentTime": LEFTOVER_DAYS},
}

MANAGED_BY = "managed-by"
"""Label that names who owns a bucket's settings: `terraform`, or `a2a-gcs` after `bucket apply`."""

US = "a2a-gcs"


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """What this project cares about of a bucket's settings.

    Attributes:
        uniform_access: Access is granted on the bucket alone, not object by object.
        public_access: `enforced` if nobody may make anything public.
        soft_delete_days: For how long deleted and overwritten objects are kept, and billed; 0 for not at all.
        versioning: Overwritten objects are kept as noncurrent versions.
        lifecycle: What is removed by itself.
    """

    uniform_access: bool = True
    public_access: str = ENFORCED
    soft_delete_days: float = 0
    versioning: bool = False
    lifecycle: Sequence[Rule] = field(default=(JOURNAL_LEFTOVERS, UPLOAD_LEFTOVERS))


def wanted(*, soft_delete_days: int = 0, versioning: bool = False) -> BucketSettings:
    """The settings to have.

    Raises:
        ValueError: Soft delete keeps 7 to 90 days, or is off with 0 (cloud.google.com/storage/docs/soft-delete).
    """
    if soft_delete_days and not 7 <= soft_delete_days <= 90:  # noqa: PLR2004 - the API's own bounds
        raise ValueError(f"soft delete keeps 7 to 90 days, or 0 for not at all, not {soft_delete_days}")
    rules = (JOURNAL_LEFTOVERS, UPLOAD_LEFTOVERS, *((OLD_VERSIONS,) if versioning else ()))
    return BucketSettings(soft_delete_days=soft_delete_days, versioning=versioning, lifecycle=rules)


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that is not as it should be, in words for people."""

    setting: str
    now: str
    wanted: str


def differences(now: BucketSettings, want: BucketSettings) -> list[Difference]:
    """What has to change, in a fixed order; empty for a bucket that is as it should be."""
    found = [
        Difference(name, _told(getattr(now, name)), _told(getattr(want, name)))
        for name in ("uniform_access", "public_access", "soft_delete_days", "versioning")
        if getattr(now, name) != getattr(want, name)
    ]
    missing, foreign = missing_rules(now, want), foreign_rules(now, want)
    found += [Difference("lifecycle", "no such rule", described(rule)) for rule in missing]
    found += [Difference("lifecycle", described(rule), "no such rule") for rule in foreign]
    return found


def keeping_foreign_rules(now: BucketSettings, want: BucketSettings) -> BucketSettings:
    """What to have where others keep objects in the bucket too: their lifecycle rules stay."""
    kept = [*want.lifecycle, *foreign_rules(now, want)]
    return BucketSettings(want.uniform_access, want.public_access, want.soft_delete_days, want.versioning, kept)


def missing_rules(now: BucketSettings, want: BucketSettings) -> list[Rule]:
    """Rules that have to be added."""
    there = {_canonical(rule) for rule in now.lifecycle}
    return [rule for rule in want.lifecycle if _canonical(rule) not in there]


def foreign_rules(now: BucketSettings, want: BucketSettings) -> list[Rule]:
    """Rules that somebody else has set."""
    ours = {_canonical(rule) for rule in want.lifecycle}
    return [rule for rule in now.lifecycle if _canonical(rule) not in ours]


def described(rule: Rule) -> str:
    """A rule in words."""
    condition = dict(rule["condition"])
    age, suffixes = condition.pop("age", None), condition.pop("matchesSuffix", ())
    what = " and ".join(f"*{suffix}" for suffix in suffixes)
    parts = [rule["action"]["type"], *([what] if what else []), *([f"after {age} days"] if age is not None else [])]
    return " ".join([*parts, *([json.dumps(condition, sort_keys=True)] if condition else [])])


def _canonical(rule: Rule) -> str:
    return json.dumps({"action": dict(rule["action"]), "condition": dict(rule["condition"])}, sort_keys=True)


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
