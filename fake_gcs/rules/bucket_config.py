"""Rule `bucket_config`: a bucket's settings are stored and read back, by PATCH and PUT.

Source: JSON API reference, Buckets. A PATCH merges (RFC 7396: null removes); a PUT replaces
what may be written; soft delete keeps 7 to 90 days, or is off with 0
(cloud.google.com/storage/docs/soft-delete).
"""

from __future__ import annotations

from typing import Any

from fake_gcs.rules.problems import Invalid

Json = dict[str, Any]

WRITABLE = (
    "acl", "autoclass", "billing", "cors", "customPlacementConfig", "defaultEventBasedHold", "defaultObjectAcl",
    "encryption", "iamConfiguration", "ipFilter", "labels", "lifecycle", "logging", "retentionPolicy", "rpo",
    "softDeletePolicy", "storageClass", "versioning", "website",
)  # fmt: skip
SOFT_DELETE_DEFAULT_SECONDS = 7 * 86_400
SOFT_DELETE_MAX_SECONDS = 90 * 86_400


def merge(document: Json, patch: Json) -> Json:
    """Answers the document with a JSON merge patch applied (RFC 7396)."""
    merged = dict(document)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = merge(merged[name], value)
        elif isinstance(value, dict):
            merged[name] = merge({}, value)
        else:
            merged[name] = value
    return merged


def patched(bucket: Json, change: Json, now: str) -> Json:
    """Answers the bucket after a PATCH; what may not be written is left alone.

    Raises:
        Invalid: the soft delete duration is out of bounds.
    """
    return _settled(bucket, merge(bucket, {name: change[name] for name in WRITABLE if name in change}), now)


def replaced(bucket: Json, wanted: Json, now: str) -> Json:
    """Answers the bucket after a PUT."""
    kept = {name: value for name, value in bucket.items() if name not in WRITABLE}
    return _settled(bucket, {**kept, **{name: wanted[name] for name in WRITABLE if name in wanted}}, now)


def _settled(old: Json, new: Json, now: str) -> Json:
    """Fills in what real GCS adds to settings: defaults and the times from which they hold."""
    new.setdefault("storageClass", "STANDARD")
    iam = new["iamConfiguration"] = dict(new.get("iamConfiguration", {}))
    uniform = bool(iam.get("uniformBucketLevelAccess", {}).get("enabled", False))
    iam["uniformBucketLevelAccess"] = iam["bucketPolicyOnly"] = {"enabled": uniform}
    iam.setdefault("publicAccessPrevention", "inherited")
    policy = new.get("softDeletePolicy", {})
    seconds = int(policy.get("retentionDurationSeconds", SOFT_DELETE_DEFAULT_SECONDS))
    if seconds != 0 and not SOFT_DELETE_DEFAULT_SECONDS <= seconds <= SOFT_DELETE_MAX_SECONDS:
        raise Invalid("Soft delete policy retention duration must be 0, or between 7 and 90 days.")
    before = old.get("softDeletePolicy", {})
    changed = before.get("retentionDurationSeconds") != str(seconds)
    new["softDeletePolicy"] = {
        "retentionDurationSeconds": str(seconds),
        "effectiveTime": now if changed else before["effectiveTime"],
    }
    return new
