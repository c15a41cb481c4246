"""The rules of real GCS, each in one place, each with a name under which it can be switched off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A rule of real GCS that the gateway adds.

    Attributes:
        states: The rule in a sentence.
        source: Where real GCS says so; ASSUMPTION where it does not.
        default: Whether it holds unless switched.
    """

    states: str
    source: str
    default: bool = True


_DOCS = "cloud.google.com/storage/"
_API = "JSON API reference, "

RULES = {
    "preconditions": Rule(
        "Generation and metageneration conditions hold on every verb and upload type, atomically.",
        _DOCS + "docs/request-preconditions",
    ),
    "object_names": Rule("1-1,024 bytes of UTF-8, no CR or LF, not `.` or `..`.", _DOCS + "docs/objects#naming"),
    "bucket_names": Rule("3-63 lower case letters, digits, `-`, `_`, `.`.", _DOCS + "docs/buckets#naming"),
    "custom_metadata": Rule("Custom metadata takes at most 8 KiB, keys and values.", _DOCS + "quotas#objects"),
    "checksums": Rule("A declared md5 or crc32c must be the body's.", _DOCS + "docs/data-validation"),
    "list_pages": Rule("A page holds at most 1,000 items and prefixes; maxResults is checked.", _API + "Objects: list"),
    "list_glob": Rule(
        "matchGlob selects names.", _DOCS + "docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob"
    ),
    "fields": Rule("`fields` selects from every JSON answer.", _DOCS + "docs/json_api#partial-response"),
    "resumable": Rule(
        "Chunks of 256 KiB multiples, repeated bytes ignored, a status query does not finish.",
        _DOCS + "docs/performing-resumable-uploads",
    ),
    "write_limit": Rule(
        "One write a second per object name, else 429. ASSUMPTION: burst 2, refill 1/s, "
        "creates, overwrites, patches and deletes count, failed preconditions do not.",
        _DOCS + "quotas#objects, " + _DOCS + "docs/gcs429",
    ),
    "error_bodies": Rule("Errors carry the real reason, domain and location.", _DOCS + "docs/json_api/v1/status-codes"),
    "bucket_config": Rule("PATCH and PUT of a bucket's settings are stored and read back.", _API + "Buckets"),
    "media_headers": Rule(
        "Media of the JSON API carries no X-Goog-Meta-*.", "Not promised by " + _API + "Objects: get"
    ),
    "transcoding": Rule(
        "Objects with Content-Encoding gzip are decompressed for who does not accept gzip.",
        _DOCS + "docs/transcoding",
    ),
    "compose_sources": Rule("1-32 sources; the result has a crc32c and no md5.", _DOCS + "docs/composite-objects"),
    "holds": Rule("A held object cannot be overwritten or deleted: 403.", _DOCS + "docs/object-holds"),
    "races_are_throttled": Rule(
        "A write over the limit is 429 even when its precondition does not hold.",
        "Reports delta-io/delta-rs#2451, lance-format/lance#2272; off unless asked for",
        default=False,
    ),
}


class RuleSet:
    """Which rules hold at the moment."""

    def __init__(self) -> None:
        self._on = {name: rule.default for name, rule in RULES.items()}

    def __getitem__(self, name: str) -> bool:
        return self._on[name]

    def switch(self, name: str, *, on: bool) -> None:
        """Switches a rule.

        Raises:
            KeyError: there is no rule of that name.
        """
        if name not in self._on:
            raise KeyError(name)
        self._on[name] = on

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def states(self) -> dict[str, bool]:
        return dict(self._on)
