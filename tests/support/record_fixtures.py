"""A bucket with a record of every kind, as files: what a release has written, for later ones to read.

    python -m tests.support.record_fixtures tests/fixtures/records/v1

writes it with the code of this tree. What is committed there is not written again: it is what that release wrote.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from a2a.types.a2a_pb2 import Artifact, Part

from a2a_gcs.journal import Journaled
from a2a_gcs.layout import TaskRef, heartbeat_key, parse_context, parse_task, workspace_key
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import TURN_STRIDE, ContextRecord, Pin, PushConfigRecord, repinned
from a2a_gcs.tasks.files import TaskFiles
from a2a_gcs.tasks.push_configs import PushConfigs
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.hosts import WORKING, Bucket, artifact, makes, message

V1 = Path(__file__).parents[1] / "fixtures" / "records" / "v1"

DONE, WAITS, RUNS = TaskRef("finished", "done"), TaskRef("waiting", "asks"), TaskRef("odd/é", "runs")
LARGE = "kept beside the task\n" * 10
RECEIVER = "https://hooks.example/"
FILES = {"notes.txt": "kept\n", "sub/more.txt": "more\n" * 100}


async def fill(bucket):
    """One context that has completed a task, in parts; one that waits; one whose host runs, or has died."""
    host = await bucket.host("host-1")
    done = await host.start(DONE.context_id, message("hello", "m-1"), DONE.task_id)
    with tempfile.TemporaryDirectory() as directory:
        make_tree(Path(directory))
        snapshots = Snapshots(bucket.store, whole=0, smallest_part=64)
        saved = await snapshots.save(Path(directory), workspace_key(DONE), replaces=0)
        await snapshots.close()
    large = await TaskFiles(bucket.store).moved(DONE, Part(text=LARGE))
    await host.save(done, WORKING, artifact("a", "content"), Artifact(artifact_id="large", parts=[large]))
    await host.end(done, pin=saved.pin)
    asks = await host.start(WAITS.context_id, message("what?", "m-2"), WAITS.task_id)
    configs = PushConfigs(bucket.store, host.records, bucket.store, root="", table=host.table)
    await configs.register(WAITS, PushConfigRecord(id="p", url=RECEIVER, token="secret"))
    await host.park(asks)
    answered = await host.answer(WAITS.task_id)  # keeps the state before, which nobody has been told of
    answered.patience = 3600
    await host.park(answered)
    runs = await host.start(RUNS.context_id, message("go on", "m-3"), RUNS.task_id)
    await host.journal.append(RUNS, 1, 1, [Journaled(TURN_STRIDE + 9, makes(runs, "late", "from the journal"))])
    await host.beat()
    await host.tasks.aclose()
    await host.index.aclose()


def make_tree(directory):
    for name, text in FILES.items():
        (path := directory / name).parent.mkdir(exist_ok=True)
        path.write_text(text)


async def write(directory):
    bucket = Bucket()
    await fill(bucket)
    about = {}
    for info in (await bucket.store.list("")).objects:
        path = directory / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((await bucket.store.get(info.key)).body)
        metadata = {name: value for name, value in sorted(info.metadata.items()) if name != "write-id"}
        about[info.key] = {"contentType": info.content_type, "generation": info.version, "metadata": metadata}
    (directory / "objects.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")


async def load(directory=V1, *, change=lambda key, body, metadata: (body, metadata)):
    """A bucket that holds what is there. Pins name the generations that the archives have here, as after a move.

    Args:
        directory: What `write` wrote.
        change: Makes of a record what is stored instead.
    """
    bucket = Bucket()
    about = json.loads((directory / "objects.json").read_text())
    moved = {}
    for key in sorted(about, key=lambda key: not key.endswith(".gz")):
        body, metadata = (directory / key).read_bytes(), about[key]["metadata"]
        if (ref := parse_task(key)) in moved:
            metadata = repinned(metadata, *moved[ref])
        if (context := parse_context(key)) is not None:
            for (owner, _), pins in moved.items():
                if owner == context:
                    body = ContextRecord.parse(key, body).repinned(*pins).to_bytes()
        body, metadata = change(key, body, metadata)
        info = await bucket.store.put(key, body, OVERWRITE, metadata=metadata, content_type=about[key]["contentType"])
        if key == workspace_key(DONE):
            moved[DONE] = Pin(about[key]["generation"], info.crc32c), Pin(info.version, info.crc32c)
    return bucket


HEARTBEAT = heartbeat_key("host-1")

if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
