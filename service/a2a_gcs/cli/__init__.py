"""The command `a2a-gcs`."""
