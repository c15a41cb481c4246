"""A FastAPI host for A2A agents whose only database is a Google Cloud Storage bucket."""

from a2a_gcs.executors.workspace import workspace

__all__ = ["workspace"]
