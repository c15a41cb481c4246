"""Why the ledger refuses: a closed set, mapped to A2A errors by `a2a_gcs.host.errors`."""

from __future__ import annotations

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.layout import TaskRef
from a2a_gcs.records import START_FROM


class Refused(A2AGcsError):
    """A message that the ledger does not accept. Nothing was written for it."""


class ContextBusy(Refused):
    """Another task of the context is not terminal, or this task's turn is running.

    Attributes:
        active: The task that blocks.
        state: Its state, such as `TASK_STATE_WORKING`; `TASK_STATE_SUBMITTED` while it has no task.json.
        waits: It waits for an answer instead of running.
        begun: It has a task.json; before, nobody can look at it or cancel it, and it may end without one.
    """

    def __init__(self, active: TaskRef, state: str, *, waits: bool, begun: bool = True) -> None:
        doing, todo = "is running", "wait until it is done, or cancel it"
        if waits:
            doing, todo = "waits for an answer", "answer or cancel that task"
        elif not begun:
            doing, todo = "is starting, and cannot be read or canceled yet", "wait a moment"
        super().__init__(f"task {active.task_id} of context {active.context_id} {doing}: {todo}, then send again")
        self.active = active
        self.state = state
        self.waits = waits
        self.begun = begun


class TaskMissing(Refused):
    """There is no such task."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id} not found")


class ContextMismatch(Refused):
    """The message names a task of another context."""

    def __init__(self, ref: TaskRef) -> None:
        super().__init__(f"task {ref.task_id} belongs to another context than the message names")
        self.ref = ref


class StartRefused(Refused):
    """The message names a task to start from, and that task has nothing to start from here."""

    def __init__(self, task_id: str, why: str) -> None:
        super().__init__(f"{START_FROM} names task {task_id}, {why}; nothing was started")


class TaskEnded(Refused):
    """The task is terminal and takes no more messages.

    Attributes:
        state: Its state.
    """

    def __init__(self, ref: TaskRef, state: str) -> None:
        super().__init__(f"task {ref.task_id} is in terminal state {state}; send without taskId to start a new one")
        self.ref = ref
        self.state = state


class ActiveTaskUnreadable(Refused):
    """The context's newest task cannot be read, so nobody knows whether it is done.

    Attributes:
        key: The object to repair or delete.
    """

    def __init__(self, key: str, ref: TaskRef) -> None:
        super().__init__(
            f"task {ref.task_id}, the newest of context {ref.context_id}, cannot be read; it was left as it is. "
            f"Repair or delete the object {key}, or use another context"
        )
        self.key = key
        self.ref = ref


class Contended(Refused):
    """Too many writers want this context right now; an object takes about one write a second."""

    def __init__(self, ref: TaskRef) -> None:
        super().__init__(f"context {ref.context_id} is contended: nothing was started; send again in a second")
        self.ref = ref


class Repeated(A2AGcsError):
    """The message already started a task: answer with that one, run nothing.

    Attributes:
        ref: The task it started.
    """

    def __init__(self, ref: TaskRef) -> None:
        super().__init__(f"task {ref.task_id} was started by the same message")
        self.ref = ref


class Fenced(A2AGcsError):
    """The claim was lost to somebody else; whoever meets this stops its agent.

    Attributes:
        ref: The task.
    """

    def __init__(self, ref: TaskRef) -> None:
        super().__init__(f"task {ref.task_id} has been taken over")
        self.ref = ref
