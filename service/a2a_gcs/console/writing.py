"""The two things that a console may do to a task: send a message, and cancel. Both are requests like any other."""

from __future__ import annotations

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

_SEE_OTHER = 303


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
        answer = await visit.agent.handler.on_message_send(params, visit.context)
    except A2AError as e:
        data = e.data if isinstance(e.data, dict) else {}
        blocker = str(data.get("activeTaskId", "")) if data.get("reason") == "CONTEXT_BUSY" else ""
        refused = replace(draft, message_id=uuid.uuid4().hex, refused=e.message, blocked_by=blocker)
        return page(visit, "send.html", status=409, draft=refused, answer=None)
    if isinstance(answer, Task):
        return RedirectResponse(visit.task_url(answer.id), _SEE_OTHER)
    return page(visit, "send.html", draft=Draft.fresh(context_id=answer.context_id), answer=_said(answer))


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
