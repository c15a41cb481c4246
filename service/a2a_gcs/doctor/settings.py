"""Checks of the bucket's own settings. What they should be is in `objectstore.bucket_settings` alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from a2a_gcs.doctor.checks import Check, Finding, NotChecked, Severity
from a2a_gcs.doctor.inventory import Inventory
from a2a_gcs.doctor.patient import Patient
from a2a_gcs.objectstore.bucket_settings import (
    ENFORCED,
    MANAGED_BY,
    keeping_foreign_rules,
    missing_rules,
    wanted,
)
from a2a_gcs.objectstore.bucket_settings import described as told
from a2a_gcs.objectstore.gcs_control import ControlError

_DOLLARS_PER_GIB_MONTH = 0.02
"""Standard storage, us-central1 (service/docs/costs.md)."""

_DUAL_REGIONS = {
    "NAM4": ("us-central1", "us-east1"),
    "EUR4": ("europe-north1", "europe-west4"),
    "EUR5": ("europe-west1", "europe-west2"),
    "EUR7": ("europe-west2", "europe-west3"),
    "EUR8": ("europe-west3", "europe-west6"),
    "ASIA1": ("asia-northeast1", "asia-northeast2"),
}
_MULTI_REGIONS = {"US": "us-", "EU": "europe-", "ASIA": "asia-"}
"""By location of a bucket; cloud.google.com/storage/docs/locations."""


async def soft_delete(patient: Patient) -> Sequence[Finding]:
    state = await patient.state()
    days = state.settings.soft_delete_days
    if not days or MANAGED_BY in state.labels:  # whoever manages the bucket has set it on purpose
        return []
    gib, dollars = overwritten(await patient.inventory(), days)
    return [
        Finding(
            f"soft delete keeps what is overwritten for {days:g} days, and task.json and workspaces are overwritten "
            f"again and again: each rewrite of what is new keeps {gib:.3g} GiB more, at $ {dollars:.2f} a month",
            f"a2a-gcs bucket apply --store {patient.uri}; with --soft-delete-days {max(7, days):g} if it is meant",
        )
    ]


def overwritten(inventory: Inventory, days: float) -> tuple[float, float]:
    """GiB that one more overwriting of all that was written within so many days keeps, and its price a month."""
    gib = sum(size for day, size in inventory.written.items() if day < days) / 2**30
    return gib, gib * _DOLLARS_PER_GIB_MONTH


async def lifecycle(patient: Patient) -> Sequence[Finding]:
    state = await patient.state()
    missing = missing_rules(state.settings, wanted())
    if not missing:
        return []

    async def repair() -> str:
        now = await asyncio.to_thread(patient.bucket.state)
        change = keeping_foreign_rules(now.settings, wanted())
        await asyncio.to_thread(patient.bucket.add_rules, change.lifecycle, seen=now)
        return f"added {len(missing)} lifecycle rules"

    return [
        Finding(
            f"nothing removes what hosts that die leave behind: no lifecycle rule {'; '.join(map(told, missing))}",
            f"a2a-gcs bucket apply --store {patient.uri}",
            repair,
        )
    ]


async def public_access(patient: Patient) -> Sequence[Finding]:
    state = await patient.state()
    found = []
    if state.settings.public_access != ENFORCED:
        found.append("public access is not prevented")
    if not state.settings.uniform_access:
        found.append("single objects may be given away, as access is not uniform")
    try:
        roles = await asyncio.to_thread(patient.bucket.public_roles)
    except ControlError:  # who may not read the policy sees the rest
        roles = []
    found += [f"anybody has {role}" for role in roles]
    if not found:
        return []
    return [Finding(" and ".join(found), f"a2a-gcs bucket apply --store {patient.uri}")]


async def location(patient: Patient) -> Sequence[Finding]:
    state = await patient.state()
    region = await patient.surroundings.region()
    if region is None:
        raise NotChecked("nobody says where the service runs: --region")
    if near(state.location, region):
        return []
    return [
        Finding(
            f"the bucket is in {state.location} and the service in {region}: each of a task's round trips goes there "
            "and back, and leaving the region is billed",
            f"run the service where the bucket is, or keep the data in a bucket in {region}",
        )
    ]


def near(bucket: str, region: str) -> bool:
    """Whether a bucket's location is, or holds, a region."""
    place, region = bucket.upper(), region.lower()
    if place in _MULTI_REGIONS:
        return region.startswith(_MULTI_REGIONS[place])
    return region in _DUAL_REGIONS.get(place, (place.lower(),))


async def retention(patient: Patient) -> Sequence[Finding]:
    state = await patient.state()
    found = []
    if state.retention_seconds:
        found.append(f"a retention policy of {state.retention_seconds:,} s forbids overwriting what is younger")
    if state.holds_new_objects:
        found.append("new objects are under an event-based hold, which forbids overwriting them")
    if not found:
        return []
    flags = "--clear-retention-period --no-default-event-based-hold"
    fix = f"gcloud storage buckets update gs://{patient.bucket.name} {flags}; or use another bucket"
    return [Finding(f"{' and '.join(found)}: no task could change its state", fix)]


SETTINGS = (
    Check("soft-delete", "soft delete is set on purpose", Severity.WARNING, soft_delete),
    Check("lifecycle", "leftovers are removed", Severity.WARNING, lifecycle),
    Check("public-access", "nothing is public", Severity.ERROR, public_access),
    Check("location", "the bucket is where the service is", Severity.WARNING, location),
    Check("retention", "objects may be overwritten", Severity.ERROR, retention),
)
