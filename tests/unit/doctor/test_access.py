"""Credentials, project, bucket and permissions, each taken away alone."""

import pytest

from a2a_gcs.doctor.surroundings import Surroundings
from a2a_gcs.objectstore.memory import MemoryStore
from fake_gcs.faults import Fault
from tests.support.doctor import examined, examined_bucket, found, only

PROJECT = "123456789012"
"""The emulator's, of every bucket."""


async def test_nothing_is_wrong_with_a_good_bucket(name):
    """And the probe leaves nothing behind."""
    results = await examined_bucket(name, surroundings=Surroundings({}, project=PROJECT, named_region="us-central1"))
    assert found(results) == set()
    assert {n for n, r in results.items() if r.not_checked} == {"billing"}
    assert found(await examined_bucket(name)) == set()


async def test_no_credentials(monkeypatch, tmp_path, emulator):
    """One finding, and all that needs the bucket is not checked."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    results = await examined_bucket("some-bucket")
    assert "gcloud auth application-default login" in only(results, "credentials").fix
    assert sum(result.not_checked is None for result in results.values()) == 1


@pytest.mark.parametrize("project", ["999", "another-project"])
async def test_the_wrong_project(name, project, emulator):
    """By number; by id it is told by the project's service agent, which here is the bucket's own."""
    results = await examined_bucket(name, surroundings=Surroundings({}, project=project))
    if project.isdecimal():
        assert f"belongs to project {PROJECT}, not to 999" in only(results, "project").found
    else:
        assert found(results) == set()
        assert results["project"].good


async def test_a_bucket_that_is_not_there(emulator):
    """With the command that creates it; nothing else can be checked."""
    results = await examined_bucket("no-such-bucket-here")
    assert "gcloud storage buckets create gs://no-such-bucket-here" in only(results, "bucket").fix
    assert sum(result.not_checked is None for result in results.values()) == 2


async def test_a_bucket_that_nobody_answers_for(monkeypatch, emulator):
    """One finding, in words for people."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    results = await examined_bucket("some-bucket")
    assert "cannot be reached (Connection refused)" in only(results, "bucket").found


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        ("may-create", Fault("status", operation="objects.insert", key="doctor/*", status=403, times=None)),
        ("may-overwrite", Fault("status", operation="objects.insert", key="doctor/*", status=403, nth=2)),
        ("may-read", Fault("status", operation="objects.get", key="doctor/*", status=403, times=None)),
        ("may-list", Fault("status", operation="objects.list", status=403)),
        ("may-delete", Fault("status", operation="objects.delete", key="doctor/*", status=403, times=None)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_each_permission_that_lacks(name, emulator, check, fault):
    """The store's own 403 for one verb: that verb is named, and the role that has it."""
    with emulator.faults(fault):
        results = await examined_bucket(name)
    finding = only(results, check)
    assert check.removeprefix("may-") in finding.found
    assert "roles/storage.objectUser" in finding.fix


async def test_settings_that_may_not_be_read_stop_no_other_check(name, emulator):
    """Who may use objects only: the settings are not checked, the permissions and the records are."""
    with emulator.faults(Fault("status", operation="buckets.get", status=403, times=None)):
        results = await examined_bucket(name)
    assert found(results) == set()
    assert "storage.buckets.get" in results["lifecycle"].not_checked
    assert results["may-create"].good
    assert results["unreadable-record"].good


async def test_conditional_writes_that_are_not_enforced(name, emulator):
    """An emulator without that rule lets two hosts overwrite each other."""
    with emulator.rules(preconditions=False):
        results = await examined_bucket(name)
    told = only(results, "conditional-writes").found
    assert "a create over an object that exists and an overwrite of another generation" in told


async def test_a_store_that_is_no_bucket_has_no_bucket_to_check():
    """Its objects are checked all the same."""
    results = await examined(MemoryStore(), "file:here")
    assert found(results) == set()
    assert results["bucket"].not_checked == "file:here is no bucket"
    assert results["conditional-writes"].good


async def test_a_bucket_that_is_not_there_is_found_once(emulator):
    """One check says how to create it; those that need it give the reason alone."""
    results = await examined_bucket("not-there")
    assert found(results) == {"bucket"}
    assert "gcloud storage buckets create gs://not-there" in results["bucket"].findings[0].fix
    reasons = {name: result.not_checked for name, result in results.items() if result.not_checked}
    assert {reasons[name] for name in ("soft-delete", "lifecycle", "may-read", "workspace-pin")} == {
        "there is no such bucket"
    }
