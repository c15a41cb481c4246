"""How our errors reach an A2A client: the one table, for every binding (service/docs/failure-modes.md, *Reasons*).

The SDK turns an A2AError's code into that of JSON-RPC, REST and gRPC, and its
data, a flat map of strings, into ErrorInfo.metadata (1.0) or error.data (0.3).
"""

from __future__ import annotations

from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from a2a_gcs.errors import A2AGcsError, CorruptRecord, InvalidId, PermissionDenied, StoreError
from a2a_gcs.host.push.addresses import PushUrlRefused
from a2a_gcs.ledger.errors import (
    ActiveTaskUnreadable,
    Contended,
    ContextBusy,
    ContextMismatch,
    StartRefused,
    TaskEnded,
    TaskMissing,
)
from a2a_gcs.tasks.push_configs import TooManyPushConfigs


def to_a2a_error(error: A2AGcsError) -> A2AError:  # noqa: PLR0911 - a table
    """The A2A error for one of ours; InternalError for what no client can do anything about."""
    match error:
        case TaskMissing():
            return TaskNotFoundError(str(error))
        case InvalidId() | ContextMismatch() | StartRefused() | PushUrlRefused() | TooManyPushConfigs():
            return InvalidParamsError(str(error))
        case ContextBusy(active=active, state=state):
            data = {"contextId": active.context_id, "activeTaskId": active.task_id, "state": state}
            return _refused("CONTEXT_BUSY", error, data)
        case TaskEnded(ref=ref, state=state):
            data = {"contextId": ref.context_id, "taskId": ref.task_id, "state": state}
            return _refused("TASK_TERMINAL", error, data)
        case ActiveTaskUnreadable(ref=ref):
            return _refused("TASK_UNREADABLE", error, {"contextId": ref.context_id, "activeTaskId": ref.task_id})
        case Contended(ref=ref):
            return _refused("CONTEXT_CONTENDED", error, {"contextId": ref.context_id})
        case CorruptRecord(newer=True):
            text = "a later release wrote what this needs; nothing was changed, try again once all hosts are upgraded"
            return InternalError(text, {"reason": "NEWER_SCHEMA"})
        case PermissionDenied():
            return InternalError(
                "the bucket does not permit this; the host's log says more", {"reason": "STORE_DENIED"}
            )
        case StoreError():
            text = "the bucket cannot be reached right now; nothing is lost, send again in a few seconds"
            return InternalError(text, {"reason": "STORE_UNAVAILABLE"})
        case _:
            return InternalError(str(error))


def reason_of(error: Exception) -> str | None:
    """The reason that a client is told with an error, such as CONTEXT_BUSY: one of a few; None if it is told none."""
    known = to_a2a_error(error) if isinstance(error, A2AGcsError) else error
    data = getattr(known, "data", None)
    reason = data.get("reason") if isinstance(known, A2AError) and isinstance(data, dict) else None
    return str(reason) if reason else None


def _refused(reason: str, error: A2AGcsError, data: dict[str, str]) -> A2AError:
    return UnsupportedOperationError(str(error), {"reason": reason, **data})
