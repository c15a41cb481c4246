"""Where clients find content that lies beside a task: the URL that a part has on its way out (decision 0006).

task.json refers to such content relative to itself, so it can be moved; a client
gets the address of this host.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

from a2a.server.events.event_queue import Event
from a2a.types.a2a_pb2 import Task

from a2a_gcs.host.empty_parts import parts_of
from a2a_gcs.layout import encode_segment, parse_file_reference

E = TypeVar("E", bound=Event)


class FileLinks:
    """The addresses of one agent's files.

    Args:
        base: Where the agent's routes begin, such as `https://example.org/writer`.
    """

    def __init__(self, base: str) -> None:
        self._base = base.rstrip("/")

    def shown(self, event: E, tenant: str) -> E:
        """What a client gets: a copy with addresses, or the very event if it refers to nothing."""
        if not any(parse_file_reference(part.url) for part in parts_of(event)):
            return event
        copy = type(event)()
        copy.CopyFrom(event)  # type: ignore[arg-type]
        task_id = copy.id if isinstance(copy, Task) else copy.task_id
        for part in parts_of(copy):
            if (name := parse_file_reference(part.url)) is not None:
                part.url = self.address(task_id, name, tenant)
        return copy

    def address(self, task_id: str, name: str, tenant: str) -> str:
        """The URL of one content, for callers that name this tenant."""
        path = f"{self._base}/files/{quote(encode_segment(task_id))}/{name}"
        return f"{path}?tenant={quote(tenant, safe='')}" if tenant else path
