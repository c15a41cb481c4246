"""`a2a-gcs dev`: emulator, bucket and host on this machine, in one process tree."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from a2a_gcs.cli.serve import settings_of

PORT_WAIT = 10.0
"""Seconds that a port of the last run may still be in use: its emulator notices a killed parent a moment later."""


def dev(
    *,
    port: Annotated[
        int, typer.Option(envvar="A2A_GCS_PORT", min=0, max=65535, help="Port of the host; 0 picks a free one.")
    ] = 8080,
    emulator_port: Annotated[
        int,
        typer.Option(
            envvar="A2A_GCS_EMULATOR_PORT", min=0, max=65535, help="Port of the emulator; 0 picks a free one."
        ),
    ] = 4443,
    data: Annotated[
        Path, typer.Option(envvar="A2A_GCS_DATA", metavar="DIR", help="Where the emulator keeps its objects.")
    ] = Path(".a2a-gcs/data"),
    bucket: Annotated[
        str, typer.Option(envvar="A2A_GCS_BUCKET", metavar="NAME", help="Bucket to create, if need be, and to use.")
    ] = "a2a-gcs-dev",
    agent: Annotated[
        str,
        typer.Option(envvar="A2A_GCS_AGENT", metavar="SPEC", help="demo, command:PROGRAM or package.module:attribute."),
    ] = "demo",
    plain: Annotated[bool, typer.Option("--plain", help="Emulator without the rules of real GCS.")] = False,
) -> None:
    """Serve an agent over a Cloud Storage emulator on this machine; data stays between runs.

    Ctrl-C stops both.
    """
    settings = settings_of(store=f"gs://{bucket}", agent=agent, port=port)
    from a2a_gcs.cli.emulator import Emulator  # noqa: PLC0415
    from a2a_gcs.cli.hosting import Host, host_until_stopped  # noqa: PLC0415  # imports the whole host

    with Emulator(port=emulator_port, data=data, bucket=bucket, plain=plain, port_wait=PORT_WAIT) as emulator:
        os.environ["STORAGE_EMULATOR_HOST"] = emulator.url

        def ready(host: Host) -> None:
            emulator.when_lost(host.stop)
            typer.echo(_introduction(host.url, emulator.url, data, bucket), err=True)

        host_until_stopped(settings, port_wait=PORT_WAIT, ready=ready)
        emulator.check()


def _introduction(url: str, emulator_url: str, data: Path, bucket: str) -> str:
    name = shlex.quote(_called())
    return f"""\
agent     {url}  (card: {url}/.well-known/agent-card.json, API: {url}/docs)
bucket    {emulator_url}/storage/v1/b/{bucket}/o, kept in {data}
console   {url}/console
try       {name} send --url {url} --context demo 'hello'
look      STORAGE_EMULATOR_HOST={emulator_url} {name} tasks --store gs://{bucket}
or        curl -s {url}/ -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d '{{"jsonrpc":"2.0","id":1,\
"method":"SendMessage","params":{{"message":{{"messageId":"m1","contextId":"demo","role":"ROLE_USER",\
"parts":[{{"text":"hello"}}]}}}}}}'
stop      Ctrl-C"""


def _called() -> str:
    """The command as this shell finds it: from a clone it is not on the PATH."""
    here = Path(sys.argv[0])
    found = shutil.which("a2a-gcs")
    return "a2a-gcs" if here.name != "a2a-gcs" or (found and Path(found).samefile(here)) else str(here)
