"""Good buckets, of the emulator and in memory: what the doctor has nothing to say about."""

import time

import pytest

from a2a_gcs.layout import workspace_key
from a2a_gcs.objectstore.bucket_settings import wanted
from a2a_gcs.objectstore.gcs_control import BucketControl
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.hosts import Bucket


@pytest.fixture
def emulator(fake_gcs_server, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs_server.url)
    with fake_gcs_server.settings(write_limit_refill=50.0):
        yield fake_gcs_server


@pytest.fixture
def name(emulator):
    """A bucket with the settings that it should have."""
    name = emulator.create_bucket()
    control = BucketControl(name)
    control.apply(wanted(), {"managed-by": "a2a-gcs"}, seen=control.state())
    return name


@pytest.fixture
async def bucket(tmp_path):
    """A store in which a host has completed one task with a workspace, parked another and runs a third."""
    bucket = Bucket()
    bucket.clock.now = time.time()
    host = await bucket.host("h")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "notes.txt").write_text("kept")
    claim = await host.start("done", task_id="done-1")
    saved = await Snapshots(bucket.store).save(tmp_path / "tree", workspace_key(claim.ref), replaces=0)
    await host.end(claim, pin=saved.pin)
    await host.park(await host.start("waiting", task_id="waiting-1"))
    await host.start("running", task_id="running-1")
    await host.beat()
    bucket.living = host
    return bucket
