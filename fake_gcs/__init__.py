"""A Google Cloud Storage emulator for tests: the real fake-gcs-server, run and looked after.

`python -m fake_gcs --help` is the command line; `fake_gcs.process.FakeGcs` starts it
from Python, and the pytest fixture `fake_gcs_server` does so once per test session.
"""
