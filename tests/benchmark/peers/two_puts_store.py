"""A task store with the design of gemini-cli's: per event the whole task and the whole workspace, each one put.

Both overwrite what is there, whoever wrote it: no condition, no journal, nothing merged. The workspace is a directory
with one small file. Runs on a2a-sdk's request handler like the SDK's own stores, in this project's environment, and
over this project's GCS adapter: so what differs from a2a-gcs is the design, and not how fast a client is.

`STORAGE_EMULATOR_HOST=... python two_puts_store.py gs://<bucket> <directory>` says where it listens.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import sys
import tarfile
from pathlib import Path

from a2a.server.tasks import TaskStore
from a2a.types.a2a_pb2 import Task
from sdk_server import serve

from a2a_gcs.errors import NotFound
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.port import OVERWRITE


class TwoPutsStore(TaskStore):
    def __init__(self, objects, directory):
        self._objects = objects
        self._directory = directory

    async def save(self, task, context=None):
        await self._objects.put(f"tasks/{task.id}/task.gz", gzip.compress(task.SerializeToString()), OVERWRITE)
        await self._objects.put(f"tasks/{task.id}/workspace.tar.gz", _archive(self._directory), OVERWRITE)

    async def get(self, task_id, context=None):
        try:
            found = await self._objects.get(f"tasks/{task_id}/task.gz")
        except NotFound:
            return None
        return Task.FromString(gzip.decompress(found.body))

    async def delete(self, task_id, context=None):
        for name in ("task.gz", "workspace.tar.gz"):
            await self._objects.delete(f"tasks/{task_id}/{name}")

    async def list(self, params, context=None):
        raise NotImplementedError


def _archive(directory):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(directory, arcname=".")
    return buffer.getvalue()


async def main(bucket, directory):
    objects = open_store(bucket)
    try:
        await serve(TwoPutsStore(objects, directory))
    finally:
        await objects.close()


if __name__ == "__main__":
    Path(sys.argv[2], "notes.txt").write_text("What an agent works on.\n" * 8)
    asyncio.run(main(*sys.argv[1:]))
