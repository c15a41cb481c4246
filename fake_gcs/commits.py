"""Where a write becomes visible: conditions, holds, write limit, generation, catalogue, history.

Each method is synchronous and runs on the event loop, so that its check and its write are
one: no other request comes between. What the request brought lies in a blob already.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fake_gcs import resources
from fake_gcs.api import ApiError, no_such_bucket, no_such_object, rate_limited
from fake_gcs.catalogue import Catalogue, Stored
from fake_gcs.rules.metadata import check_custom_metadata
from fake_gcs.rules.names import check_object_name
from fake_gcs.rules.preconditions import ABSENT, NONE, ConditionNotMet, NotModified, Preconditions

if TYPE_CHECKING:
    from fake_gcs.history import History
    from fake_gcs.rules import RuleSet
    from fake_gcs.rules.write_limit import WriteLimit

Json = dict[str, Any]


class Commits:
    def __init__(self, catalogue: Catalogue, rules: RuleSet, limit: WriteLimit, history: History) -> None:
        self._catalogue = catalogue
        self._rules = rules
        self._limit = limit
        self._history = history

    # Checks that may fail a request before its body is taken in

    def check_bucket(self, bucket: str) -> None:
        if not self._catalogue.has_bucket(bucket):
            raise no_such_bucket()

    def check_new(self, bucket: str, name: str, wanted: Json, conditions: Preconditions) -> None:
        """Raises what an insert of this would raise now, the write limit apart."""
        self.check_bucket(bucket)
        if self._rules["object_names"]:
            check_object_name(name)
        self._check_metadata(wanted)
        self._check(self._catalogue.live(bucket, name), conditions, bucket, name)

    def check_read(self, stored: Stored, conditions: Preconditions) -> None:
        if self._rules["preconditions"]:
            conditions.check(stored.version)

    def find(self, bucket: str, name: str, generation: str | None = None) -> Stored:
        """Answers the live version, or the one of that generation.

        Raises:
            ApiError: 404, there is no such bucket, object or generation.
        """
        self.check_bucket(bucket)
        if generation is None:
            found = self._catalogue.live(bucket, name)
        elif generation.isascii() and generation.isdigit():
            found = self._catalogue.generation(bucket, name, int(generation))
        else:
            raise ApiError(400, "invalid", f"Invalid long value: '{generation}'.", location=("parameter", "generation"))
        if found is None:
            raise no_such_object(bucket, name)
        return found

    # Writes

    def insert(
        self, verb: str, bucket: str, name: str, wanted: Json, *, facts: Json, blob: str, conditions: Preconditions
    ) -> Json:
        """Stores a new live version whose body is in blob, and answers its resource."""
        self.check_new(bucket, name, wanted, NONE)
        current = self._catalogue.live(bucket, name)
        self._check(current, conditions, bucket, name)
        self._check_held(current)
        self._take(bucket, name)
        now = time.time()
        resource = resources.new_object(
            bucket, name, wanted, facts=facts, generation=self._catalogue.next_number(), now=now
        )
        noncurrent = self._versioned(bucket)
        if current is not None and noncurrent:
            current = Stored({**current.resource, "timeDeleted": resources.timestamp(now)}, current.blob)
        self._catalogue.put_object(Stored(resource, blob), replaces=current, noncurrent=noncurrent)
        self._history.note(verb, resource)
        return resource

    def change(
        self, verb: str, bucket: str, name: str, change: Json, *, generation: str | None, conditions: Preconditions
    ) -> Json:
        """Patches, or with verb `objects.update` replaces, what may be written of a resource, and answers it."""
        found = self.find(bucket, name, generation)
        self._check(found, conditions, bucket, name)
        apply = resources.updated_object if verb == "objects.update" else resources.patched_object
        resource = apply(found.resource, change, time.time())
        self._check_metadata(resource)
        self._take(bucket, name)
        self._catalogue.put_resource(resource)
        self._history.note(verb, resource)
        return resource

    def delete(self, bucket: str, name: str, *, generation: str | None, conditions: Preconditions) -> None:
        """Deletes the live version, or for good the one of that generation."""
        found = self.find(bucket, name, generation)
        self._check(found, conditions, bucket, name)
        self._check_held(found)
        self._take(bucket, name)
        noncurrent = generation is None and self._versioned(bucket)
        if noncurrent:
            found = Stored({**found.resource, "timeDeleted": resources.timestamp(time.time())}, found.blob)
        self._catalogue.delete_object(found, noncurrent=noncurrent)
        self._history.note("objects.delete", found.resource, deleted=True)

    def move(
        self, bucket: str, name: str, target: str, *, source_conditions: Preconditions, conditions: Preconditions
    ) -> Json:
        """Renames an object within its bucket, in one step; the body is not touched."""
        found = self.find(bucket, name)
        self._check(found, source_conditions, bucket, name)
        self._check_held(found)
        facts = facts_of(found.resource)
        resource = self.insert(
            "objects.move", bucket, target, found.resource, facts=facts, blob=found.blob, conditions=conditions
        )
        self._catalogue.delete_object(found, keep_blob=True)
        self._history.note("objects.move", found.resource, deleted=True)
        return resource

    def _check(self, current: Stored | None, conditions: Preconditions, bucket: str, name: str) -> None:
        if not self._rules["preconditions"]:
            return
        try:
            conditions.check(ABSENT if current is None else current.version)
        except (ConditionNotMet, NotModified):
            throttled = self._rules["write_limit"] and not self._limit.allows((bucket, name))
            if throttled and self._rules["races_are_throttled"]:
                raise rate_limited(bucket, name) from None
            raise

    def _check_metadata(self, wanted: Json) -> None:
        if self._rules["custom_metadata"]:
            check_custom_metadata(wanted.get("metadata"))

    def _check_held(self, current: Stored | None) -> None:
        if current is None or not self._rules["holds"]:
            return
        for hold, label in (("temporaryHold", "Temporary hold"), ("eventBasedHold", "Event-Based hold")):
            if current.resource.get(hold):
                key = f"{current.resource['bucket']}/{current.resource['name']}"
                raise ApiError(
                    403,
                    "forbidden",
                    f"Object '{key}' is under active {label} and cannot be deleted, overwritten or archived until "
                    "hold is removed.",
                )

    def _take(self, bucket: str, name: str) -> None:
        if self._rules["write_limit"] and not self._limit.take((bucket, name)):
            raise rate_limited(bucket, name)

    def _versioned(self, bucket: str) -> bool:
        resource = self._catalogue.bucket(bucket)
        return bool(resource and resource.get("versioning", {}).get("enabled"))


def facts_of(resource: Json) -> Json:
    """What a resource says of its body, which a copy shares."""
    return {name: resource[name] for name in ("size", "crc32c", "md5Hash", "componentCount") if name in resource}
