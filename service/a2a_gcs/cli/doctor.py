"""`a2a-gcs doctor`: looks for what people get wrong, and says how to fix it."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from a2a_gcs.doctor.checks import Result
    from a2a_gcs.doctor.patient import Patient
    from a2a_gcs.doctor.surroundings import Surroundings
    from a2a_gcs.host.settings import Settings


def doctor(
    *,
    store: Annotated[
        str | None,
        typer.Option(envvar="A2A_GCS_STORE", metavar="URI", help="The bucket: gs://bucket\\[/prefix] or file:<dir>."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The hosts' configuration file; A2A_GCS_* counts too.")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            envvar="GOOGLE_CLOUD_PROJECT", metavar="PROJECT", help="Whose the bucket should be, by id or number."
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(metavar="REGION", help="Where the service runs; on Cloud Run it is known.", show_default=False),
    ] = None,
    run_service: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The Cloud Run service; on Cloud Run it is known.", show_default=False),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired beside running hosts.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each check.")] = False,
) -> None:
    """Check a bucket and the settings of its hosts, and say how to fix what is wrong.

    Reads everything that is listed, tries permissions on an object of its own below doctor/, and changes nothing
    without --fix. Status 0: all good, 1: something was found that is not repaired.
    """
    from a2a_gcs.cli.errors import FAILED  # noqa: PLC0415
    from a2a_gcs.cli.serve import settings_of  # noqa: PLC0415
    from a2a_gcs.doctor.surroundings import Surroundings  # noqa: PLC0415
    from a2a_gcs.host.logging import configure_logging  # noqa: PLC0415

    settings = settings_of(config, store=store)
    configure_logging("error")
    surroundings = Surroundings(os.environ, project, region, run_service)
    results = asyncio.run(_examined(settings, surroundings, fix=fix))
    if as_json:
        for result in results:
            typer.echo(json.dumps(_as_json(result)))
    else:
        _show(results)
    if any(result.findings and not result.mended for result in results):
        raise typer.Exit(FAILED)


async def _examined(settings: "Settings", surroundings: "Surroundings", *, fix: bool) -> "list[Result]":
    from a2a_gcs.doctor.access import ACCESS  # noqa: PLC0415
    from a2a_gcs.doctor.checks import examine  # noqa: PLC0415
    from a2a_gcs.doctor.records import RECORDS  # noqa: PLC0415
    from a2a_gcs.doctor.runtime import RUNTIME  # noqa: PLC0415
    from a2a_gcs.doctor.settings import SETTINGS  # noqa: PLC0415

    async with _patient(settings, surroundings) as patient:
        checks = (*ACCESS, *SETTINGS, *RUNTIME, *RECORDS)
        return [result async for result in examine(patient, checks, fix=fix)]


@asynccontextmanager
async def _patient(settings: "Settings", surroundings: "Surroundings") -> "AsyncIterator[Patient]":
    from a2a_gcs.doctor.patient import Patient  # noqa: PLC0415
    from a2a_gcs.objectstore import open_existing  # noqa: PLC0415
    from a2a_gcs.objectstore.gcs_control import BucketControl  # noqa: PLC0415
    from a2a_gcs.objectstore.location import bucket_of  # noqa: PLC0415
    from a2a_gcs.root_shapes import Hosting  # noqa: PLC0415

    uri = settings.store
    control = BucketControl(bucket_of(uri)[0]) if uri.startswith("gs://") else None
    hosting = Hosting(several_agents=bool(settings.agents), authenticated=settings.authenticated)
    async with open_existing(uri) as opened:
        yield Patient(uri, opened, control, hosting, surroundings)


def _as_json(result: "Result") -> dict[str, object]:
    return {
        "check": result.check.id,
        "status": _status(result),
        "findings": [{"found": f.found, "fix": f.fix, "fixable": f.repair is not None} for f in result.findings],
        **({"more": result.more} if result.more else {}),
        **({"notChecked": result.not_checked} if result.not_checked else {}),
        **({"repaired": result.repaired} if result.repaired else {}),
        **({"notRepaired": result.not_repaired} if result.not_repaired else {}),
    }


def _status(result: "Result") -> str:
    if result.not_checked is not None:
        return "not checked"
    return str(result.check.severity) if result.findings else "ok"


_STYLES = {"ok": "green", "warning": "yellow", "error": "red", "not checked": "dim"}


def _show(results: "Sequence[Result]") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from a2a_gcs.cli.tables import lines  # noqa: PLC0415

    table = Table("check", "", "what was found, and how to fix it", box=None, pad_edge=False)
    for result in results:
        status = _status(result)
        table.add_row(result.check.id, Text(status, _STYLES[status]), lines("\n".join(_lines(result))))
    Console().print(table)
    bad = [result for result in results if result.findings and not result.mended]
    skipped = sum(result.not_checked is not None for result in results)
    told = f"{len(bad)} of {len(results)} checks found something" if bad else "all good"
    typer.echo(f"{told}, {skipped} could not be made" if skipped else told)


def _lines(result: "Result") -> list[str]:
    if result.not_checked is not None:
        return [result.not_checked]
    lines = [line for f in result.findings for line in (f.found, f"  fix: {f.fix}")]
    if result.more:
        lines.append(f"and {result.more:,} more")
    lines += [f"  done: {text}" for text in result.repaired]
    lines += [f"  not repaired: {text}" for text in result.not_repaired]
    return lines or [result.check.asks]
