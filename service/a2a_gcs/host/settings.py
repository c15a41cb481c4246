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
    agent: Annotated[
        str, Field(description="The agent to host: demo, command:PROGRAM or package.module:attribute.")
    ] = "demo"
    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8080
    work_dir: Annotated[
        Path | None, Field(description="Where running tasks get their directories; default: a temporary directory.")
    ] = None
    public_url: Annotated[
        HttpUrl | None, Field(description="Origin that the agent card names; default: the address that is served.")
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
    store_budget_seconds: Annotated[
        float, Field(gt=0, description="How long one request retries a store that is throttled or unavailable.")
    ] = 20.0
    max_workspace_bytes: Annotated[int, Field(gt=0, description="Most bytes that a workspace may hold, unpacked.")] = (
        20 * 1024**3
    )
    max_workspace_files: Annotated[int, Field(gt=0, description="Most entries that a workspace may hold.")] = 1_000_000
    command_env: Annotated[
        str,
        Field(
            description="Further environment variables that a command agent gets, as names or patterns "
            "such as OPENAI_*, separated by commas."
        ),
    ] = ""
    command_home: Annotated[
        Literal["tmp", "workspace"],
        Field(
            description="HOME of a command agent. tmp: an empty directory for each message. "
            "workspace: .home in the workspace, which the next task finds again."
        ),
    ] = "tmp"
    command_max_output: Annotated[
        int,
        Field(gt=0, description="Most bytes that a command agent may write to its output, and put into its outbox."),
    ] = 16 * 1024**2
    command_grace_seconds: Annotated[
        float, Field(ge=0, description="What a command agent gets between TERM and KILL.")
    ] = 5.0
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
