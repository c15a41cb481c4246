"""Rule `object_names` and `bucket_names`: what may be called what.

Source: cloud.google.com/storage/docs/objects#naming and /buckets#naming.
"""

from __future__ import annotations

import re

from fake_gcs.rules.problems import Invalid

MAX_OBJECT_NAME_BYTES = 1024
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]\Z")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+\Z")
_MAX_BUCKET_PART = 63


def check_object_name(name: str) -> None:
    """Raises Invalid unless the name has 1 to 1,024 bytes of UTF-8, no CR or LF, and is not `.` or `..`."""
    if not name:
        raise Invalid("Required", parameter="name", reason="required")
    if len(name.encode(errors="surrogatepass")) > MAX_OBJECT_NAME_BYTES:
        raise Invalid(f"The maximum object length is {MAX_OBJECT_NAME_BYTES} characters, but got a name with more.")
    if "\r" in name or "\n" in name:
        raise Invalid("Disallowed unicode characters present in object name.")
    if name in {".", ".."} or name.startswith(".well-known/acme-challenge/"):
        raise Invalid(f"Invalid object name: '{name}'.")


def check_bucket_name(name: str) -> None:
    """Raises Invalid unless the name may be a bucket's."""
    parts = name.split(".")
    legal = (
        _BUCKET.match(name)
        and not _ADDRESS.match(name)
        and all(0 < len(part) <= _MAX_BUCKET_PART for part in parts)
        and not name.startswith("goog")
        and "google" not in name
    )
    if not legal:
        raise Invalid(f"Invalid bucket name: '{name}'")
