"""`a2a-gcs migrate --from`: what it reads, where it writes, and what it tells."""

import json
from typing import NamedTuple

import typer

from a2a_gcs.cli.errors import FAILED
from a2a_gcs.cli.moving import bar, counted, expect_no_hosts
from a2a_gcs.errors import ConfigError
from a2a_gcs.host.logging import configure_logging
from a2a_gcs.migration.location import open_source
from a2a_gcs.migration.migration import Migration
from a2a_gcs.migration.report import Report
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.location import open_unchanged
from a2a_gcs.workspaces.differences import shown

_MOST_SHOWN = 50


class Wanted(NamedTuple):
    """Which tasks, and where to."""

    source: str
    table: str
    root: str
    owner: str | None
    by_owner: bool


async def migrate_from(wanted: Wanted, store: str, *, dry_run: bool, force: bool, as_json: bool) -> None:
    """Ends with status 1 if something could not be moved.

    Raises:
        ConfigError: Source or store are none.
        A2AGcsError: Source or store failed, or hosts run.
    """
    if store == "memory":
        raise ConfigError("a store in memory is its host's alone; name another one with --store")
    configure_logging("warning")
    source = open_source(wanted.source, table=wanted.table)
    try:
        async with open_unchanged(store) if dry_run else open_store(store) as bucket:
            if not (force or dry_run):
                await expect_no_hosts(bucket)
            with bar() as (step, expect):
                migration = Migration(source, bucket, wanted.root, wanted.owner, wanted.by_owner, step)
                plans = await migration.plan()
                expect(migration.report.tasks)
                report = await migration.run(plans, dry=dry_run)
    finally:
        await source.close()
    typer.echo(
        _as_json(report, source.name, wanted.root, dry_run=dry_run) if as_json else _told(report, dry_run=dry_run)
    )
    if not as_json:
        _tell_problems(report)
    if report.problems:
        raise typer.Exit(FAILED)


def _as_json(report: Report, source: str, root: str, *, dry_run: bool) -> str:
    counts = {
        "from": source,
        "root": root,
        "contexts": report.contexts,
        "tasks": report.tasks,
        "moved": report.moved,
        "alreadyThere": report.present,
        "failed": report.failed,
        "mintedContexts": report.minted,
        "workspaces": report.workspaces,
        "bytes": report.size,
        "problems": [{"what": problem.what, "why": problem.why} for problem in report.problems],
        "dryRun": dry_run,
    }
    return json.dumps(counts)


def _told(report: Report, *, dry_run: bool) -> str:
    if not report.tasks:
        return "there are no tasks to move"
    would = "would move" if dry_run else "moved"
    moved = (
        f"{would} {report.moved:,} of {counted(report.tasks, 'task')} in {counted(report.contexts, 'context')}, "
        f"with {counted(report.workspaces, 'workspace')} ({counted(report.size, 'byte')})"
    )
    rest = {
        "there already": report.present,
        "ended as failed, as nothing runs them": report.failed,
        "given a context, as they had none": report.minted,
    }
    return "; ".join([moved, *(f"{count:,} {what}" for what, count in rest.items() if count)])


def _tell_problems(report: Report) -> None:
    for problem in report.problems[:_MOST_SHOWN]:
        typer.echo(shown(f"not moved: {problem.what}: {problem.why}"), err=True)
    if (more := len(report.problems) - _MOST_SHOWN) > 0:
        typer.echo(f"... and {more:,} more; --json has all of them", err=True)
