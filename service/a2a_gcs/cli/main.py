"""The command `a2a-gcs`. Commands import what they need when they run, so that `--help` answers at once."""

from typing import Annotated

import typer

from a2a_gcs.cli.bucket import bucket
from a2a_gcs.cli.cancel import cancel
from a2a_gcs.cli.config import config
from a2a_gcs.cli.dev import dev
from a2a_gcs.cli.doctor import doctor
from a2a_gcs.cli.errors import Commands, paragraphs
from a2a_gcs.cli.gc import gc
from a2a_gcs.cli.listings import contexts, show, tasks
from a2a_gcs.cli.migrate import migrate
from a2a_gcs.cli.send import send
from a2a_gcs.cli.serve import serve
from a2a_gcs.cli.workspace import workspace

app = typer.Typer(
    name="a2a-gcs",
    cls=Commands,
    help="Hosts A2A agents whose only database is a Google Cloud Storage bucket.",
    epilog="Every option of serve is also an environment variable, A2A_GCS_<NAME>; options win.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, dev, send, cancel, contexts, tasks, show, doctor, migrate, gc):
    app.command(help=paragraphs(command))(command)
app.add_typer(workspace)
app.add_typer(config)
app.add_typer(bucket)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  # typer calls it with the flag's value
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415  # reads the disk

        typer.echo(f"a2a-gcs {version('a2a-gcs')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


def main() -> None:
    """Entry point of the distribution."""
    app()
