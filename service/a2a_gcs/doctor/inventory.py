"""All that is stored, by one listing: what the records say of themselves in keys and metadata."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.layout import (
    HOSTS_PREFIX,
    TaskRef,
    parse_context,
    parse_pointer,
    parse_task,
    parse_workspace,
    root_above,
)
from a2a_gcs.objectstore.port import ObjectInfo, ObjectStore

MOST_OBJECTS = 1_000_000
"""About 1 GiB of memory."""

DAY_SECONDS = 86_400


@dataclass
class Root:
    """What is below one root."""

    pointers: dict[str, ObjectInfo] = field(default_factory=dict)
    contexts: dict[str, ObjectInfo] = field(default_factory=dict)
    tasks: dict[TaskRef, ObjectInfo] = field(default_factory=dict)
    workspaces: dict[TaskRef, ObjectInfo] = field(default_factory=dict)

    def take(self, key: str, info: ObjectInfo) -> None:
        """Enters an object by its key below the root."""
        if (ref := parse_task(key)) is not None:
            self.tasks[ref] = info
        elif (ref := parse_workspace(key)) is not None:
            self.workspaces[ref] = info
        elif (task_id := parse_pointer(key)) is not None:
            self.pointers[task_id] = info
        elif (context_id := parse_context(key)) is not None:
            self.contexts[context_id] = info


@dataclass
class Inventory:
    """What a bucket holds.

    Attributes:
        roots: By root; empty for the prefix itself.
        heartbeats: Of all hosts.
        written: Bytes of the objects that were written so many days ago.
    """

    roots: dict[str, Root] = field(default_factory=lambda: defaultdict(Root))
    heartbeats: list[ObjectInfo] = field(default_factory=list)
    written: Counter[int] = field(default_factory=Counter)


class TooMuch(A2AGcsError):
    """There is more than can be held against each other in the memory of one process."""


async def take_inventory(store: ObjectStore, *, most: int = MOST_OBJECTS) -> Inventory:
    """Lists everything: one class A request for each thousand objects.

    Raises:
        TooMuch: There are more than `most` objects; half of them would look as if the other half were missing.
        StoreError: The store failed.
    """
    inventory, page, count = Inventory(), None, 0
    while True:
        listing = await store.list("", page=page)
        count += len(listing.objects)
        if count > most:
            raise TooMuch(f"there are more than {most:,} objects, too many to hold against each other")
        for info in listing.objects:
            inventory.written[int(info.age / DAY_SECONDS)] += info.size
            root = root_above(info.key)
            if info.key.startswith(HOSTS_PREFIX):
                inventory.heartbeats.append(info)
            else:
                inventory.roots[root].take(info.key.removeprefix(f"{root}/") if root else info.key, info)
        if (page := listing.next) is None:
            return inventory
