"""`a2a-gcs migrate`: moves what one root holds to another one, with no host running."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from a2a_gcs.objectstore import ObjectStore
    from a2a_gcs.relocation import Plan, Relocation, Step


def migrate(
    *,
    store: Annotated[
        str,
        typer.Option(envvar="A2A_GCS_STORE", metavar="URI", help="The bucket: file:<dir> or gs://bucket\\[/prefix]."),
    ],
    to_root: Annotated[
        str,
        typer.Option(
            metavar="ROOT", help="Where to: users/alice, agents/writer, ...; / is the bucket's prefix itself."
        ),
    ],
    from_root: Annotated[
        str, typer.Option(metavar="ROOT", show_default="the bucket's prefix itself", help="Where the data is.")
    ] = "/",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and count; change nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Move though hosts run, which then must use other roots.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON with the counts.")] = False,
) -> None:
    """Move all tasks, contexts and workspaces of one root to another root of the same bucket.

    Everything is copied inside the bucket, verified, and only then deleted. Stop all hosts first. A run that broke off
    is completed by the same command.
    """
    asyncio.run(_migrate(store, _root("--from-root", from_root), _root("--to-root", to_root), dry_run, force, as_json))


def _root(option: str, text: str) -> str:
    from a2a_gcs.errors import ConfigError, InvalidId  # noqa: PLC0415
    from a2a_gcs.layout import parse_root  # noqa: PLC0415

    try:
        return parse_root(text)
    except InvalidId as error:
        raise ConfigError(f"{option}: {text!r} {error.reason}") from error


async def _migrate(store: str, old: str, new: str, dry_run: bool, force: bool, as_json: bool) -> None:  # noqa: FBT001, PLR0917
    from a2a_gcs.errors import ConfigError  # noqa: PLC0415
    from a2a_gcs.host.logging import configure_logging  # noqa: PLC0415
    from a2a_gcs.objectstore import open_store  # noqa: PLC0415  # imports a storage client
    from a2a_gcs.relocation import Relocation  # noqa: PLC0415

    if old == new:
        raise ConfigError(f"--from-root and --to-root are both {_named(old)}: there is nothing to move")
    if store == "memory":
        raise ConfigError("a store in memory is its host's alone; name another one with --store")
    configure_logging("warning")
    async with open_store(store) as bucket:
        if not force:
            await _expect_no_hosts(bucket)
        with _bar() as (step, expect):
            relocation = Relocation(bucket, old, new, step)
            plan = await relocation.plan()
            expect(2 * len(plan.sources) - len(plan.present))
            copied = deleted = 0
            if not dry_run:
                copied, deleted = await _move(relocation, plan, force=force)
    counts = {
        "from": old,
        "to": new,
        "contexts": plan.contexts,
        "tasks": plan.tasks,
        "objects": len(plan.sources),
        "bytes": plan.size,
        "alreadyCopied": len(plan.present),
        "copied": copied,
        "deleted": deleted,
        "dryRun": dry_run,
    }
    typer.echo(json.dumps(counts) if as_json else _told(plan, old, new, copied, dry_run=dry_run))


async def _move(relocation: "Relocation", plan: "Plan", *, force: bool) -> tuple[int, int]:
    copied = await relocation.copy(plan)
    if not force:  # one may have been started meanwhile; sources that it wrote are not deleted, whatever this says
        await _expect_no_hosts(relocation.bucket)
    return copied, await relocation.delete(plan)


async def _expect_no_hosts(bucket: "ObjectStore") -> None:
    from a2a_gcs.cli.errors import CommandFailed  # noqa: PLC0415
    from a2a_gcs.relocation import live_hosts  # noqa: PLC0415

    if hosts := await live_hosts(bucket):
        raise CommandFailed(
            f"hosts run over this bucket: {', '.join(hosts)}. Stop them and try again; one that was killed counts "
            "until its lease is over, in half a minute. --force moves all the same"
        )


@contextlib.contextmanager
def _bar() -> Iterator[tuple["Step", Callable[[int], None]]]:
    """A bar on stderr where somebody watches: a function to tell of each step, and one to tell how many there are."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        row = progress.add_task("listing", total=None)

        def step(doing: str, count: int) -> None:
            progress.update(row, description=doing, advance=0 if doing == "listing" else count)

        yield step, lambda total: progress.update(row, total=total)


def _told(plan: "Plan", old: str, new: str, copied: int, *, dry_run: bool) -> str:
    if not plan.sources:
        return f"nothing is stored below {_named(old)}: there is nothing to move"
    what = (
        f"{len(plan.sources):,} objects ({plan.size:,} bytes; {plan.tasks:,} tasks of {plan.contexts:,} contexts) "
        f"from {_named(old)} to {_named(new)}"
    )
    if dry_run:
        return f"would move {what}; {len(plan.present):,} are copied already"
    return f"moved {what}; copied {copied:,}, {len(plan.present):,} were copied already"


def _named(root: str) -> str:
    return root or "the bucket's prefix itself"
