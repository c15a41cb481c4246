"""How an agent reads a part of an earlier message or artifact, whose content may be beside the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.tasks.files import part_bytes

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.types import Part

PARTS_STATE = "a2a_gcs.parts"
"""Key of `context.call_context.state` under which the host puts what reads a part."""


class NotKept(A2AGcsError, ValueError):
    """A part whose content this host does not have: structured data, or somebody else's URL."""


async def read_part(context: RequestContext, part: Part) -> bytes:
    """The content of a text or file part of the task that runs, wherever the host keeps it; text as UTF-8.

    The message of the turn holds its files itself. Earlier ones, in
    `context.current_task`, may refer to content beside the task.

    Args:
        context: What the executor's `execute` was called with.
        part: A part of the task's history or artifacts.

    Raises:
        NotKept: It is structured data, or a URL that is not of this task.
        StoreError: The content could not be read.
    """
    kind = part.WhichOneof("content")
    if kind in {"text", "raw"}:
        return part_bytes(part)
    read = context.call_context.state.get(PARTS_STATE)
    if kind != "url" or read is None:
        raise NotKept(f"there is no content in a part that is {kind or 'empty'}")
    try:
        content: bytes = await read(part)
    except ValueError as e:
        raise NotKept(str(e)) from e
    return content
