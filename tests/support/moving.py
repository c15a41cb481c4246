"""A root with everything in it that a root can hold, moves of it, and what a root means, whatever its generations."""

from __future__ import annotations

import json
import random

from a2a_gcs.layout import TaskRef, parse_context, parse_task, workspace_key
from a2a_gcs.objectstore import PrefixStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.relocation import Relocation
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.hosts import CANCELED, FAILED, INPUT_REQUIRED, Bucket

NEW = "users/alice"
KEPT = "contexts/kept/context.json"
"""Something that the new root holds before anything is moved to it."""

MARKS = ("push/t.json", "push/agents/writer/u.json", "push/users/bob/t.json")
"""Tasks with push configurations, of the root and of neighbours."""


async def ended(host, store, tree, state=None, *, context="ctx", pinned=True):
    """A task that ran to a state and left a workspace, in parts."""
    claim = await host.start(context)
    snapshots = Snapshots(store, whole=0, smallest_part=4096)
    saved = await snapshots.save(tree, workspace_key(claim.ref), replaces=0)
    await snapshots.close()
    pin = saved.pin if pinned else None
    if state == INPUT_REQUIRED:
        await host.park(claim, pin=pin)
    else:
        await host.end(claim, **({"state": state} if state else {}), pin=pin)
    return claim.ref


async def fill(tmp_path, store=None):
    """A bucket, or what is given for one, with every kind of object below its prefix, and neighbours of that root."""
    tree = tmp_path / "tree"
    if not tree.exists():
        tree.mkdir()
        for n in range(8):
            (tree / f"{n}.bin").write_bytes(random.Random(n).randbytes(3000))
    bucket = Bucket(store)
    store = bucket.store
    host = await bucket.host("a")
    for state in (None, FAILED, None, CANCELED, None):
        await ended(host, store, tree, state, pinned=state is None)
    await ended(host, store, tree, context="other")
    await ended(host, store, tree, INPUT_REQUIRED, context="other")
    await store.put("contexts/ctx/t/push/p.json", b"{}", OVERWRITE, content_type="application/json")
    for mark in MARKS:
        await store.put(mark, b"", OVERWRITE, metadata={"context": "ctx"})
    await store.put("contexts/ctx/t/1000001.events.json", b"{}", OVERWRITE)
    await store.put(f"contexts/ctx/t/files/{'a' * 64}", b"large", OVERWRITE, content_type="image/png")
    await store.put("users/bob/contexts/ctx/context.json", b"bob's", OVERWRITE)
    await store.put(f"{NEW}/{KEPT}", b"alice's", OVERWRITE)
    await host.die()
    return bucket


async def move(store, old="", new=NEW):
    relocation = Relocation(store, old, new)
    plan = await relocation.plan()
    return await relocation.copy(plan), await relocation.delete(plan)


async def below(store, root):
    return [info async for info in everything(store) if info.key.startswith(f"{root}/" if root else "")]


async def everything(store):
    page = None
    while True:
        listing = await store.list("", page=page)
        for info in listing.objects:
            yield info
        if (page := listing.next) is None:
            return


async def picture(store, root):
    """Every object of a root, with a word for each generation: whether it is that of the archive that it means."""
    rooted = PrefixStore(store, root) if root else store
    infos = {info.key: info async for info in everything(rooted) if info.key.startswith(("tasks/", "contexts/"))}

    def names(ref, generation):
        archive = infos.get(workspace_key(ref))
        return "the archive" if archive and archive.version == int(generation) else "nothing"

    seen = {}
    for key, info in infos.items():
        body = (await rooted.get(key)).body
        metadata = {name: value for name, value in info.metadata.items() if name != "write-id"}
        if (ref := parse_task(key)) and "pin-generation" in metadata:
            metadata["pin-generation"] = names(ref, metadata["pin-generation"])
        if (context := parse_context(key)) and body.startswith(b"{"):
            record = json.loads(body)
            if last := record["lastCompleted"]:
                last["generation"] = names(TaskRef(context, last["taskId"]), last["generation"])
            body = json.dumps(record)
        seen[key] = (body, metadata, info.content_type)
    return seen
