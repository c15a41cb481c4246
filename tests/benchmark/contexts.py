"""The contexts that a task can meet: what a host knows of one decides how many requests it takes to begin."""

from __future__ import annotations

import asyncio
import uuid

from tests.benchmark.sends import SHORT

NEW = "new context"
NAMED = "new context, named by the client"
HERE = "context last used on this host"
ELSEWHERE = "context last used on another host"
BACK = "context used on this host, then on another"

KINDS = (NEW, NAMED, HERE, ELSEWHERE, BACK)
USED = (HERE, ELSEWHERE, BACK)
ALONE = (NEW, NAMED, HERE)
"""What there is with a single server."""

BETWEEN_SECONDS = 2.2
"""Between tasks of one context: cloud storage takes one write a second to an object, and few clients are faster."""


async def prepared(kinds, here, elsewhere=None):
    """The contexts, ready for a task on `here`: by kind, what a message has to name."""
    ids = {kind: {} if kind == NEW else {"contextId": str(uuid.uuid4())} for kind in kinds}
    steps = [(kind, here) for kind in (HERE, BACK)], [(kind, elsewhere) for kind in (ELSEWHERE, BACK)]
    for number, step in enumerate(steps):
        users = [(kind, client) for kind, client in step if kind in kinds]
        if number and users:
            await asyncio.sleep(BETWEEN_SECONDS)
        for kind, client in users:
            await client.send(SHORT, **ids[kind])
    await asyncio.sleep(BETWEEN_SECONDS)
    return ids
