"""What other servers have kept: gemini-cli's a2a-server in its layout, a2a-sdk's SQL stores in their tables."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import tarfile
from pathlib import Path

from a2a.auth.user import User
from a2a.server.cluster.database_task_store import VersionedDatabaseTaskStore
from a2a.server.cluster.version import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.server.tasks.database_task_store import DatabaseTaskStore
from sqlalchemy.ext.asyncio import create_async_engine

from a2a_gcs.objectstore.port import OVERWRITE


def gemini(state, context=None, **more):
    """A task's metadata as gemini-cli's a2a-server keeps it; there is nothing else."""
    settings = {"kind": "agent-settings", "workspacePath": "/work", "autoExecute": False}
    kept = {"__persistedState": {"_agentSettings": settings, "_taskState": state}, **more}
    return kept if context is None else {**kept, "_contextId": context}


def packed(found):
    """metadata.tar.gz as it really is: gzipped JSON, in spite of its name."""
    return gzip.compress(json.dumps(found).encode())


def packed_in_tar(found, *, files=1):
    """metadata.tar.gz as its name has it."""
    body, out = json.dumps(found).encode(), io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for n in range(files):
            entry = tarfile.TarInfo(f"metadata-{n}.json")
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return out.getvalue()


def workspace(**files):
    """workspace.tar.gz with files of these texts."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("_", "."))
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


async def keep(store, task_id, metadata, archive=None):
    """One task in the old layout of a store."""
    await store.put(f"tasks/{task_id}/metadata.tar.gz", metadata, OVERWRITE, content_type="application/gzip")
    if archive is not None:
        await store.put(f"tasks/{task_id}/workspace.tar.gz", archive, OVERWRITE, content_type="application/gzip")


def keep_file(directory, task_id, metadata, archive=None, *, at=None):
    """One task in the old layout of a directory; `at`: when it was written, in Unix seconds."""
    folder = Path(directory) / "tasks" / task_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.tar.gz").write_bytes(metadata)
    if archive is not None:
        (folder / "workspace.tar.gz").write_bytes(archive)
    if at is not None:
        for file in folder.iterdir():
            os.utime(file, (at, at))


class Named(User):
    """A user of the SDK's stores."""

    def __init__(self, name):
        self._name = name

    @property
    def is_authenticated(self):
        return bool(self._name)

    @property
    def user_name(self):
        return self._name


def as_user(name=""):
    return ServerCallContext(user=Named(name))


def save_in_sql(url, tasks, *, versioned=False, owner="", conversion=None):
    """Has one of a2a-sdk's own stores save tasks, over an asynchronous driver."""

    async def save():
        engine = create_async_engine(url)
        options = {"core_to_model_conversion": conversion}
        try:
            if versioned:
                store = VersionedDatabaseTaskStore(engine, **options)
                await store.initialize()
                for task in tasks:
                    await store.save(task, prev_version=TaskVersion.MISSING, context=as_user(owner))
            else:
                store = DatabaseTaskStore(engine, **options)
                for task in tasks:
                    await store.save(task, as_user(owner))
        finally:
            await engine.dispose()

    asyncio.run(save())
