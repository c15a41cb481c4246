"""`a2a-gcs gc`: removes what retention lets go, what nothing refers to, or what somebody wants to be gone."""

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from a2a_gcs.cli.roots import root_of_option

if TYPE_CHECKING:
    from a2a_gcs.claims import ClaimTable
    from a2a_gcs.objectstore import ObjectStore
    from a2a_gcs.retention.collector import Place
    from a2a_gcs.retention.judgement import Rules
    from a2a_gcs.retention.remover import Step
    from a2a_gcs.retention.tally import Tally

_HOUR, _DAY = 3600.0, 24 * 3600.0
_SOFT_DELETE = (
    "with soft delete on, the bucket keeps deleted objects for its days (7 unless set otherwise), and bills them"
)


@dataclass(frozen=True)
class _Asked:
    """What is to be done, and how it is told."""

    root: str | None
    context: str | None
    delete_root: bool
    dry_run: bool
    as_json: bool


def gc(
    *,
    store: Annotated[
        str,
        typer.Option(envvar="A2A_GCS_STORE", metavar="URI", help="The bucket: file:<dir> or gs://bucket\\[/prefix]."),
    ],
    root: Annotated[
        str | None, typer.Option(metavar="ROOT", show_default="the bucket's prefix itself", help="Only this root.")
    ] = None,
    all_roots: Annotated[bool, typer.Option("--all-roots", help="Every agent's, tenant's and owner's.")] = False,
    retain_tasks_days: Annotated[
        float | None,
        typer.Option(
            envvar="A2A_GCS_RETAIN_TASKS_DAYS", min=0, show_default="for ever", help="Keep completed tasks so long."
        ),
    ] = None,
    retain_failed_days: Annotated[
        float | None,
        typer.Option(
            envvar="A2A_GCS_RETAIN_FAILED_DAYS",
            min=0,
            show_default="as completed ones",
            help="Keep failed, canceled and rejected tasks so long.",
        ),
    ] = None,
    retain_contexts_days: Annotated[
        float | None,
        typer.Option(
            envvar="A2A_GCS_RETAIN_CONTEXTS_DAYS",
            min=0,
            show_default="for ever",
            help="Keep contexts, with their workspace, so long after their last task.",
        ),
    ] = None,
    longest_run_hours: Annotated[
        float,
        typer.Option(
            envvar="A2A_GCS_LONGEST_RUN_HOURS",
            min=0,
            help="Longest that a task runs, with a margin. Nothing that was written since goes.",
        ),
    ] = 24,
    delete_context: Annotated[
        str | None, typer.Option(metavar="CONTEXT", help="Delete this context of the root, whatever its age.")
    ] = None,
    delete_root: Annotated[
        str | None, typer.Option(metavar="ROOT", help="Delete all contexts of this root, such as users/alice.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would go; change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON with the counts.")] = False,
) -> None:
    """Remove what retention lets go, and what nothing refers to any more. Hosts may run meanwhile.

    A context keeps the workspace that its next task starts from, and every task that runs or waits, however old.
    Without --retain-... only leftovers go: of crashed uploads and hosts, and parts of archives that are gone.
    """
    from a2a_gcs.errors import ConfigError  # noqa: PLC0415
    from a2a_gcs.retention.judgement import Rules  # noqa: PLC0415

    if sum(map(bool, (root is not None, all_roots, delete_root is not None))) > 1:
        raise ConfigError("--root, --all-roots and --delete-root exclude each other")
    if delete_context is not None and (all_roots or delete_root is not None):
        raise ConfigError("--delete-context takes one root: its --root, or the bucket's prefix itself")
    failed = retain_tasks_days if retain_failed_days is None else retain_failed_days
    rules = Rules(
        runs=longest_run_hours * _HOUR,
        tasks=_seconds(retain_tasks_days),
        failed=_seconds(failed),
        contexts=_seconds(retain_contexts_days),
    )
    named = None if all_roots else _root(root, delete_root)
    asked = _Asked(named, delete_context, delete_root is not None, dry_run, as_json)
    if (delete_context is not None or asked.delete_root) and not (yes or dry_run):
        _confirm(asked, store)
    asyncio.run(_gc(store, asked, rules))


def _seconds(days: float | None) -> float | None:
    return None if days is None else days * _DAY


def _root(collected: str | None, deleted: str | None) -> str:
    if deleted is not None:
        return root_of_option("--delete-root", deleted)
    return "" if collected is None else root_of_option("--root", collected)


def _confirm(asked: _Asked, store: str) -> None:
    what = f"context {asked.context!r}" if asked.context is not None else "all contexts"
    typer.confirm(
        f"Delete {what} below {asked.root or 'the prefix itself'} of {store}, with all tasks and workspaces?",
        abort=True,
        err=True,
    )


async def _gc(uri: str, asked: _Asked, rules: "Rules") -> None:
    from a2a_gcs.cli.errors import CommandFailed  # noqa: PLC0415
    from a2a_gcs.cli.moving import bar  # noqa: PLC0415
    from a2a_gcs.host.logging import configure_logging  # noqa: PLC0415
    from a2a_gcs.objectstore import open_existing  # noqa: PLC0415  # imports a storage client
    from a2a_gcs.retention.tally import Tally  # noqa: PLC0415

    configure_logging("warning")
    tally = Tally()
    async with open_existing(uri) as bucket:
        with bar() as (told, _):
            refused = await _act(bucket, asked, rules, tally, lambda count: told("removing", count))
    if asked.as_json:
        typer.echo(json.dumps({"root": asked.root, "dryRun": asked.dry_run, **tally.as_json()}))
    else:
        typer.echo(_told(tally, dry_run=asked.dry_run))
    if tally.objects and not asked.dry_run and uri.startswith("gs://"):
        typer.echo(_SOFT_DELETE, err=True)
    if refused:
        raise CommandFailed("\n       ".join(map(str, refused)))


async def _act(bucket: "ObjectStore", asked: _Asked, rules: "Rules", tally: "Tally", step: "Step") -> list[Exception]:
    from a2a_gcs.claims import ClaimTable  # noqa: PLC0415
    from a2a_gcs.retention.collector import Collector  # noqa: PLC0415
    from a2a_gcs.retention.deletion import Deletion, NotDeleted  # noqa: PLC0415
    from a2a_gcs.retention.remover import Remover  # noqa: PLC0415
    from a2a_gcs.retention.roots import collect_heartbeats, roots  # noqa: PLC0415

    table = ClaimTable("gc")
    if asked.context is not None or asked.delete_root:
        deletion = Deletion(_place(bucket, asked.root or "", table), table, tally, dry_run=asked.dry_run, step=step)
        if asked.context is None:
            return list(await deletion.root())
        try:
            await deletion.context(asked.context)
        except NotDeleted as error:
            return [error]
        return []
    async with aclosing(roots(bucket)) as every:
        named = [found async for found in every] if asked.root is None else [asked.root]
    for root in named:
        await Collector(_place(bucket, root, table), rules, tally, dry_run=asked.dry_run, step=step).run()
    if not asked.root:
        remover = Remover(bucket, tally, dry_run=asked.dry_run, step=step)
        tally.heartbeats = await collect_heartbeats(bucket, remover, rules.runs)
    return []


def _place(bucket: "ObjectStore", root: str, table: "ClaimTable") -> "Place":
    from a2a_gcs.ledger.heartbeat import Liveness  # noqa: PLC0415
    from a2a_gcs.objectstore import PrefixStore  # noqa: PLC0415
    from a2a_gcs.retention.collector import Place  # noqa: PLC0415

    store = PrefixStore(bucket, root) if root else bucket
    return Place(bucket, store, root, Liveness(bucket, table))


def _told(tally: "Tally", *, dry_run: bool) -> str:
    from a2a_gcs.cli.moving import counted  # noqa: PLC0415

    if not tally.objects:
        return "nothing to remove" + (f"; {tally.changed:,} in use" if tally.changed else "")
    kinds = {
        "context": tally.contexts,
        "task": tally.tasks,
        "orphan": tally.orphans,
        "journal batch": tally.batches,
        "part": tally.parts,
        "heartbeat": tally.heartbeats,
    }
    what = ", ".join(counted(count, noun) for noun, count in kinds.items() if count)
    changed = f"; {tally.changed:,} were written meanwhile and stay" if tally.changed else ""
    return (
        f"{'would remove' if dry_run else 'removed'} {counted(tally.objects, 'object')} "
        f"({counted(tally.bytes, 'byte')}): {what}{changed}"
    )
