"""The bucket's settings, each spoilt alone."""

import pytest

from a2a_gcs.doctor.settings import near
from a2a_gcs.doctor.surroundings import Surroundings
from a2a_gcs.objectstore import bucket_settings
from a2a_gcs.objectstore.gcs_bucket import client
from a2a_gcs.objectstore.gcs_control import BucketControl
from tests.support.doctor import examined_bucket, found, only


@pytest.fixture
def handle(name):
    """The bucket, to be changed behind everybody's back."""
    bucket = client().bucket(name)
    bucket.reload()
    return bucket


def public(bucket):
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"allUsers"}})
    bucket.set_iam_policy(policy)


def unprevented(bucket):
    bucket.iam_configuration.public_access_prevention = "inherited"
    bucket.patch()


def not_uniform(bucket):
    bucket.iam_configuration.uniform_bucket_level_access_enabled = False
    bucket.patch()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [(public, "anybody has roles/storage.objectViewer"), (unprevented, "not prevented"), (not_uniform, "not uniform")],
)
async def test_public_access(name, handle, spoil, says):
    """By the policy, or because nothing forbids it."""
    spoil(handle)
    assert says in only(await examined_bucket(name), "public-access").found


async def test_soft_delete_that_nobody_has_set_on_purpose(name, handle):
    """With what it costs; a bucket that somebody manages has it on purpose."""
    handle.soft_delete_policy.retention_duration_seconds = 7 * 86_400
    handle.patch()
    assert found(await examined_bucket(name)) == set()
    handle.labels = {}
    handle.patch()
    handle.blob("contexts/c/context.json").upload_from_string(b'{"contextId": "c"}' + b" " * (1 << 20))
    finding = only(await examined_bucket(name), "soft-delete")
    assert "for 7 days" in finding.found
    assert "0.000977 GiB more, at $ 0.00 a month" in finding.found


async def test_no_lifecycle_for_leftovers(name, handle):
    """--fix adds the rules, and leaves others alone."""
    handle.lifecycle_rules = [{"action": {"type": "Delete"}, "condition": {"age": 400, "matchesPrefix": ["other/"]}}]
    handle.patch()
    assert "Delete *.events.json after 7 days" in only(await examined_bucket(name), "lifecycle").found
    results = await examined_bucket(name, fix=True)
    assert results["lifecycle"].repaired == ["added 2 lifecycle rules"]
    rules = BucketControl(name).state().settings.lifecycle
    assert len(rules) == 3
    assert bucket_settings.UPLOAD_LEFTOVERS in rules
    assert found(await examined_bucket(name)) == set()


async def test_a_bucket_far_from_the_service(name):
    """Both are named."""
    results = await examined_bucket(name, surroundings=Surroundings({}, named_region="europe-west1"))
    finding = only(results, "location")
    assert ("US-CENTRAL1" in finding.found or "US" in finding.found, "europe-west1" in finding.found) == (True, True)


@pytest.mark.parametrize(
    ("bucket", "region", "close"),
    [
        ("US-CENTRAL1", "us-central1", True),
        ("US-CENTRAL1", "us-east1", False),
        ("EU", "europe-west4", True),
        ("EU", "us-central1", False),
        ("NAM4", "us-east1", True),
        ("NAM4", "us-west1", False),
        ("ASIA", "asia-northeast1", True),
    ],
)
def test_a_region_is_near_a_location_that_holds_it(bucket, region, close):
    """Regions, dual regions and multi-regions."""
    assert near(bucket, region) == close


@pytest.mark.parametrize("what", ["retention", "hold"])
async def test_what_forbids_overwriting(name, handle, what):
    """A retention policy, or a hold that new objects get: no task could change its state."""
    if what == "retention":
        handle.retention_period = 3600
    else:
        handle.default_event_based_hold = True
    handle.patch()
    finding = only(await examined_bucket(name), "retention")
    assert f"gs://{name} --clear-retention-period" in finding.fix
