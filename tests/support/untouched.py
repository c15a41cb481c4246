"""Whether something writes to a place in which earlier tasks have left work behind their answers.

The hosts that tests share write on after an answer: a pointer is told the end of its task about a second later, the
archive of a canceled task is stored once its agent has stopped, and push marks, kept notices and configurations follow
what a receiver has heard. Nothing of that is written by who asks now, so all of it is left out; the rest is compared.
"""

from __future__ import annotations

import contextlib

from a2a_gcs.layout import parse_owed, parse_push_config, parse_push_mark, parse_task, root_above
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def untouched(place, *, running=()):
    """Fails unless what happens in its block leaves every object as it is, and adds none.

    Args:
        place: A `tests.support.places.Place`.
        running: The tasks that are at work meanwhile, and write nothing; all others end before the block begins.
    """
    before = await at_rest(place, running=running)
    yield
    found = changed(before, await place.objects())
    assert not found, f"written or removed: {found}"


async def at_rest(place, *, running=()):
    """Every object by key, once no turn is under way but those of the tasks that are given."""

    async def look():
        objects = await place.objects()
        return None if _under_way(objects) - set(running) else [objects]

    [objects] = await until(look, what="the end of what earlier tests began")
    return objects


def _under_way(objects):
    """Ids of the tasks of which a turn is claimed or runs."""
    tasks = {ref.task_id: info for key, info in objects.items() if (ref := parse_task(_below_root(key))) is not None}
    return {task_id for task_id, info in tasks.items() if info.metadata.get("open") == "1"}


def changed(before, after):
    """The keys that were written, made or removed in between, but for what tasks leave behind their answers. Pure.

    Args:
        before: Every object by key, as `at_rest` answers it.
        after: The same, later.
    """
    differ = [key for key in before.keys() | after.keys() if _version(before, key) != _version(after, key)]
    return sorted(key for key in differ if not _follows(key, before, after))


def _version(objects, key):
    return objects[key].version if key in objects else None


def _follows(key, before, after):
    """Whether this may be what an earlier task still had to write."""
    name, there, stays = _below_root(key), key in before, key in after
    if name.endswith("/contextId.txt") or parse_push_config(name) is not None:
        return there and stays
    if parse_push_mark(key) is not None or parse_owed(name) is not None:
        return there and not stays
    return name.endswith("/workspace.tar.gz") and stays and _canceled(key, before)


def _canceled(archive, objects):
    record = objects.get(archive.replace("workspace.tar.gz", "task.json"))
    return record is not None and record.metadata.get("state") == "TASK_STATE_CANCELED"


def _below_root(key):
    root = root_above(key)
    return key[len(root) + 1 :] if root else key
