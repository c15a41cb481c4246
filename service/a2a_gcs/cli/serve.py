"""`a2a-gcs serve`: one host in the foreground."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from a2a_gcs.host.settings import Settings

# The defaults shown are those of `Settings`, repeated so that --help does not import it; a test compares them.


def serve(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="A2A_GCS_CONFIG",
            metavar="FILE",
            help="TOML file with settings, and \\[\\[agents]] tables for several agents. Options and environment win.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_STORE",
            show_default="memory",
            metavar="URI",
            help="Where everything is kept: memory, file:<dir> or gs://bucket\\[/prefix].",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_AGENT",
            show_default="demo",
            metavar="SPEC",
            help="The agent to host: demo, command:PROGRAM or package.module:attribute.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(envvar="A2A_GCS_HOST", show_default="127.0.0.1", help="Address to listen on.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            envvar=["A2A_GCS_PORT", "PORT"], show_default="8080", help="Port to listen on; 0 picks a free one."
        ),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            envvar="A2A_GCS_GRPC_PORT",
            show_default="no gRPC",
            help="Port for gRPC, beside HTTP; 0 picks a free one, which the log names.",
        ),
    ] = None,
    grpc_only: Annotated[
        bool | None,
        typer.Option(
            "--grpc-only",
            envvar="A2A_GCS_GRPC_ONLY",
            show_default=False,
            help="Serve gRPC, and no HTTP, on the port: for platforms that route one port a service.",
        ),
    ] = None,
    advertise_grpc: Annotated[
        bool | None,
        typer.Option(
            "--advertise-grpc",
            envvar="A2A_GCS_ADVERTISE_GRPC",
            show_default=False,
            help="List gRPC in the agent card; some clients then reject the card.",
        ),
    ] = None,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="A2A_GCS_WORK_DIR",
            show_default="a temporary directory",
            metavar="DIR",
            help="Where running tasks get their directories.",
        ),
    ] = None,
    allow_unauthenticated: Annotated[
        bool | None,
        typer.Option(
            "--allow-unauthenticated",
            envvar="A2A_GCS_ALLOW_UNAUTHENTICATED",
            show_default=False,
            help="Listen beyond loopback without authentication, as something in front does it.",
        ),
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_AUTH",
            show_default="none",
            metavar="none|tokens|oidc|google|iap|cloud-run-iam",
            help="How callers prove who they are; all but none may listen beyond loopback.",
        ),
    ] = None,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            envvar="A2A_GCS_TOKENS_FILE", metavar="FILE", help="tokens: a name:token a line, or name:sha256:HEX."
        ),
    ] = None,
    auth_issuer: Annotated[
        str | None,
        typer.Option(envvar="A2A_GCS_AUTH_ISSUER", metavar="URL", help="oidc: the issuer, as in the iss claim."),
    ] = None,
    auth_audience: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_AUTH_AUDIENCE", metavar="AUD", help="oidc, google, iap: accepted values of the aud claim."
        ),
    ] = None,
    auth_jwks_url: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_AUTH_JWKS_URL",
            show_default="where the issuer says",
            metavar="URL",
            help="oidc, google, iap: where the issuer's keys are.",
        ),
    ] = None,
    auth_owner_claim: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_AUTH_OWNER_CLAIM",
            show_default="sub",
            metavar="CLAIM",
            help="Claim that names the owner: sub, or email where it is verified.",
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_PUBLIC_URL",
            show_default="the address that is served",
            metavar="URL",
            help="Origin that the agent card names.",
        ),
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_ANSWERS",
            show_default="task",
            metavar="task|message",
            help="task: every message becomes a task. message: the agent may answer with a plain Message.",
        ),
    ] = None,
    resume_from: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_RESUME_FROM",
            show_default="completed",
            metavar="completed|terminal",
            help="Whose workspace a new task starts from: the last completed task, or the last that ended at all.",
        ),
    ] = None,
    lease_seconds: Annotated[
        int | None,
        typer.Option(
            envvar="A2A_GCS_LEASE_SECONDS",
            show_default="30",
            help="A host that has not renewed its heartbeat for this long is taken for dead.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="A2A_GCS_METRICS_PORT",
            show_default="none",
            help="Also serve metrics on this port of 127.0.0.1, for a collector beside the host.",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            envvar="A2A_GCS_LOG_LEVEL",
            show_default="info",
            metavar="debug|info|warning|error",
            help="Least severity that is logged, to stderr.",
        ),
    ] = None,
) -> None:
    """Serve an agent, or several, over A2A until SIGTERM or Ctrl-C.

    Prints one line, `listening on http://HOST:PORT`, on stdout when ready (`grpc://` with --grpc-only).
    """
    settings = settings_of(
        config,
        store=store,
        agent=agent,
        host=host,
        port=port,
        grpc_port=grpc_port,
        grpc_only=grpc_only,
        advertise_grpc=advertise_grpc,
        work_dir=work_dir,
        allow_unauthenticated=allow_unauthenticated,
        auth=auth,
        tokens_file=tokens_file,
        auth_issuer=auth_issuer,
        auth_audience=auth_audience,
        auth_jwks_url=auth_jwks_url,
        auth_owner_claim=auth_owner_claim,
        public_url=public_url,
        answers=answers,
        resume_from=resume_from,
        lease_seconds=lease_seconds,
        metrics_port=metrics_port,
        log_level=log_level,
    )
    from a2a_gcs.cli.hosting import host_until_stopped  # noqa: PLC0415  # imports the whole host

    host_until_stopped(settings)


def settings_of(config: Path | None = None, **options: Any) -> "Settings":
    """Settings from the options that were given; the environment, a file and the defaults fill the rest."""
    from a2a_gcs.host.settings import load_settings  # noqa: PLC0415  # 0.2 s

    return load_settings(config, {name: value for name, value in options.items() if value is not None})
