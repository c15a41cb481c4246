"""`a2a-gcs migrate`: moves a root to another one, or brings in what another server has kept; with no host running."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated

import typer

from a2a_gcs.cli.roots import root_of_option

if TYPE_CHECKING:
    from a2a_gcs.relocation import Plan, Relocation


def migrate(
    *,
    store: Annotated[
        str,
        typer.Option(envvar="A2A_GCS_STORE", metavar="URI", help="The bucket: file:<dir> or gs://bucket\\[/prefix]."),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Bring in what another server has kept: gs://bucket\\[/prefix] or file:<dir> with the old layout "
            "(tasks/<id>/metadata.tar.gz), or sqlite:///<path> or postgresql://... with a2a-sdk's SQL store.",
        ),
    ] = None,
    root: Annotated[
        str, typer.Option(metavar="ROOT", show_default="the bucket's prefix itself", help="With --from: where to.")
    ] = "/",
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --from a database: only the tasks of this owner.")
    ] = None,
    by_owner: Annotated[
        bool, typer.Option("--by-owner", help="With --from a database: each owner's tasks go to users/<owner>.")
    ] = False,
    table: Annotated[str, typer.Option(metavar="NAME", help="With --from a database: the table.")] = "tasks",
    to_root: Annotated[
        str | None,
        typer.Option(
            metavar="ROOT",
            help="Move a root of the bucket here: users/alice, agents/writer, ...; / is the bucket's prefix itself.",
        ),
    ] = None,
    from_root: Annotated[
        str,
        typer.Option(metavar="ROOT", show_default="the bucket's prefix itself", help="With --to-root: where it is."),
    ] = "/",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and count, also beside hosts; change nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on though hosts run, which then must use other roots.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON with the counts.")] = False,
) -> None:
    """Move all tasks, contexts and workspaces of one root to another root, or bring in those of another server.

    With --to-root everything is copied inside the bucket, verified, and only then deleted. With --from the source is
    only read. Stop all hosts first. A run that broke off is completed by the same command.
    """
    from a2a_gcs.errors import ConfigError  # noqa: PLC0415

    if (source is None) == (to_root is None):
        raise ConfigError("give either --from, to bring in another server's tasks, or --to-root, to move a root")
    if to_root is not None:
        old, new = root_of_option("--from-root", from_root), root_of_option("--to-root", to_root)
        asyncio.run(_migrate(store, old, new, dry_run, force, as_json))
    else:
        from a2a_gcs.cli.migrate_from import Wanted, migrate_from  # noqa: PLC0415
        from a2a_gcs.layout import USERS  # noqa: PLC0415

        below = root_of_option("--root", root)
        if by_owner and USERS in below.split("/")[::2]:
            raise ConfigError(f"--by-owner adds users/<owner> by itself; --root {root} names one owner already")
        wanted = Wanted(source or "", table, below, owner, by_owner=by_owner)
        asyncio.run(migrate_from(wanted, store, dry_run=dry_run, force=force, as_json=as_json))


async def _migrate(store: str, old: str, new: str, dry_run: bool, force: bool, as_json: bool) -> None:  # noqa: FBT001, PLR0917
    from a2a_gcs.cli.moving import bar, expect_no_hosts  # noqa: PLC0415
    from a2a_gcs.errors import ConfigError  # noqa: PLC0415
    from a2a_gcs.host.logging import configure_logging  # noqa: PLC0415
    from a2a_gcs.objectstore import open_existing  # noqa: PLC0415  # imports a storage client
    from a2a_gcs.relocation import Relocation  # noqa: PLC0415

    if old == new:
        raise ConfigError(f"--from-root and --to-root are both {_named(old)}: there is nothing to move")
    configure_logging("warning")
    async with open_existing(store) as bucket:
        if not (force or dry_run):
            await expect_no_hosts(bucket)
        with bar() as (step, expect):
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
    from a2a_gcs.cli.moving import expect_no_hosts  # noqa: PLC0415

    copied = await relocation.copy(plan)
    if not force:  # one may have been started meanwhile; sources that it wrote are not deleted, whatever this says
        await expect_no_hosts(relocation.bucket)
    return copied, await relocation.delete(plan)


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
