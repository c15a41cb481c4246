"""Every setting of the host, from the environment (`A2A_GCS_<NAME>`) or the command line.

Defaults are safe for a laptop: memory store, demo agent, loopback only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, HttpUrl, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
HOST_LEASE_SECONDS = 30
"""After this long without a renewed heartbeat others take over a host's tasks (DESIGN 4)."""


class Settings(BaseSettings):
    """What can be set; each field's description is its documentation."""

    model_config = SettingsConfigDict(env_prefix="A2A_GCS_", extra="forbid", frozen=True)

    store: Annotated[
        str, Field(description="Where everything is kept: memory, file:<dir> or gs://bucket[/prefix].")
    ] = "memory"
    agent: Annotated[str, Field(description="The agent to host: demo or package.module:attribute.")] = "demo"
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8080
    grpc_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="Port for gRPC, beside HTTP; 0 picks a free one; default: no gRPC."),
    ] = None
    grpc_only: Annotated[
        bool, Field(description="Serve gRPC, and no HTTP, on the port: for platforms that route one port a service.")
    ] = False
    advertise_grpc: Annotated[
        bool,
        Field(
            description="List gRPC in the agent card, as host:port. "
            "Some clients reject a whole card that lists another origin than its own."
        ),
    ] = False
    work_dir: Annotated[
        Path | None, Field(description="Where running tasks get their directories; default: a temporary directory.")
    ] = None
    public_url: Annotated[
        HttpUrl | None, Field(description="Origin that the agent card names; default: the address that is served.")
    ] = None
    card_max_age_seconds: Annotated[
        int, Field(ge=0, description="How long clients may keep the agent card without asking again.")
    ] = 300
    card_signing_key: Annotated[
        Path | None,
        Field(description="File with a private key in PEM (EC, RSA or Ed25519) that signs the agent card."),
    ] = None
    card_signing_key_id: Annotated[
        str | None, Field(description="The signature's key id; default: the SHA-256 of the public key.")
    ] = None
    cors_origins: Annotated[
        str | None,
        Field(description="Origins whose pages may call this host, separated by commas, or *; default: none."),
    ] = None
    allow_unauthenticated: Annotated[
        bool, Field(description="Listen beyond loopback without authentication, as something in front does it.")
    ] = False
    answers: Annotated[
        Literal["task", "message"],
        Field(
            description="task: every message becomes a task, published at once. "
            "message: the agent may answer with a plain Message, which leaves no task behind."
        ),
    ] = "task"
    resume_from: Annotated[
        Literal["completed", "terminal"],
        Field(
            description="completed: a new task starts from the workspace of the most recently completed task. "
            "terminal: also from one that failed or was rejected, if its workspace was saved."
        ),
    ] = "completed"
    lease_seconds: Annotated[
        int,
        Field(ge=3, description="A host that has not renewed its heartbeat for this long is taken for dead."),
    ] = HOST_LEASE_SECONDS
    on_shutdown: Annotated[
        Literal["park", "fail"],
        Field(
            description="What becomes of a running task when its host is stopped. "
            "park: it waits, with its files, for a message that continues it on the next host. fail: it fails."
        ),
    ] = "park"
    max_run_seconds: Annotated[
        float | None, Field(gt=0, description="Longest that an agent may run for one message; default: any time.")
    ] = None
    max_wait_seconds: Annotated[
        int,
        Field(ge=0, description="Longest that a task may wait for an answer before it fails; 0: any time."),
    ] = 0
    max_running_tasks: Annotated[
        int | None, Field(ge=1, description="Most tasks that run on this host at a time; default: any number.")
    ] = None
    max_running_tasks_per_owner: Annotated[
        int | None, Field(ge=1, description="Most of them that one owner may have; default: any number.")
    ] = None
    max_request_bytes: Annotated[
        int,
        Field(ge=1024, lt=32 * 1024**2, description="Largest request; Cloud Run itself cuts HTTP/1 off at 32 MiB."),
    ] = 30 * 1024**2
    max_parts: Annotated[int, Field(ge=1, description="Most parts that a message may have.")] = 1000
    store_budget_seconds: Annotated[
        float, Field(gt=0, description="How long one request retries a store that is throttled or unavailable.")
    ] = 20.0
    max_workspace_bytes: Annotated[int, Field(gt=0, description="Most bytes that a workspace may hold, unpacked.")] = (
        20 * 1024**3
    )
    max_workspace_files: Annotated[int, Field(gt=0, description="Most entries that a workspace may hold.")] = 1_000_000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severity that is logged, to stderr.")
    ] = "info"

    @model_validator(mode="after")
    def _loopback_unless_allowed(self) -> Self:
        if self.host not in LOOPBACK and not self.allow_unauthenticated:
            raise ValueError(
                f"host {self.host} is reachable from outside and there is no authentication; "
                "listen on 127.0.0.1, or set allow_unauthenticated if something in front checks callers"
            )
        return self

    @model_validator(mode="after")
    def _grpc_in_one_way(self) -> Self:
        if self.grpc_only and self.grpc_port is not None:
            raise ValueError("grpc_only serves gRPC on the port itself; leave grpc_port out, or serve HTTP as well")
        if self.advertise_grpc and not self.serves_grpc:
            raise ValueError("advertise_grpc lists what is not served; set grpc_port or grpc_only")
        return self

    @property
    def serves_grpc(self) -> bool:
        return self.grpc_only or self.grpc_port is not None
