"""Checks of who we are and what we may: credentials, project, bucket, and the verbs that hosts need."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from a2a_gcs.doctor.checks import Check, Finding, Look, NotChecked, Severity
from a2a_gcs.doctor.patient import Patient
from a2a_gcs.objectstore.gcs_control import BucketMissing, ControlError, NoCredentials, NotAllowed

_NEEDS = {
    "create": "storage.objects.create",
    "read": "storage.objects.get",
    "list": "storage.objects.list",
    "overwrite": "storage.objects.delete, as overwriting removes what was there",
    "delete": "storage.objects.delete",
}


async def credentials(patient: Patient) -> Sequence[Finding]:
    error = await patient.control_error()
    if not isinstance(error, NoCredentials):
        return _for_buckets_only(patient)
    return [Finding("there are no credentials that could be used", str(error))]


async def bucket(patient: Patient) -> Sequence[Finding]:
    error = await patient.control_error()
    if error is None or isinstance(error, NotAllowed):
        return _for_buckets_only(patient)
    if isinstance(error, NoCredentials):
        raise NotChecked("there are no credentials")
    if isinstance(error, BucketMissing):
        what, _, todo = str(error).partition("; ")
        return [Finding(what, todo)]
    what, _, todo = str(error).rpartition("; ")
    return [Finding(f"the bucket cannot be reached: {what}", todo)]


async def project(patient: Patient) -> Sequence[Finding]:
    named = patient.surroundings.project
    state = await patient.state()
    if not named:
        raise NotChecked("no project is named: --project, or GOOGLE_CLOUD_PROJECT")
    try:
        number = await asyncio.to_thread(patient.bucket.project_number_of, named)
    except ControlError as e:
        raise NotChecked(f"the number of project {named} cannot be read: {e}") from e
    if number is None or number == state.project_number:
        return []
    return [
        Finding(
            f"bucket {patient.bucket.name} belongs to project {state.project_number}, not to {named} ({number})",
            "name the project's own bucket with --store, or set GOOGLE_CLOUD_PROJECT to the bucket's project",
        )
    ]


def may(verb: str) -> Look:
    """Whether the credentials may do something with objects."""

    async def look(patient: Patient) -> Sequence[Finding]:
        probe = await patient.probe()
        if verb not in probe.tried:
            raise NotChecked("no object could be created to try it on")
        if verb not in probe.denied:
            return []
        left = f"; delete {probe.key} later, which the check has left" if verb == "delete" else ""
        return [
            Finding(
                f"the credentials may not {verb} objects ({_NEEDS[verb]})",
                f"grant the service account roles/storage.objectUser on the bucket{left}",
            )
        ]

    return look


async def conditional_writes(patient: Patient) -> Sequence[Finding]:
    probe = await patient.probe()
    if probe.unconditional is None:
        raise NotChecked("no object could be overwritten to try it on")
    if not probe.unconditional:
        return []
    return [
        Finding(
            f"the store let through what it had to refuse: {' and '.join(probe.unconditional)}. "
            "Two hosts would overwrite each other",
            "use Cloud Storage itself, or an emulator that knows ifGenerationMatch (`python -m fake_gcs`, not --plain)",
        )
    ]


def _for_buckets_only(patient: Patient) -> Sequence[Finding]:
    assert patient.bucket  # raises NotChecked where the store is a directory
    return []


ACCESS = (
    Check("credentials", "there are credentials", Severity.ERROR, credentials),
    Check("bucket", "the bucket is there", Severity.ERROR, bucket),
    Check("project", "the bucket is the project's", Severity.ERROR, project),
    *(Check(f"may-{verb}", f"objects may be: {verb}", Severity.ERROR, may(verb)) for verb in _NEEDS),
    Check("conditional-writes", "conditional writes are enforced", Severity.ERROR, conditional_writes),
)
