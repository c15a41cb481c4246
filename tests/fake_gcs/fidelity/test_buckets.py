"""Rules `bucket_config` and `bucket_names`."""

import pytest

from tests.fake_gcs.fidelity.api import reason

LIFECYCLE = {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 7, "matchesSuffix": [".events.json"]}}]}


@pytest.fixture
def path(api):
    """The bucket under test, with its settings put back afterwards."""
    path = f"/storage/v1/b/{api.bucket}"
    before = api.call("GET", path).json()
    yield path
    if api.kind == "real":
        kept = ("lifecycle", "softDeletePolicy", "versioning", "labels")
        api.call("PATCH", path, content={name: before.get(name) for name in kept})


@pytest.mark.parametrize(
    "change",
    [
        {"lifecycle": LIFECYCLE},
        {"softDeletePolicy": {"retentionDurationSeconds": "0"}},
        {"versioning": {"enabled": True}},
        {"labels": {"team": "a"}},
        {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "enforced"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_patch_is_stored(api, path, change):
    """A PATCH of a bucket's settings is read back."""
    assert api.call("PATCH", path, content=change).status_code == 200
    ((name, wanted),) = change.items()
    stored = api.call("GET", path).json()[name]
    if name == "iamConfiguration":
        assert stored["uniformBucketLevelAccess"]["enabled"] is True
        assert stored["publicAccessPrevention"] == "enforced"
    else:
        assert {key: stored[key] for key in wanted} == wanted


def test_patch_merges_and_null_removes(api, path):
    """A PATCH merges, null removes, and the metageneration grows with each."""
    first = api.call("PATCH", path, content={"labels": {"a": "1", "b": "2"}}).json()
    second = api.call("PATCH", path, content={"labels": {"b": None, "c": "3"}, "lifecycle": LIFECYCLE}).json()
    assert second["labels"] == {"a": "1", "c": "3"}
    assert int(second["metageneration"]) > int(first["metageneration"])
    third = api.call("PATCH", path, content={"lifecycle": None}).json()
    assert "lifecycle" not in third
    assert third["labels"] == {"a": "1", "c": "3"}


def test_other_metageneration_is_412(api, path):
    """A PATCH whose ifMetagenerationMatch is another one is 412 and changes nothing."""
    before = api.call("GET", path).json()
    other = int(before["metageneration"]) + 7
    response = api.call("PATCH", path, content={"labels": {"a": "1"}}, ifMetagenerationMatch=other)
    assert response.status_code == 412
    assert "labels" not in api.call("GET", path).json()


def test_soft_delete_is_on_by_default(api, path):
    """A new bucket keeps deleted objects for 7 days."""
    if api.kind == "real":
        pytest.skip("the bucket is not new")
    assert api.call("GET", path).json()["softDeletePolicy"]["retentionDurationSeconds"] == "604800"


def test_soft_delete_has_bounds(api, path):
    """Soft delete lasts 7 to 90 days, or is off."""
    change = {"softDeletePolicy": {"retentionDurationSeconds": "60"}}
    assert api.call("PATCH", path, content=change).status_code == 400


def test_storage_layout(api, path):
    """The storage layout says where the bucket is and whether it has a hierarchical namespace."""
    layout = api.call("GET", f"{path}/storageLayout").json()
    assert layout["kind"] == "storage#storageLayout"
    assert layout["bucket"] == api.bucket
    assert layout["locationType"] in {"region", "multi-region", "dual-region"}
    assert layout["location"]
    assert not layout.get("hierarchicalNamespace", {}).get("enabled")


def test_versions_are_kept(api, path):
    """With versioning on, an overwritten version can be listed and read by its generation."""
    api.call("PATCH", path, content={"versioning": {"enabled": True}})
    first, second = api.put(b"first"), api.put(b"second")
    assert api.read(generation=first["generation"]).content == b"first"
    assert api.read().content == b"second"
    listed = [item["generation"] for item in api.list(versions="true").json()["items"]]
    assert listed == [first["generation"], second["generation"]]
    assert api.names() == ["object"]


def test_unknown_bucket_is_404(api):
    """A bucket that does not exist is 404 notFound."""
    response = api.call("GET", f"/storage/v1/b/{api.bucket}-which-does-not-exist")
    assert response.status_code == 404
    assert reason(response) == "notFound"


def test_bucket_with_objects_stays(api, path):
    """Deleting a bucket that holds an object is 409."""
    api.put()
    assert api.call("DELETE", path).status_code == 409
    assert api.call("GET", path).status_code == 200


def test_bucket_exists_already(api):
    """Creating a bucket that exists is 409 conflict."""
    response = api.call("POST", "/storage/v1/b", content={"name": api.bucket}, project="p")
    assert response.status_code == 409
    assert reason(response) == "conflict"


@pytest.mark.parametrize("name", ["ab", "UPPER-case", "a" * 64, "-ab", "10.0.0.1", "goog-bucket", "my-google", "a..b"])
def test_forbidden_bucket_names(api, name):
    """What may not be a bucket's name is 400 invalid."""
    response = api.call("POST", "/storage/v1/b", content={"name": name}, project="p")
    assert response.status_code == 400
    assert reason(response) == "invalid"
