"""Runs fake-gcs-server for tests and for work on a laptop; knows nothing of a2a-gcs."""
