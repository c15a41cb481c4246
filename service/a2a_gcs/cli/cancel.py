"""`a2a-gcs cancel`: stops a task."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from a2a_gcs.cli.errors import FAILED
from a2a_gcs.cli.send import OtherOrigin, Token, Url

if TYPE_CHECKING:
    from a2a.types.a2a_pb2 import Task


def cancel(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Id of the task.")],
    *,
    url: Url = "http://127.0.0.1:8080",
    token: Token = None,
    allow_other_origin: OtherOrigin = False,
) -> None:
    """Cancel a task that has not ended."""
    result = asyncio.run(_cancel(task, url, token, other_origin=allow_other_origin))

    from a2a.types.a2a_pb2 import TaskState  # noqa: PLC0415  # imports the SDK

    from a2a_gcs.cli.connection import state_name  # noqa: PLC0415

    typer.echo(f"task {result.id}  context {result.context_id}  {state_name(result.status.state)}")
    if result.status.state != TaskState.TASK_STATE_CANCELED:
        raise typer.Exit(FAILED)


async def _cancel(task: str, url: str, token: str | None, *, other_origin: bool) -> "Task":
    from a2a.types.a2a_pb2 import CancelTaskRequest  # noqa: PLC0415

    from a2a_gcs.cli.connection import connect  # noqa: PLC0415

    async with connect(url, token, other_origin=other_origin) as client:
        return await client.cancel_task(CancelTaskRequest(id=task))
