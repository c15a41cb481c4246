"""Tasks that are on their way, at a point that the test knows."""

from __future__ import annotations


async def running(client, text, **options):
    """Starts a task and returns its id once its agent is at work: all it stores until it goes on is stored by then."""
    events = client.stream(text, **options)
    async for event in events:
        assert not event.ended, f"it has ended: {event.raw}"
        if event.kind == "status":
            break
    await events.aclose()
    return event.task_id
