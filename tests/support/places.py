"""Where a host under test keeps its objects, and a look into it from behind the host."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tarfile
from dataclasses import dataclass, field

from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.gcs import GCSStore
from a2a_gcs.objectstore.port import IF_ABSENT, OVERWRITE
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.objectstore.retry import RetryingStore

_PASSING = re.compile(r"^hosts/[^/]+\.json$|/\d+\.events\.json$")


@dataclass
class Place:
    """A store that hosts under test share with the test.

    Attributes:
        uri: What `--store` is given.
        env: What the host's environment needs besides.
        opened: A store object that is used as it is: a memory store has no other way in.
    """

    uri: str
    env: dict[str, str] = field(default_factory=dict)
    opened: object = None

    @contextlib.asynccontextmanager
    async def open(self):
        """The store, for the running event loop."""
        if self.opened is not None:
            yield self.opened
            return
        store = self._open()
        try:
            yield store
        finally:
            await store.close()

    def _open(self):
        if not self.uri.startswith("gs://"):
            return open_store(self.uri)
        bucket, _, prefix = self.uri.removeprefix("gs://").partition("/")
        store = RetryingStore(GCSStore(bucket, emulator=self.env["STORAGE_EMULATOR_HOST"]))
        return PrefixStore(store, prefix) if prefix else store

    async def objects(self, prefix=""):
        """Every object by key, but heartbeats and journals, which come and go by themselves."""
        found, page = {}, None
        async with self.open() as store:
            while True:
                listing = await store.list(prefix, page=page)
                found |= {info.key: info for info in listing.objects if not _PASSING.search(info.key)}
                page = listing.next
                if page is None:
                    return found

    async def keys(self, prefix=""):
        return sorted(await self.objects(prefix))

    async def versions(self, prefix=""):
        """Key to version, of what nothing is written to behind an answer; else see `tests.support.untouched`."""
        return {key: info.version for key, info in (await self.objects(prefix)).items()}

    async def heartbeats(self):
        async with self.open() as store:
            return [info.key for info in (await store.list("hosts/")).objects]

    async def read(self, key):
        async with self.open() as store:
            return (await store.get(key)).body

    async def read_json(self, key):
        return json.loads(await self.read(key))

    async def meta(self, key):
        async with self.open() as store:
            return dict((await store.head(key)).metadata)

    async def write(self, key, body, *, metadata=None):
        """Puts bytes there from behind the host, over whatever there was."""
        async with self.open() as store:
            return await store.put(key, body, OVERWRITE, metadata=metadata)

    async def create(self, key, body):
        async with self.open() as store:
            return await store.put(key, body, IF_ABSENT)

    async def delete(self, key):
        async with self.open() as store:
            await store.delete(key)

    async def files(self, context, task):
        """The files of a task's archive, name to text."""
        body = await self.read(f"contexts/{context}/{task}/workspace.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as archive:
            return {member.name: archive.extractfile(member).read().decode() for member in archive if member.isfile()}
