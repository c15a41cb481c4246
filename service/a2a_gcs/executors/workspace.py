"""Where a running agent finds its files: the one call that an agent written in Python needs.

The host restores the workspace of the task into a directory, names it in the
call context, and archives what the agent left there when its turn ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from a2a_gcs.errors import A2AGcsError

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext

WORKSPACE_STATE = "a2a_gcs.workspace"
"""Key of `context.call_context.state` under which the host puts the directory."""


class NoWorkspace(A2AGcsError, RuntimeError):
    """`workspace()` was called where no host has prepared a directory."""


def workspace(context: RequestContext) -> Path:
    """The directory of the running task; what is left in it is there again in the next task of the context.

    Args:
        context: What the executor's `execute` was called with.

    Returns:
        An existing, writable directory. It is the agent's own until `execute` returns.

    Raises:
        NoWorkspace: The executor does not run under a2a-gcs, or outside a turn of a task.
    """
    directory = context.call_context.state.get(WORKSPACE_STATE)
    if directory is None:
        raise NoWorkspace(
            "there is no workspace in this call: a2a_gcs.workspace(context) works inside execute() "
            "of an agent that a2a-gcs hosts (a2a-gcs serve --agent package.module:attribute); "
            f"a test puts a directory into context.call_context.state[{WORKSPACE_STATE!r}]"
        )
    return Path(directory)
