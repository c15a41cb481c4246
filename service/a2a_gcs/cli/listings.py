"""`a2a-gcs contexts`, `tasks` and `show`: what a store holds; no host has to run, and nothing is changed."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a2a_gcs.cli.workspace import Root, Store

if TYPE_CHECKING:
    from a2a.types.a2a_pb2 import Message, Task
    from rich.text import Text

    from a2a_gcs.cli.stored import ContextSummary, Stored

Limit = Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Most entries to show.")]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON for each entry.")]

_STATES = "submitted|working|input-required|auth-required|completed|failed|canceled|rejected"
_MOST_TEXT = 2000
"""Characters of one message that are shown to people; --json has all."""


def contexts(*, store: Store, root: Root = "", limit: Limit = 50, as_json: Json = False) -> None:
    """List contexts: how many tasks, how the newest of them stands, bytes in the bucket."""
    asyncio.run(_contexts(store, root, limit, as_json=as_json))


def tasks(
    *,
    store: Store,
    root: Root = "",
    context: Annotated[str | None, typer.Option(metavar="C", help="Only tasks of this context.")] = None,
    state: Annotated[str | None, typer.Option(metavar=_STATES, help="Only tasks in this state.")] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List tasks, newest state first."""
    if state is not None and state not in _STATES.split("|"):
        raise typer.BadParameter(f"{state!r} is no state; there are {_STATES.replace('|', ', ')}", param_hint="--state")
    asyncio.run(_tasks(store, root, context, state, limit, as_json=as_json))


def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Id of the task.")],
    *,
    store: Store,
    root: Root = "",
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON with everything.")] = False,
) -> None:
    """Show a task: how it stands, who holds it, its messages, artifacts and workspace."""
    asyncio.run(_show(store, root, task, as_json=as_json))


async def _contexts(store: str, root: str, limit: int, *, as_json: bool) -> None:
    from a2a_gcs.cli import stored, tables  # noqa: PLC0415  # imports the SDK
    from a2a_gcs.cli.transfers import Transfers  # noqa: PLC0415

    found: list[ContextSummary] = []
    total = 0
    async with Transfers(store, root) as transfers:
        with tables.counting("objects") as seen:
            async for one in stored.contexts(transfers.store, seen):
                total += 1
                if len(found) < limit:
                    found.append(one)
    if as_json:
        for one in found:
            tables.print_json(_context_json(one))
    elif found:
        rows = [
            (
                one.context_id,
                f"{one.tasks:,}",
                f"{one.unfinished:,}",
                tables.state_text(one.state),
                tables.moment(one.status_time),
                f"{one.size:,}",
            )
            for one in found
        ]
        columns = ("context", "tasks", "unfinished", "newest", "since", "bytes")
        tables.print_paged(tables.table(columns, rows, right=("tasks", "unfinished", "bytes")))
    _tell_rest(len(found), total, "contexts")


def _context_json(one: "ContextSummary") -> dict[str, Any]:
    return {
        "contextId": one.context_id,
        "tasks": one.tasks,
        "unfinished": one.unfinished,
        "newestTaskId": one.newest or None,
        "newestState": one.state or None,
        "newestStatusTime": one.status_time or None,
        "bytes": one.size,
        "ledger": one.ledger,
    }


async def _tasks(store: str, root: str, context: str | None, state: str | None, limit: int, *, as_json: bool) -> None:
    from a2a_gcs.cli import stored, tables  # noqa: PLC0415
    from a2a_gcs.cli.transfers import Transfers  # noqa: PLC0415

    async with Transfers(store, root) as transfers:
        with tables.counting("reading"):
            found = await stored.tasks(transfers.store, context, state, limit)
    if as_json:
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415

        for task in found.tasks:
            tables.print_json(MessageToDict(task))
    elif found.tasks:
        rows = [(t.id, t.context_id, *_standing(t), f"{len(t.history):,}") for t in found.tasks]
        columns = ("task", "context", "state", "since", "messages")
        tables.print_paged(tables.table(columns, rows, right=("messages",)))
    _tell_rest(len(found.tasks), found.total, "tasks")


def _standing(task: "Task") -> tuple[Any, str]:
    from a2a_gcs.cli import tables  # noqa: PLC0415
    from a2a_gcs.task_json import state_name, status_millis  # noqa: PLC0415

    return tables.state_text(state_name(task)), tables.moment(status_millis(task))


def _tell_rest(shown: int, total: int, what: str) -> None:
    """On stderr, so that stdout is the listing alone."""
    if not total:
        typer.echo(f"no {what} here; where several agents, tenants or owners have a root, --root says whose", err=True)
    elif shown < total:
        typer.echo(f"{shown:,} of {total:,} {what}; --limit shows more", err=True)


async def _show(store: str, root: str, task: str, *, as_json: bool) -> None:
    from a2a_gcs.cli import stored, tables  # noqa: PLC0415
    from a2a_gcs.cli.transfers import Transfers  # noqa: PLC0415

    async with Transfers(store, root) as transfers:
        found = await stored.task(transfers.store, task)
    if as_json:
        tables.print_json(_stored_json(found))
    else:
        tables.print_paged(*_shown(found))


def _stored_json(found: "Stored") -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415

    record, meta, archive = found.record, found.record.meta, found.workspace
    pin = meta.pin and {"generation": str(meta.pin.generation), "crc32c": meta.pin.crc32c}
    kept = archive and {"generation": str(archive.version), "crc32c": archive.crc32c, "size": archive.size}
    return {
        "task": MessageToDict(record.task),
        "generation": str(record.version),
        "owner": meta.owner or None,
        "turn": meta.turn,
        "open": meta.open,
        "pin": pin,
        "workspace": kept,
    }


def _shown(found: "Stored") -> list[Any]:
    from rich.text import Text  # noqa: PLC0415

    from a2a_gcs.cli import tables  # noqa: PLC0415

    record, meta = found.record, found.record.meta
    task = record.task
    state, since = _standing(task)
    turn = f"{meta.turn}, held by {meta.owner}" if meta.open else f"{meta.turn}, ended" if meta.turn else "unknown"
    about: list[tables.Row] = [
        ("task", task.id),
        ("context", task.context_id),
        ("state", Text.assemble(state, f" since {since}")),
        ("turn", turn),
        ("workspace", _workspace(found)),
    ]
    parts: list[Any] = [tables.table(("", ""), about)]
    messages = [*task.history, *([task.status.message] if task.status.HasField("message") else [])]
    if messages:
        parts += ["", tables.table(("role", "message"), [_said(m) for m in messages])]
    if task.artifacts:
        rows = [(a.artifact_id, a.name, f"{len(a.parts):,}", f"{a.ByteSize():,}") for a in task.artifacts]
        parts += ["", tables.table(("artifact", "name", "parts", "bytes"), rows, right=("parts", "bytes"))]
    return parts


def _workspace(found: "Stored") -> str:
    if found.workspace is None:
        return "none"
    pin = found.record.meta.pin
    pinned = pin is not None and pin.generation == found.workspace.version
    return f"{found.workspace.size:,} bytes" + ("" if pinned else ", which no state of the task goes with")


def _said(message: "Message") -> tuple[str, "Text"]:
    from a2a.types.a2a_pb2 import Role  # noqa: PLC0415

    from a2a_gcs.cli import tables  # noqa: PLC0415

    role = Role.Name(message.role).removeprefix("ROLE_").lower()
    said = [part.text if part.HasField("text") else f"[{part.WhichOneof('content')}]" for part in message.parts]
    text = "\n".join(said)
    return role, tables.lines(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ...")
