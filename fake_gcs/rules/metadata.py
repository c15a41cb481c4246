"""Rule `custom_metadata`: keys and values of custom metadata together take at most 8 KiB.

Source: cloud.google.com/storage/quotas#objects.
"""

from __future__ import annotations

from typing import Any

from fake_gcs.rules.problems import Invalid

MAX_CUSTOM_METADATA_BYTES = 8 * 1024


def check_custom_metadata(metadata: dict[str, Any] | None) -> None:
    """Raises Invalid when the metadata is too large, or not text to text."""
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Invalid("Invalid value for: metadata")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > MAX_CUSTOM_METADATA_BYTES:
        raise Invalid(f"Custom metadata takes {size} bytes; the limit is {MAX_CUSTOM_METADATA_BYTES}.")
