"""`a2a-gcs workspace`: what a task left, from the store alone; no host has to run."""

import asyncio
import contextlib
import datetime as dt
import json
import posixpath
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from a2a_gcs.cli.transfers import Transfers
    from a2a_gcs.workspaces.differences import Difference
    from a2a_gcs.workspaces.finding import Archive
    from a2a_gcs.workspaces.reading import Entry, TarGz


class Where(NamedTuple):
    """A store, and the root below it."""

    store: str
    root: str


workspace = typer.Typer(
    name="workspace", help="Look at the workspace of a task, from the store alone.", no_args_is_help=True
)

Store = Annotated[
    str,
    typer.Option(
        envvar="A2A_GCS_STORE", metavar="URI", help="Where the tasks are kept: file:<dir> or gs://bucket\\[/prefix]."
    ),
]
Root = Annotated[
    str,
    typer.Option(
        metavar="PATH", help="Root below the store, where several agents, tenants or owners have one: agents/writer."
    ),
]
Task = Annotated[str, typer.Argument(metavar="TASK", help="Id of the task.")]

_TYPES = {"file": stat.S_IFREG, "hardlink": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK}
_MOST_LINKS = 16


@workspace.command()
def ls(
    task: Task,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Only this, and what is below it.")] = "",
    *,
    store: Store,
    root: Root = "",
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each entry.")] = False,
) -> None:
    """List the files of a task: mode, size, time (UTC), path."""
    asyncio.run(_ls(Where(store, root), task, _inside(path), as_json=as_json))


@workspace.command()
def cat(
    task: Task,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file of the workspace.")],
    *,
    store: Store,
    root: Root = "",
) -> None:
    """Print one file of a task."""
    asyncio.run(_cat(Where(store, root), task, _inside(path)))


@workspace.command()
def pull(
    task: Task,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put it: a new or empty directory.")],
    *,
    store: Store,
    root: Root = "",
    max_bytes: Annotated[
        int, typer.Option(envvar="A2A_GCS_MAX_WORKSPACE_BYTES", min=1, help="Most bytes to unpack.")
    ] = 20 << 30,
    max_files: Annotated[
        int, typer.Option(envvar="A2A_GCS_MAX_WORKSPACE_FILES", min=1, help="Most entries to unpack.")
    ] = 1_000_000,
) -> None:
    """Unpack the workspace of a task into a directory; nothing outside of it is touched."""
    asyncio.run(_pull(Where(store, root), task, directory, max_bytes, max_files))


@workspace.command()
def diff(
    task: Task,
    other: Annotated[
        str | None,
        typer.Argument(metavar="TASK_B", help="Compare TASK with this one; default: what TASK itself changed."),
    ] = None,
    *,
    store: Store,
    root: Root = "",
    summary: Annotated[bool, typer.Option("--stat", help="One line for each file instead of its lines.")] = False,
) -> None:
    """Show what a task changed: against the workspace that it started from, or from TASK to TASK_B."""
    asyncio.run(_diff(Where(store, root), task, other, summary=summary))


async def _ls(where: Where, task: str, path: str, *, as_json: bool) -> None:
    from a2a_gcs.cli.transfers import Transfers  # noqa: PLC0415  # imports a storage client

    async with Transfers(where.store, where.root) as transfers:
        archive = await _archive(transfers, task)
        found = not path
        async with transfers.members(archive) as members:
            async for entry in members:
                if entry.path and _below(entry.path, path):
                    found = True
                    sys.stdout.write(_as_json(entry) if as_json else _as_line(entry))
    if not found:
        raise _not_in(path, task)


async def _cat(where: Where, task: str, path: str) -> None:
    from a2a_gcs.cli.errors import CommandFailed  # noqa: PLC0415
    from a2a_gcs.cli.transfers import Transfers  # noqa: PLC0415

    async with Transfers(where.store, where.root) as transfers:
        archive = await _archive(transfers, task)
        wanted = path
        for _ in range(_MOST_LINKS):
            async with transfers.members(archive) as members:
                following = await _print(members, wanted, task)
            if following is None:
                return
            wanted = following
    raise CommandFailed(f"{path!r} leads through more than {_MOST_LINKS} links")


async def _print(members: "TarGz", path: str, task: str) -> str | None:
    """Prints a file, or returns the path that a link leads to."""
    from a2a_gcs.cli.errors import CommandFailed  # noqa: PLC0415

    async for entry in members:
        if entry.path != path:
            continue
        if entry.kind == "file":
            async with aclosing(members.content()) as pieces:
                async for piece in pieces:
                    sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            return None
        if entry.kind == "hardlink":
            return entry.target.strip("/").removeprefix("./")
        if entry.kind != "symlink":
            raise CommandFailed(f"{path!r} is a {entry.kind}, not a file")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.target))
        if target.startswith(("/", "../")) or target == "..":
            raise CommandFailed(f"{path!r} is a link to {entry.target!r}, which is not in the workspace")
        return target
    raise _not_in(path, task)


async def _pull(where: Where, task: str, directory: Path, max_bytes: int, max_files: int) -> None:
    from a2a_gcs.cli.transfers import Transfers  # noqa: PLC0415
    from a2a_gcs.workspaces.limits import Limits  # noqa: PLC0415
    from a2a_gcs.workspaces.snapshots import Snapshots  # noqa: PLC0415

    async with Transfers(where.store, where.root) as transfers:
        archive = await _archive(transfers, task)
        snapshots = Snapshots(transfers.store, limits=Limits(max_bytes=max_bytes, max_entries=max_files))
        with _destination(directory):
            async with transfers.bar("pulling", archive.size):
                restored = await snapshots.restore(archive.key, archive.pin, directory)
    typer.echo(f"{restored.entries:,} entries in {directory}", err=True)


@contextlib.contextmanager
def _destination(directory: Path) -> Iterator[None]:
    """Makes the directory, and takes it away again if nothing comes into it."""
    from a2a_gcs.cli.errors import CommandFailed  # noqa: PLC0415

    made = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"{str(directory)!r} cannot be made: {error.strerror}") from error
    try:
        yield
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                directory.rmdir()
        raise


async def _diff(where: Where, task: str, other: str | None, *, summary: bool) -> None:
    from a2a_gcs.cli.transfers import Transfers  # noqa: PLC0415
    from a2a_gcs.workspaces.finding import find_base  # noqa: PLC0415

    async with Transfers(where.store, where.root) as transfers:
        first = await _archive(transfers, task)
        if other is not None:
            before: Archive | None = first
            after = await _archive(transfers, other)
        else:
            before, after = await find_base(transfers.store, first), first
        base = f"task {before.ref.task_id}" if before else "an empty workspace"
        typer.echo(f"from {base} to task {after.ref.task_id}", err=True)
        if not after.same_as(before):
            await _show_differences(transfers, before, after, summary=summary)


async def _show_differences(
    transfers: "Transfers", before: "Archive | None", after: "Archive", *, summary: bool
) -> None:
    from a2a_gcs.cli.transfers import members_of, nothing  # noqa: PLC0415
    from a2a_gcs.workspaces.differences import differences  # noqa: PLC0415

    old = await transfers.fetched(before) if before else nothing()
    with old, await transfers.fetched(after) as new, tempfile.TemporaryDirectory() as scratch:
        found = differences(lambda: members_of(old), lambda: members_of(new), Path(scratch))
        counts = [0, 0, 0]
        async for difference in found:
            (_show_stat if summary else _show_lines)(difference)
            counts = [a + b for a, b in zip(counts, (1, difference.added, difference.removed), strict=True)]
    if summary:
        typer.echo(f"{counts[0]} changed, {counts[1]} lines added, {counts[2]} lines removed")


def _show_lines(difference: "Difference") -> None:
    from a2a_gcs.workspaces.differences import shown  # noqa: PLC0415

    about = f" ({difference.summary})" if difference.summary else ""
    typer.secho(f"{difference.change.word} {shown(difference.change.path)}{about}", bold=True)
    escape = sys.stdout.isatty()
    for line in difference.lines:
        color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        typer.secho(shown(line) if escape else line, fg=color)


def _show_stat(difference: "Difference") -> None:
    from a2a_gcs.workspaces.differences import shown  # noqa: PLC0415

    lines = f"+{difference.added} -{difference.removed}" if difference.lines else ""
    about = "  ".join(part for part in (lines, difference.summary) if part)
    typer.echo(f"{difference.change.word:8}  {shown(difference.change.path)}  {about}".rstrip())


async def _archive(transfers: "Transfers", task: str) -> "Archive":
    from a2a_gcs.workspaces.finding import find_archive  # noqa: PLC0415

    archive = await find_archive(transfers.store, task)
    if not archive.pinned:
        typer.echo(f"note: task {task} did not complete with this workspace, nothing starts from it", err=True)
    return archive


def _inside(path: str) -> str:
    """A path as an archive has it: without leading `./` and trailing `/`."""
    return posixpath.normpath(path).lstrip("/") if path.strip("/.") else ""


def _below(path: str, top: str) -> bool:
    return not top or path == top or path.startswith(f"{top}/")


def _not_in(path: str, task: str) -> Exception:
    from a2a_gcs.cli.errors import CommandFailed  # noqa: PLC0415

    return CommandFailed(f"{path!r} is not in the workspace of task {task!r}; a2a-gcs workspace ls shows what is")


def _as_line(entry: "Entry") -> str:
    from a2a_gcs.workspaces.differences import shown  # noqa: PLC0415

    mode = stat.filemode(_TYPES.get(entry.kind, 0) | entry.mode)
    target = {"symlink": f" -> {shown(entry.target)}", "hardlink": f" = {shown(entry.target)}"}.get(entry.kind, "")
    return f"{mode}  {entry.size:>13,}  {_moment(entry)}  {shown(entry.path)}{target}\n"


def _as_json(entry: "Entry") -> str:
    known = {"path": entry.path, "type": entry.kind, "mode": f"{entry.mode:04o}", "size": entry.size}
    known |= {"mtime": _moment(entry)} | ({"target": entry.target} if entry.target else {})
    return json.dumps(known) + "\n"


def _moment(entry: "Entry") -> str:
    try:
        return dt.datetime.fromtimestamp(int(entry.mtime), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "?" * 20
