"""Rule `checksums`: an upload that declares an md5 or crc32c is stored only if it has it.

Source: cloud.google.com/storage/docs/data-validation. Declared in the object's metadata
(md5Hash, crc32c), or in the headers X-Goog-Hash and Content-MD5; all base64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fake_gcs.rules.problems import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping


def declared(metadata: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    """Answers the declared checksums by kind, `md5` and `crc32c`."""
    found = {}
    for item in headers.get("X-Goog-Hash", "").split(","):
        kind, equals, value = item.strip().partition("=")
        if equals:
            found[kind] = value
    if "Content-MD5" in headers:
        found["md5"] = headers["Content-MD5"]
    for kind, member in (("md5", "md5Hash"), ("crc32c", "crc32c")):
        if metadata.get(member):
            found[kind] = metadata[member]
    return found


def check(wanted: Mapping[str, str], actual: Mapping[str, str]) -> None:
    """Raises Invalid unless every declared checksum is the actual one."""
    for kind, label in (("md5", "MD5 hash"), ("crc32c", "CRC32C")):
        if kind in wanted and wanted[kind] != actual[kind]:
            raise Invalid(f'Provided {label} "{wanted[kind]}" doesn\'t match calculated {label} "{actual[kind]}".')
