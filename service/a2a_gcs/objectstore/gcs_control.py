"""A bucket's own settings, read and changed over google-cloud-storage. All calls block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound, PreconditionFailed
from google.api_core.retry import Retry
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.objectstore.bucket_settings import BucketSettings, Rule
from a2a_gcs.objectstore.gcs_bucket import client
from a2a_gcs.objectstore.gcs_reach import why_unreachable

_TIMEOUT_SECONDS = 10.0
_RETRY = Retry(initial=0.2, timeout=2.0)  # what is transient; the client's own goes on for two minutes
_DAY = 86_400
_AGENT = re.compile(r"service-(\d+)@")
_ANYBODY = frozenset({"allUsers", "allAuthenticatedUsers"})

log = structlog.get_logger("a2a_gcs.objectstore")


class ControlError(A2AGcsError):
    """The bucket's settings cannot be read or changed; the message says why and what to do."""


class BucketMissing(ControlError):
    """There is no such bucket."""


class NoCredentials(ControlError):
    """There are no credentials."""


class NotAllowed(ControlError):
    """The credentials do not allow it; its message names the permission."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """A bucket as it is.

    Attributes:
        settings: What `bucket_settings` is about.
        location: Such as `US-CENTRAL1` or `EU`.
        project_number: Whose it is.
        labels: Its labels.
        retention_seconds: Age before which no object may be overwritten or deleted; 0 for none.
        holds_new_objects: New objects are under a hold at once.
        metageneration: Counts the changes of its settings.
    """

    settings: BucketSettings
    location: str
    project_number: str
    labels: Mapping[str, str] = field(default_factory=dict)
    retention_seconds: int = 0
    holds_new_objects: bool = False
    metageneration: int = 0


class BucketControl:
    """The settings of one bucket.

    Args:
        name: The bucket.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._client: Any = None

    def state(self) -> BucketState:
        """Reads it. Raises ControlError."""
        with self._told("storage.buckets.get"):
            bucket = self._bucket()
            bucket.reload(timeout=_TIMEOUT_SECONDS, retry=_RETRY)
            iam, soft = bucket.iam_configuration, bucket.soft_delete_policy
            return BucketState(
                settings=BucketSettings(
                    uniform_access=bool(iam.uniform_bucket_level_access_enabled),
                    public_access=str(iam.public_access_prevention or "inherited"),
                    soft_delete_days=int(soft.retention_duration_seconds or 0) / _DAY,
                    versioning=bool(bucket.versioning_enabled),
                    lifecycle=tuple(_rule(rule) for rule in bucket.lifecycle_rules),
                ),
                location=str(bucket.location),
                project_number=str(bucket.project_number),
                labels=dict(bucket.labels),
                retention_seconds=int(bucket.retention_period or 0),
                holds_new_objects=bool(bucket.default_event_based_hold),
                metageneration=int(bucket.metageneration),
            )

    def apply(self, settings: BucketSettings, labels: Mapping[str, str], *, seen: BucketState) -> None:
        """Changes what differs, on the condition that nobody has changed the bucket since it was `seen`.

        Raises:
            ControlError: It has changed, or may not be changed.
        """
        with self._told("storage.buckets.update"):
            bucket = self._bucket()
            bucket.reload(timeout=_TIMEOUT_SECONDS, retry=_RETRY)
            bucket.iam_configuration.uniform_bucket_level_access_enabled = settings.uniform_access
            bucket.iam_configuration.public_access_prevention = settings.public_access
            bucket.soft_delete_policy.retention_duration_seconds = int(settings.soft_delete_days * _DAY)
            bucket.versioning_enabled = settings.versioning
            bucket.lifecycle_rules = [dict(rule) for rule in settings.lifecycle]
            bucket.labels = {**bucket.labels, **labels}
            bucket.patch(timeout=_TIMEOUT_SECONDS, retry=_RETRY, if_metageneration_match=seen.metageneration)

    def add_rules(self, rules: Sequence[Rule], *, seen: BucketState) -> None:
        """Sets the lifecycle rules alone, on the condition of `apply`. Raises ControlError."""
        with self._told("storage.buckets.update"):
            bucket = self._bucket()
            bucket.lifecycle_rules = [dict(rule) for rule in rules]
            bucket.patch(timeout=_TIMEOUT_SECONDS, retry=_RETRY, if_metageneration_match=seen.metageneration)

    def public_roles(self) -> list[str]:
        """The roles that anybody has on the bucket. Raises ControlError."""
        with self._told("storage.buckets.getIamPolicy"):
            policy = self._bucket().get_iam_policy(requested_policy_version=3, timeout=_TIMEOUT_SECONDS, retry=_RETRY)
            return sorted({b["role"] for b in policy.bindings if _ANYBODY & set(b["members"])})

    def project_number_of(self, project: str) -> str | None:
        """The number of a project by its id: Cloud Storage's own agent in it is named by it. Raises ControlError."""
        if project.isdecimal():
            return project
        with self._told("resourcemanager.projects.get"):
            match = _AGENT.match(
                str(self._storage().get_service_account_email(project, timeout=_TIMEOUT_SECONDS, retry=_RETRY))
            )
            return match[1] if match else None

    def _bucket(self) -> Any:
        return self._storage().bucket(self.name)

    def _storage(self) -> Any:
        if self._client is None:
            self._client = client()
        return self._client

    @contextmanager
    def _told(self, permission: str) -> Iterator[None]:
        try:
            yield
        except DefaultCredentialsError as e:
            raise NoCredentials(why_unreachable(e, within=_TIMEOUT_SECONDS)) from e
        except NotFound as e:
            raise BucketMissing(
                f"there is no bucket {self.name}; create it with: gcloud storage buckets create gs://{self.name} "
                "--uniform-bucket-level-access"
            ) from e
        except Forbidden as e:
            raise NotAllowed(f"the credentials lack {permission}, or bucket {self.name} is somebody else's") from e
        except PreconditionFailed as e:
            raise ControlError(f"bucket {self.name} was changed meanwhile; look again, and repeat") from e
        except (GoogleAPIError, GoogleAuthError, OSError) as e:
            log.debug("bucket.unreachable", bucket=self.name, error=repr(e))
            raise ControlError(why_unreachable(e, within=_TIMEOUT_SECONDS)) from e


def _rule(rule: Mapping[str, Any]) -> Rule:
    return {"action": dict(rule["action"]), "condition": dict(rule["condition"])}
