"""`a2a-gcs send`: one message to an agent, and its answer as it comes."""

import asyncio
import uuid
from typing import TYPE_CHECKING, Annotated

import typer

from a2a_gcs.cli.errors import FAILED, INTERRUPTED, USAGE

if TYPE_CHECKING:
    from a2a.types.a2a_pb2 import Message

    from a2a_gcs.cli.transcript import Transcript

Url = Annotated[str, typer.Option(envvar="A2A_GCS_URL", metavar="URL", help="Where the agent's card is.")]
Token = Annotated[
    str | None,
    typer.Option(envvar="A2A_GCS_TOKEN", show_envvar=True, help="Sent as `Authorization: Bearer TOKEN`."),
]
OtherOrigin = Annotated[
    bool,
    typer.Option(
        "--allow-other-origin", help="Send the token also where the card says, if that is another origin than --url."
    ),
]


def send(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.")],
    *,
    context: Annotated[
        str | None, typer.Option(metavar="C", help="Context to work in; default: a new one.", show_default=False)
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="T", help="Task that is answered; its context is implied.")
    ] = None,
    url: Url = "http://127.0.0.1:8080",
    token: Token = None,
    allow_other_origin: OtherOrigin = False,
    as_json: Annotated[bool, typer.Option("--json", help="Each event as one line of JSON.")] = False,
) -> None:
    """Send a message, and print artifacts on stdout as they stream, states on stderr.

    Status 0: completed, or waits for an answer. 1: failed or refused. Ctrl-C leaves the task running.
    """
    if not text.strip():
        typer.echo("error: TEXT is empty; say something", err=True)
        raise typer.Exit(USAGE)
    from a2a_gcs.cli.transcript import Transcript  # noqa: PLC0415  # imports the SDK

    transcript = Transcript(url, as_json=as_json)
    try:
        message = _message(text, context, task)
        asyncio.run(_send(message, url, token, transcript, other_origin=allow_other_origin))
    except KeyboardInterrupt:
        typer.echo(transcript.interrupted(), err=True)
        raise typer.Exit(INTERRUPTED) from None
    if not transcript.succeeded:
        raise typer.Exit(FAILED)


def _message(text: str, context: str | None, task: str | None) -> "Message":
    from a2a.types.a2a_pb2 import Message, Part, Role  # noqa: PLC0415

    return Message(
        message_id=str(uuid.uuid4()),
        context_id=context or "",
        task_id=task or "",
        role=Role.ROLE_USER,
        parts=[Part(text=text)],
    )


async def _send(
    message: "Message", url: str, token: str | None, transcript: "Transcript", *, other_origin: bool
) -> None:
    from a2a.types.a2a_pb2 import SendMessageRequest  # noqa: PLC0415

    from a2a_gcs.cli.connection import connect  # noqa: PLC0415

    async with connect(url, token, other_origin=other_origin) as client:
        try:
            async for event in client.send_message(SendMessageRequest(message=message)):
                transcript.show(event)
        finally:
            transcript.close()
