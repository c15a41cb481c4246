"""The control plane of a bucket, over google-cloud-storage: what is wrong when the data plane is refused."""

from __future__ import annotations

import os
import re

import structlog
from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import storage

from a2a_gcs.errors import PermissionDenied, StoreError
from a2a_gcs.objectstore.gcs_reach import why_unreachable

_log = structlog.get_logger("a2a_gcs.objectstore")

_TIMEOUT_SECONDS = 5.0
_BUCKET = re.compile(r"gs://([^/]+)")


def diagnose(uri: str, error: StoreError) -> str:
    """Says why a first write to `gs://bucket[/prefix]` failed, and what to do. Blocks for up to some seconds.

    Args:
        uri: The store that a setting names.
        error: What the data plane raised.
    """
    match = _BUCKET.match(uri)
    if match is None:
        return str(error)
    bucket = match[1]
    try:
        storage_client = client()
        storage_client.bucket(bucket).reload(timeout=_TIMEOUT_SECONDS, retry=None)
    except NotFound:
        return f"there is no bucket {bucket}; create it with: gcloud storage buckets create gs://{bucket}"
    except Forbidden:
        return (
            f"the credentials may not use bucket {bucket}; "
            f"grant the service account roles/storage.objectUser on it: {error}"
        )
    except (GoogleAPIError, GoogleAuthError, OSError) as e:
        _log.debug("bucket.unreachable", bucket=bucket, error=repr(e))
        return f"bucket {bucket} cannot be reached: {why_unreachable(e, within=_TIMEOUT_SECONDS)}"
    if isinstance(error, PermissionDenied):
        return (
            f"bucket {bucket} exists, but its objects may not be written; "
            f"grant the service account roles/storage.objectUser on it: {error}"
        )
    return f"bucket {bucket} exists, but it could not be used: {error}"


def client() -> storage.Client:
    """A client with the credentials of this machine; none for an emulator. Raises GoogleAuthError."""
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return storage.Client(project="emulator", credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    return storage.Client()
