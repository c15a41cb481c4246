"""Parts without content: A2A 1.0 can write them, 0.3 has no form for them, and the SDK's conversion fails at one.

No message may bring any (`host.bounds`), but agents emit them, and tasks that are
stored hold some: a client or receiver of 0.3 gets an empty text in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import Message, Part, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent

E = TypeVar("E", bound=Event)


def is_empty(part: Part) -> bool:
    """It holds nothing, not even an empty text: what an unknown kind of content looks like, too."""
    return part.WhichOneof("content") is None


def filled(event: E) -> E:
    """What can be converted to 0.3: a copy with empty texts, or the very event if none of its parts is empty."""
    if not any(is_empty(part) for part in parts_of(event)):
        return event
    copy = type(event)()
    copy.CopyFrom(event)  # type: ignore[arg-type]
    for part in parts_of(copy):
        if is_empty(part):
            part.text = ""
    return copy


def parts_of(event: Event) -> Iterator[Part]:
    """Every part of an event, or of a task."""
    match event:
        case Message():
            yield from event.parts
        case TaskArtifactUpdateEvent():
            yield from event.artifact.parts
        case TaskStatusUpdateEvent():
            yield from _said(event.status)
        case Task():
            yield from _said(event.status)
            yield from _all(message.parts for message in event.history)
            yield from _all(artifact.parts for artifact in event.artifacts)


def _said(status: TaskStatus) -> Iterable[Part]:
    return status.message.parts if status.HasField("message") else ()


def _all(lists: Iterable[Iterable[Part]]) -> Iterator[Part]:
    for parts in lists:
        yield from parts
