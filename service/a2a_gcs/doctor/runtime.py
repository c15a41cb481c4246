"""Checks of what runs over the bucket: this machine's clock, and how the service is billed."""

from __future__ import annotations

from collections.abc import Sequence

from a2a_gcs.doctor.checks import Check, Finding, NotChecked, Severity
from a2a_gcs.doctor.patient import Patient

_CLOCK_SECONDS = 60.0


async def clock(patient: Patient) -> Sequence[Finding]:
    ahead = (await patient.probe()).clock_ahead
    if ahead is None:
        raise NotChecked("no object could be read to compare the clocks by")
    if abs(ahead) <= _CLOCK_SECONDS:
        return []
    way = "ahead of" if ahead > 0 else "behind"
    return [
        Finding(
            f"this machine's clock is {abs(ahead):,.0f} s {way} the store's: tokens and signed URLs are refused, and "
            "tasks get wrong times. Leases do not depend on it",
            "set the clock by NTP",
        )
    ]


async def billing(patient: Patient) -> Sequence[Finding]:
    service = await patient.surroundings.run_service()
    containers = service.get("template", {}).get("containers", [])
    if not any(one.get("resources", {}).get("cpuIdle", False) for one in containers):
        return []
    name = str(service.get("name", "")).rpartition("/")[2]
    return [
        Finding(
            f"Cloud Run service {name} is billed by request, so that its CPU is taken away between requests: tasks "
            "that go on after their request (returnImmediately, a client that has left) stand still, and count as dead",
            f"gcloud run services update {name} --no-cpu-throttling",
        )
    ]


RUNTIME = (
    Check("clock", "the clock is right", Severity.ERROR, clock),
    Check("billing", "the CPU is there between requests", Severity.ERROR, billing),
)
