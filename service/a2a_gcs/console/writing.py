"""The two things that a console may do to a task: send a message, and cancel. Both are requests like any other."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from a2a.types.a2a_pb2 import CancelTaskRequest, Message, Part, Role, SendMessageConfiguration, SendMessageRequest, Task
from a2a.utils.errors import A2AError
from starlette.responses import RedirectResponse, Response

from a2a_gcs.console.parts import Allowance, Said, conversation
from a2a_gcs.console.rendering import page
from a2a_gcs.console.security import form_of
from a2a_gcs.console.site import Visit
from a2a_gcs.layout import TaskRef
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.task_records import TaskRecords

_SEE_OTHER = 303
_LOOK_SECONDS = 0.3


@dataclass(frozen=True)
class Draft:
    """A message that is being written.

    Attributes:
        message_id: Chosen when the form is made, so that a form that is sent twice starts one task.
        text: What it says.
        context_id: Its context; empty for one that the host chooses.
        task_id: The task that it answers; empty for a new one.
        refused: Why it was not taken.
        blocked_by: The task that has to end first, if that is why.
    """

    message_id: str
    text: str = ""
    context_id: str = ""
    task_id: str = ""
    refused: str = ""
    blocked_by: str = ""

    @classmethod
    def fresh(cls, *, context_id: str = "", task_id: str = "") -> Draft:
        return cls(uuid.uuid4().hex, context_id=context_id, task_id=task_id)

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Draft:
        return cls(
            form.get("message_id", "") or uuid.uuid4().hex,
            form.get("text", "").replace("\r\n", "\n"),
            form.get("context_id", "").strip(),
            form.get("task_id", ""),
        )

    def message(self) -> Message:
        return Message(
            message_id=self.message_id,
            role=Role.ROLE_USER,
            parts=[Part(text=self.text)],
            context_id=self.context_id,
            task_id=self.task_id,
        )


async def send(visit: Visit) -> Response:
    """Starts a task, or answers one, and goes to its page at once."""
    draft = Draft.of(await form_of(visit.request))
    configuration = SendMessageConfiguration(return_immediately=True)
    params = SendMessageRequest(message=draft.message(), configuration=configuration)
    try:
        answer = await _begun(visit, params)
    except A2AError as e:
        data = e.data if isinstance(e.data, dict) else {}
        blocker = str(data.get("activeTaskId", "")) if data.get("reason") == "CONTEXT_BUSY" else ""
        refused = replace(draft, message_id=uuid.uuid4().hex, refused=e.message, blocked_by=blocker)
        return page(visit, "send.html", status=409, draft=refused, answer=None)
    if answer is None or isinstance(answer, Task):
        return RedirectResponse(visit.task_url(answer.id if answer else draft.task_id), _SEE_OTHER)
    return page(visit, "send.html", draft=Draft.fresh(context_id=answer.context_id), answer=_said(answer))


async def _begun(visit: Visit, params: SendMessageRequest) -> Task | Message | None:
    """What the handler answers; None as soon as the task that was answered runs.

    For an answer the handler waits until the agent says something, which may be long; the turn is the host's own by
    then, and goes on without this request.
    """
    answered = params.message.task_id  # the SDK writes the id of a new task into its message
    sending = asyncio.ensure_future(visit.agent.handler.on_message_send(params, visit.context))
    try:
        while not (await asyncio.wait({sending}, timeout=_LOOK_SECONDS))[0]:
            if answered and await _runs(visit.store, answered):
                return None
        return await sending
    finally:
        sending.cancel()


async def _runs(store: ObjectStore, task_id: str) -> bool:
    """Whether a turn of a task is under way, for one class B request."""
    records = TaskRecords(store)
    context_id = await records.context_of(task_id)
    seen = await records.peek(TaskRef(context_id, task_id)) if context_id else None
    return seen is not None and seen[1].open


def _said(answer: Message) -> Said:
    """A plain message, which leaves no task behind."""
    holder = Task()
    holder.status.message.CopyFrom(answer)
    return conversation(holder, Allowance())[0][0]


async def cancel(visit: Visit) -> Response:
    """Cancels a task, and goes back to its page."""
    await form_of(visit.request)
    task_id = visit.id_in_path("task")
    await visit.agent.handler.on_cancel_task(CancelTaskRequest(id=task_id), visit.context)
    return RedirectResponse(visit.task_url(task_id), _SEE_OTHER)
