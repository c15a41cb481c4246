"""Claims where the SDK asks for a request's context: before any ActiveTask exists, so that a refusal keeps its code."""

from __future__ import annotations

import uuid

import structlog
from a2a.server.agent_execution import RequestContext, RequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import Message, SendMessageRequest, Task
from a2a.utils.errors import InvalidParamsError

from a2a_gcs.claims import Claim
from a2a_gcs.layout import TaskRef
from a2a_gcs.ledger.ledger import Entering, Ledger

CLAIM_STATE = "a2a_gcs.claim"
"""Key of `ServerCallContext.state` under which a request's claim is found by its set-up."""


QUIET_STATE = "a2a_gcs.quiet"
"""Key under which a request says that it answers with the end of the turn only."""


class ClaimingContextBuilder(RequestContextBuilder):
    """Builds a request's context around a claim: of the context for a new task, of the next turn for an answer.

    The context id of an answer is the task's own, also where the message names only the task:
    a2a-sdk 1.3.0 makes up a new one there, and then fails the task.
    The agent gets the message as it was sent; the history gets what `entering` makes of it.

    Args:
        ledger: Where claims are made.
        entering: Puts large parts of a message beside its task.
    """

    def __init__(self, ledger: Ledger, entering: Entering | None = None) -> None:
        self._ledger = ledger
        self._entering = entering

    async def build(
        self,
        context: ServerCallContext,
        params: SendMessageRequest | None = None,
        task_id: str | None = None,
        context_id: str | None = None,
        task: Task | None = None,
    ) -> RequestContext:
        """Claims, then builds; from then on the lines that this set-up, and the run that it starts, log name the task.

        Raises what `Ledger.claim` and `Ledger.take_turn` raise, and StoreError.
        """
        del task
        if params is None:
            raise InvalidParamsError(message="there is no message")
        claim = await self._claim(params.message, task_id, context_id)
        structlog.contextvars.bind_contextvars(task_id=claim.ref.task_id, context_id=claim.ref.context_id)
        claim.quiet = bool(context.state.get(QUIET_STATE))
        context.state[CLAIM_STATE] = claim  # so that it is surrendered if the rest fails
        if claim.entered is None and self._entering is not None:
            claim.entered = await self._entering(claim.ref, params.message)
        return RequestContext(
            call_context=context, request=params, task_id=claim.ref.task_id, context_id=claim.ref.context_id
        )

    async def _claim(self, message: Message, task_id: str | None, context_id: str | None) -> Claim:
        if task_id:
            return await self._ledger.take_turn(task_id, context_id, message, self._entering)
        ref = TaskRef(context_id or str(uuid.uuid4()), str(uuid.uuid4()))
        return await self._ledger.claim(ref, message, minted=not context_id)
