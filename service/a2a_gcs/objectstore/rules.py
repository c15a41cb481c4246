"""What GCS allows and how it counts, as pure functions that every adapter shares.

A key or metadata that GCS would refuse is a mistake of the caller and not a
state of the store: it raises ValueError, in every adapter alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import google_crc32c

from a2a_gcs.objectstore.checksums import decoded_crc32c, encoded_crc32c, join_crc32c
from a2a_gcs.objectstore.port import MAX_PAGE, IfAbsent, IfVersion, Mode, Source

MAX_KEY_BYTES = 1024
MAX_METADATA_BYTES = 8 * 1024
MAX_SOURCES = 32
STREAM_CHUNK = 1024 * 1024
"""Bytes in one piece of a streamed download."""


class Crc32c:
    """A running CRC32C, written as GCS writes it: big-endian, base64."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes) -> None:
        self._value = google_crc32c.extend(self._value, data)

    def append(self, crc32c: str, size: int) -> None:
        """Goes on over bytes whose checksum is known."""
        self._value = join_crc32c([(self._value, 0), (decoded_crc32c(crc32c), size)])

    def encoded(self) -> str:
        return encoded_crc32c(self._value)


def crc32c(body: bytes) -> str:
    """The checksum of a whole body, as in `ObjectInfo.crc32c`."""
    checksum = Crc32c()
    checksum.update(body)
    return checksum.encoded()


def validate_key(key: str) -> None:
    """Raises ValueError for a name that GCS refuses (its page *About Cloud Storage objects*)."""
    size = len(key.encode())
    if not 1 <= size <= MAX_KEY_BYTES:
        raise ValueError(f"a key has 1 to {MAX_KEY_BYTES} bytes in UTF-8, not {size}: {key[:80]!r}")
    if key in {".", ".."} or "\r" in key or "\n" in key or key.startswith(".well-known/acme-challenge/"):
        raise ValueError(f"GCS does not allow the key {key[:80]!r}")


def validate_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of custom metadata. Raises ValueError unless names are lower case and all is within 8 KiB."""
    copy = dict(metadata or {})
    for name in copy:
        if not name or name != name.lower():
            raise ValueError(f"metadata names are lower case and not empty: {name!r}")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in copy.items())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"metadata has at most {MAX_METADATA_BYTES} bytes in all, not {size}")
    return copy


def validate_write(key: str, mode: Mode, metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Checks everything about a write but its body. Returns a copy of the metadata; raises ValueError."""
    validate_key(key)
    if isinstance(mode, IfVersion) and mode.version < 1:
        raise ValueError(f"a version is 1 or more, not {mode.version}; IfAbsent means that there is none")
    return validate_metadata(metadata)


def validate_limit(limit: int) -> None:
    """Raises ValueError unless a page holds 1 to 1,000 objects."""
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"a page holds 1 to {MAX_PAGE} objects, not {limit}")


def validate_sources(sources: Sequence[Source]) -> None:
    """Raises ValueError unless compose is given 1 to 32 sources."""
    if not 1 <= len(sources) <= MAX_SOURCES:
        raise ValueError(f"compose takes 1 to {MAX_SOURCES} sources, not {len(sources)}")
    for source in sources:
        validate_key(source.key)


def holds(mode: Mode, current: int | None) -> bool:
    """Whether a write in this mode may replace the current version; None: there is no object."""
    match mode:
        case IfAbsent():
            return current is None
        case IfVersion(version):
            return current == version
        case _:
            return True
