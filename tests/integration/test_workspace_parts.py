"""Workspaces in parts over the emulator with GCS's rules, and hosts that die while one is saved."""

import os
import random

import pytest

from a2a_gcs.errors import Conflict, StoreError
from a2a_gcs.layout import parts_prefix
from a2a_gcs.workspaces.snapshots import Snapshots
from fake_gcs.faults import Fault
from tests.integration.conftest import LEASE, SCRIPTED
from tests.support.turns import running
from tests.support.waiting import until
from tests.unit.workspaces.trees import describe

SMALL = 32 << 10


def key(task):
    return f"contexts/c/{task}/workspace.tar.gz"


@pytest.fixture
def tree(tmp_path):
    """Three megabytes that do not compress, so that joins have two levels."""
    root, rng = tmp_path / "tree", random.Random(7)
    for number in range(200):
        path = root / f"d{number % 7}" / f"f{number:03}"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(rng.randbytes(12_000))
    (root / "large").write_bytes(rng.randbytes(20 * SMALL))
    return root


@pytest.fixture
async def store(make_place):
    async with make_place("gcs").open() as store:
        yield store


@pytest.fixture
async def snapshots(store):
    snapshots = Snapshots(store, whole=0, smallest_part=SMALL, pause=0.01)
    yield snapshots
    await snapshots.close()


async def parts(store):
    return {info.key for info in (await store.list(parts_prefix(key("a")))).objects}


async def test_parts_are_joined_copied_and_restored(store, snapshots, tree, tmp_path):
    """More than 32 parts, one archive; a copy of it onto itself and to another task; a change; all of it comes back."""
    first = await snapshots.save(tree, key("a"), replaces=0)
    again = await snapshots.save(tree, key("a"), replaces=first.pin.generation, base=first.baseline)
    other = await snapshots.save(tree, key("b"), replaces=0, base=again.baseline)
    assert first.pin.crc32c == again.pin.crc32c == other.pin.crc32c
    assert (again.sent, other.sent) == (0, 0)
    (tree / "d1" / "f001").write_bytes(os.urandom(1000))
    changed = await snapshots.save(tree, key("c"), replaces=0, base=other.baseline)
    assert changed.sent < first.sent / 10
    (tmp_path / "back").mkdir()
    await snapshots.restore(key("c"), changed.pin, tmp_path / "back")
    assert describe(tmp_path / "back") == describe(tree)
    await snapshots.close()
    assert len(await parts(store)) == len(first.baseline.known | changed.baseline.known) > 32


@pytest.mark.parametrize("replaces", [0, 1])
async def test_a_join_is_conditional(store, snapshots, tree, replaces):
    """Compose takes the generation known at the claim, as an upload does."""
    first = await snapshots.save(tree, key("a"), replaces=0)
    (tree / "new").write_text("new")
    for base in (None, first.baseline):
        with pytest.raises(Conflict):
            await snapshots.save(tree, key("a"), replaces=replaces and first.pin.generation + 1, base=base)
    assert (await store.head(key("a"))).version == first.pin.generation


LOST = [
    ("commit_and_drop", "objects.compose", "*/workspace.tar.gz"),
    ("commit_and_drop", "objects.compose", "*.part"),
    ("commit_and_drop", "objects.insert", "*.part"),
    ("drop", "objects.compose", "*/workspace.tar.gz"),
    ("drop", "objects.insert", "*.part"),
    ("status", "objects.compose", "*"),
]


@pytest.mark.parametrize("fault", LOST)
async def test_answers_that_are_lost_change_nothing(emulator, store, snapshots, tree, fault):
    """The save succeeds, once, and the archive is that of the tree."""
    old = await snapshots.save(tree, key("a"), replaces=0)
    (tree / "d1" / "f001").write_bytes(os.urandom(9000))
    action, operation, pattern = fault
    with emulator.faults(Fault(action, operation=operation, key=pattern)):
        saved = await snapshots.save(tree, key("a"), replaces=old.pin.generation, base=old.baseline)
    assert (await store.head(key("a"))).version == saved.pin.generation
    fresh = await snapshots.save(tree, key("b"), replaces=0)
    assert fresh.pin.crc32c == saved.pin.crc32c


@pytest.mark.parametrize("operation", ["objects.insert", "objects.compose"])
async def test_a_store_that_refuses_leaves_the_old_snapshot(emulator, snapshots, tree, tmp_path, operation):
    """Forbidden at any step: the save fails, and the old archive is where it was, byte for byte."""
    old = await snapshots.save(tree, key("a"), replaces=0)
    before = describe(tree)
    (tree / "d1" / "f001").write_bytes(os.urandom(9000))
    with emulator.faults(Fault("status", operation=operation, status=403, times=None)), pytest.raises(StoreError):
        await snapshots.save(tree, key("a"), replaces=old.pin.generation, base=old.baseline)
    (tmp_path / "back").mkdir()
    await snapshots.restore(key("a"), old.pin, tmp_path / "back")
    assert describe(tmp_path / "back") == before


# ---------------------------------------------------------------- hosts


async def send(client, text, context, start_from):
    message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": text}], "contextId": context}
    message["metadata"] = {"a2a-gcs/startFrom": start_from}
    return (await client._call("send", {"message": message}))["task"]


async def test_a_crash_costs_what_came_after_the_last_checkpoint(make_place, hosts, connect, fresh, tmp_path):
    """kill -9 in a long run: its task fails, nothing starts from it by itself, and a message can take it up."""
    place = make_place("gcs")
    host = hosts(place, agent=SCRIPTED, lease_seconds=LEASE, checkpoint_minutes=0.005)
    await connect(host).send("write kept.txt kept", context=fresh)
    task_id = await running(connect(host), f"hold {tmp_path / 'never'}", context=fresh)
    archive = f"contexts/{fresh}/{task_id}/workspace.tar.gz"
    await until(lambda: saved(place, archive), what="a checkpoint")
    host.kill()
    client = connect(hosts(place, agent=SCRIPTED, lease_seconds=LEASE))
    await until(lambda: failed(client, task_id), what="the settled task")
    after = await client.send("read kept.txt", context=fresh)
    assert after.text == "kept"
    assert "held.txt" not in await place.files(fresh, after.id)
    taken_up = await send(client, "read held.txt", fresh, task_id)
    assert taken_up["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "held.txt" in await place.files(fresh, taken_up["id"])


async def saved(place, archive):
    return archive in await place.keys()


async def failed(client, task_id):
    return (await client.get(task_id)).state == "failed"
