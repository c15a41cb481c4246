"""A store under the doctor: every check carried out, and what each came to."""

from __future__ import annotations

from a2a_gcs.doctor.access import ACCESS
from a2a_gcs.doctor.checks import examine
from a2a_gcs.doctor.patient import Patient
from a2a_gcs.doctor.records import RECORDS
from a2a_gcs.doctor.runtime import RUNTIME
from a2a_gcs.doctor.settings import SETTINGS
from a2a_gcs.doctor.surroundings import Surroundings
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.gcs_control import BucketControl
from a2a_gcs.root_shapes import Hosting

EVERY = (*ACCESS, *SETTINGS, *RUNTIME, *RECORDS)
ONE_AGENT = Hosting(several_agents=False, authenticated=False)


async def examined(store, uri="memory", *, control=None, hosting=ONE_AGENT, surroundings=None, fix=False):
    """Results by check."""
    patient = Patient(uri, store, control, hosting, surroundings or Surroundings({}))
    return {result.check.id: result async for result in examine(patient, EVERY, fix=fix)}


async def examined_bucket(name, **options):
    """The same of a bucket of the emulator that STORAGE_EMULATOR_HOST names."""
    uri = f"gs://{name}"
    async with open_store(uri, budget=5.0) as store:
        return await examined(store, uri, control=BucketControl(name), **options)


def found(results):
    """The checks that found something."""
    return {name for name, result in results.items() if result.findings}


def only(results, name):
    """The one finding there is, which is this check's, and says how to fix it."""
    assert found(results) == {name}, {n: r.findings for n, r in results.items() if r.findings}
    (finding,) = results[name].findings
    assert finding.fix
    return finding
