"""`a2a-gcs bucket apply`: brings a bucket to the settings that it should have."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from a2a_gcs.cli.errors import paragraphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from a2a_gcs.objectstore.bucket_settings import BucketSettings, Difference
    from a2a_gcs.objectstore.gcs_control import BucketState

bucket = typer.Typer(name="bucket", help="The settings of the bucket itself.", no_args_is_help=True)


@bucket.callback()
def _options() -> None: ...


def apply(
    *,
    store: Annotated[
        str, typer.Option(envvar="A2A_GCS_STORE", metavar="URI", help="The bucket: gs://bucket\\[/prefix].")
    ],
    soft_delete_days: Annotated[
        int,
        typer.Option(
            metavar="DAYS",
            help="For how long deleted and overwritten objects can be brought back, and are billed: 0, or 7 to 90.",
        ),
    ] = 0,
    versioning: Annotated[
        bool, typer.Option("--versioning", help="Keep what is overwritten as noncurrent versions, for a week.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the difference and change nothing; status 1 if there is one.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Change settings that the label managed-by says are somebody else's.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
) -> None:
    """Bring a bucket to the settings that it should have, and show what differed.

    Uniform access, no public access, soft delete as given, no versioning unless asked for, and lifecycle rules for
    leftovers alone. Where the store has a prefix, so that others may use the bucket too, their lifecycle rules stay.
    Afterwards the label managed-by says a2a-gcs; a bucket of Terraform's is left to Terraform.
    """
    from a2a_gcs.cli.errors import FAILED, CommandFailed  # noqa: PLC0415
    from a2a_gcs.errors import ConfigError  # noqa: PLC0415
    from a2a_gcs.host.logging import configure_logging  # noqa: PLC0415
    from a2a_gcs.objectstore import bucket_settings  # noqa: PLC0415
    from a2a_gcs.objectstore.gcs_control import BucketControl  # noqa: PLC0415 - imports a storage client
    from a2a_gcs.objectstore.location import bucket_of  # noqa: PLC0415

    name, prefix = bucket_of(store)
    configure_logging("warning")
    try:
        want = bucket_settings.wanted(soft_delete_days=soft_delete_days, versioning=versioning)
    except ValueError as error:
        raise ConfigError(f"--soft-delete-days: {error}") from error
    control = BucketControl(name)
    seen = control.state()
    if prefix:
        want = bucket_settings.keeping_foreign_rules(seen.settings, want)
    found = bucket_settings.differences(seen.settings, want)
    owner = seen.labels.get(bucket_settings.MANAGED_BY, "")
    foreign = owner not in {"", bucket_settings.US}
    if dry_run or (foreign and found and not force):
        _show(name, owner, found, as_json=as_json, applied=False)
        if found and not dry_run:
            raise CommandFailed(
                f"the settings of bucket {name} are {owner}'s (label {bucket_settings.MANAGED_BY}): change them there, "
                "as they would be changed back; --force changes them all the same. Nothing was changed"
            )
        raise typer.Exit(FAILED if found else 0)
    labels = {} if foreign and not force else {bucket_settings.MANAGED_BY: bucket_settings.US}
    if found or any(seen.labels.get(key) != value for key, value in labels.items()):
        control.apply(want, labels, seen=seen)
        _expect_applied(control.state(), want)
    _show(name, labels.get(bucket_settings.MANAGED_BY, owner), found, as_json=as_json, applied=True)


def _expect_applied(state: "BucketState", want: "BucketSettings") -> None:
    from a2a_gcs.cli.errors import CommandFailed  # noqa: PLC0415
    from a2a_gcs.objectstore.bucket_settings import differences  # noqa: PLC0415

    if left := differences(state.settings, want):
        raise CommandFailed(
            f"the bucket took the change, and {', '.join(d.setting for d in left)} is still not as wanted; "
            "an organization policy may forbid it"
        )


bucket.command(help=paragraphs(apply))(apply)


def _show(name: str, owner: str, found: "Sequence[Difference]", *, as_json: bool, applied: bool) -> None:
    if as_json:
        changes = [{"setting": d.setting, "now": d.now, "wanted": d.wanted} for d in found]
        typer.echo(json.dumps({"bucket": name, "managedBy": owner or None, "differences": changes, "applied": applied}))
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    whose = f"managed by {owner}" if owner else "managed by nobody: it has no label managed-by"
    if not found:
        typer.echo(f"bucket {name} is as it should be ({whose})")
        return
    table = Table("setting", "was" if applied else "is", "now" if applied else "would be", title_justify="left")
    for difference in found:
        table.add_row(difference.setting.replace("_", " "), difference.now, difference.wanted)
    Console().print(table)
    typer.echo(f"bucket {name} {'was changed' if applied else 'is not as it should be'} ({whose})")
