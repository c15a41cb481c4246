"""Buckets: their settings, storage layout and IAM policy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fake_gcs import resources
from fake_gcs.api import ApiError, Call, Json, Reply, no_such_bucket
from fake_gcs.resources import PROJECT_NUMBER, shown_bucket
from fake_gcs.rules import bucket_config, listing, preconditions
from fake_gcs.rules.names import check_bucket_name
from fake_gcs.rules.preconditions import Version

if TYPE_CHECKING:
    from fake_gcs.state import State


def find(state: State, call: Call) -> Json:
    """Answers the bucket, if its metageneration is as the call wants it."""
    found = state.catalogue.bucket(call.bucket)
    if found is None:
        raise no_such_bucket()
    if state.rules["preconditions"]:
        number = int(found["metageneration"])
        preconditions.parse(call.params).check(Version(number, number))
    return found


async def insert(state: State, call: Call) -> Reply:
    wanted = await call.json()
    name = wanted.get("name")
    if not isinstance(name, str) or not name:
        raise ApiError(400, "required", "Required", location=("parameter", "name"))
    if state.rules["bucket_names"]:
        check_bucket_name(name)
    if state.catalogue.bucket(name) is not None:
        message = "Your previous request to create the named bucket succeeded and you already own it."
        raise ApiError(409, "conflict", message)
    bucket = resources.new_bucket(wanted, state.location, time.time())
    state.catalogue.put_bucket(bucket)
    return Reply(document=shown_bucket(bucket, call.base_url))


async def list_buckets(state: State, call: Call) -> Reply:
    found = state.catalogue.buckets(call.params.get("prefix", ""))
    query = listing.parse(call.params)
    page = listing.page(query, lambda start: ((one["name"], one) for one in found if one["name"] >= start))
    document: Json = {"kind": "storage#buckets"}
    if page.next_start is not None:
        document["nextPageToken"] = listing.token_of_start(page.next_start)
    if page.items:
        document["items"] = [shown_bucket(bucket, call.base_url) for bucket in page.items]
    return Reply(document=document)


async def get(state: State, call: Call) -> Reply:
    return Reply(document=shown_bucket(find(state, call), call.base_url))


async def change(state: State, call: Call) -> Reply:
    """Serves buckets.patch and buckets.update."""
    wanted = await call.json()
    bucket = find(state, call)
    if state.rules["bucket_config"]:
        now = resources.timestamp(time.time())
        apply = bucket_config.patched if call.operation == "buckets.patch" else bucket_config.replaced
        bucket = {
            **apply(bucket, wanted, now),
            "updated": now,
            "metageneration": str(int(bucket["metageneration"]) + 1),
        }
        state.catalogue.put_bucket(bucket)
    return Reply(document=shown_bucket(bucket, call.base_url))


async def delete(state: State, call: Call) -> Reply:
    find(state, call)
    if not state.catalogue.is_empty(call.bucket):
        raise ApiError(409, "conflict", "The bucket you tried to delete is not empty.")
    state.catalogue.delete_bucket(call.bucket)
    return Reply(204)


async def storage_layout(state: State, call: Call) -> Reply:
    bucket = find(state, call)
    return Reply(
        document={
            "kind": "storage#storageLayout",
            "bucket": bucket["name"],
            "location": bucket["location"],
            "locationType": bucket["locationType"],
            "hierarchicalNamespace": bucket.get("hierarchicalNamespace", {"enabled": False}),
        }
    )


async def get_policy(state: State, call: Call) -> Reply:
    find(state, call)
    return Reply(document=_shown_policy(call, state.catalogue.policy(call.bucket)))


async def set_policy(state: State, call: Call) -> Reply:
    wanted = await call.json()
    find(state, call)
    policy = {"version": wanted.get("version", 1), "bindings": wanted.get("bindings", [])}
    state.catalogue.put_policy(call.bucket, policy)
    return Reply(document=_shown_policy(call, policy))


async def test_permissions(state: State, call: Call) -> Reply:
    """Everything is permitted: nothing is authenticated."""
    find(state, call)
    asked = call.params.get("permissions")
    return Reply(document={"kind": "storage#testIamPermissionsResponse", **({"permissions": [asked]} if asked else {})})


async def service_account(_state: State, _call: Call) -> Reply:
    address = f"service-{PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
    return Reply(document={"kind": "storage#serviceAccount", "email_address": address})


def _shown_policy(call: Call, policy: Json | None) -> Json:
    policy = policy or {"version": 1, "bindings": []}
    return {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{call.bucket}", "etag": "CAE=", **policy}
