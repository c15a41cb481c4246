"""Every setting of the host, from the environment (`A2A_GCS_<NAME>`) or the command line.

Defaults are safe for a laptop: memory store, demo agent, loopback only.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from a2a_gcs.errors import ConfigError
from a2a_gcs.workspaces.ignore import CREDENTIALS

OWN_PATHS = frozenset({"console", "docs", "health", "metrics", "ready", "redoc"})
"""First segments of addresses that the host answers itself."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
HOST_LEASE_SECONDS = 30
"""After this long without a renewed heartbeat others take over a host's tasks (invariant I6)."""

_NEEDED = {"oidc": ("auth_issuer", "auth_audience"), "google": ("auth_audience",), "iap": ("auth_audience",)}
_TAKEN = {
    "tokens": ("tokens", "tokens_file"),
    "oidc": ("auth_issuer", "auth_audience", "auth_jwks_url"),
    "google": ("auth_audience", "auth_jwks_url"),
    "iap": ("auth_audience", "auth_jwks_url"),
    "cloud-run-iam": ("auth_audience",),
}
"""By mode of authentication: what it cannot do without, and what it reads. Another mode's is taken for a mistake."""


def listed(value: str | None) -> tuple[str, ...]:
    """The items of a setting that may have several, with commas between."""
    return tuple(item.strip() for item in (value or "").split(",") if item.strip())


def may_be_asked(url: str) -> bool:
    """Keys may come from there: over https, or from this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK))


class AgentOptions(BaseModel):
    """What can be set for a host, and for each of its agents otherwise."""

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
    max_workspace_bytes: Annotated[int, Field(gt=0, description="Most bytes that a workspace may hold, unpacked.")] = (
        20 * 1024**3
    )
    max_workspace_files: Annotated[int, Field(gt=0, description="Most entries that a workspace may hold.")] = 1_000_000
    workspace_ignore: Annotated[
        tuple[str, ...],
        Field(
            description="Patterns of what never enters a snapshot, in the syntax of .gitignore, as a JSON list; "
            "default: well-known credential files. A workspace adds its own in .a2aignore."
        ),
    ] = CREDENTIALS
    max_snapshot_seconds: Annotated[
        float | None, Field(gt=0, description="Longest that the snapshot at a turn's end may take, or the task fails.")
    ] = 600.0
    checkpoint_minutes: Annotated[
        float | None,
        Field(
            gt=0,
            description="Snapshot the workspace of a running task every so many minutes, for a message that takes up "
            "what a dead host left (metadata a2a-gcs/startFrom); default: only when a turn ends.",
        ),
    ] = None
    on_lost_workspace: Annotated[
        Literal["fail", "previous"],
        Field(
            description="What becomes of a task whose workspace is gone or damaged. fail: it fails and says so. "
            "previous: it says so, and starts from the last completed task whose workspace can be restored."
        ),
    ] = "fail"
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
    inline_part_bytes: Annotated[
        int,
        Field(
            ge=1024,
            description="Largest file that a task holds itself; larger ones, and what an artifact has beyond that, "
            "are kept beside it and referred to by URL.",
        ),
    ] = 256 * 1024
    max_task_bytes: Annotated[
        int, Field(ge=64 * 1024, description="Most bytes of a task without what is beside it; one that grows on fails.")
    ] = 64 * 1024**2


class AgentSettings(AgentOptions):
    """An `[[agents]]` table of the configuration file; what it leaves out is as in the settings of the host."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$", description="Names the agent and its root.")
    ]
    agent: Annotated[str, Field(description="The agent: demo, command:PROGRAM or package.module:attribute.")]
    path: Annotated[
        str, Field(pattern=r"^(/[A-Za-z0-9_-]+)*$", description="Where its routes begin; default: /<name>.")
    ] = ""
    description: Annotated[str, Field(description="What its card says of it, unless the agent brings a card.")] = ""


class Settings(AgentOptions, BaseSettings):
    """What can be set; each field's description is its documentation."""

    model_config = SettingsConfigDict(env_prefix="A2A_GCS_", env_ignore_empty=True, extra="forbid", frozen=True)

    store: Annotated[
        str, Field(description="Where everything is kept: memory, file:<dir> or gs://bucket[/prefix].")
    ] = "memory"
    agent: Annotated[
        str, Field(description="The agent to host: demo, command:PROGRAM or package.module:attribute.")
    ] = "demo"
    agents: Annotated[
        tuple[AgentSettings, ...],
        Field(description="Several agents in place of one, as [[agents]] tables of the configuration file."),
    ] = ()
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
        HttpUrl | None,
        Field(description="Origin that the card names; default: what is served, loopback for every address."),
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
    auth: Annotated[
        Literal["none", "tokens", "oidc", "google", "iap", "cloud-run-iam"],
        Field(
            description="How callers prove who they are. tokens: static bearer tokens. oidc: JWTs of an issuer. "
            "google: Google ID tokens. iap: the signed assertion of Identity-Aware Proxy. "
            "cloud-run-iam: tokens that Cloud Run has checked."
        ),
    ] = "none"
    tokens_file: Annotated[
        Path | None, Field(description="tokens: file with a name:token a line, read again when it changes.")
    ] = None
    tokens: Annotated[
        SecretStr | None, Field(description="tokens: the same lines as a value, with commas or line ends between.")
    ] = None
    auth_issuer: Annotated[str | None, Field(description="oidc: the issuer, to the letter of the iss claim.")] = None
    auth_audience: Annotated[
        str | None, Field(description="oidc, google, iap: accepted values of the aud claim, with commas between.")
    ] = None
    auth_jwks_url: Annotated[
        str | None, Field(description="oidc, google, iap: where the issuer's keys are; default: where it says.")
    ] = None
    auth_owner_claim: Annotated[
        str, Field(min_length=1, description="Claim that names the owner: sub, or email where it is verified.")
    ] = "sub"
    auth_algorithms: Annotated[str, Field(description="oidc: accepted signature algorithms, with commas between.")] = (
        "RS256,ES256"
    )
    auth_leeway_seconds: Annotated[
        int, Field(ge=0, le=300, description="How far the issuer's clock may be from ours.")
    ] = 30
    lease_seconds: Annotated[
        int,
        Field(ge=3, description="A host that has not renewed its heartbeat for this long is taken for dead."),
    ] = HOST_LEASE_SECONDS
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
    warm_workspace_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="Disk for directories of ended tasks, kept so that the next task of the context downloads "
            "nothing; on Cloud Run that is memory. 0: none.",
        ),
    ] = 256 * 1024**2
    console: Annotated[bool, Field(description="Serve the console, for browsers, at /console.")] = True
    push_notifications: Annotated[
        bool, Field(description="Offer push notifications, and send them: the host then makes requests to others.")
    ] = True
    push_allowed_hosts: Annotated[
        str | None,
        Field(
            description="Hosts that notifications may go to though they are not public or not https: names, addresses "
            "or patterns such as *.corp.example, each alone or with :port, separated by commas; default: none."
        ),
    ] = None
    push_retry_seconds: Annotated[
        float, Field(ge=0, description="How long a notification that fails is tried again before it is given up.")
    ] = 3600.0
    push_timeout_seconds: Annotated[
        float, Field(gt=0, description="Longest that a receiver of notifications may take to answer.")
    ] = 10.0
    metrics: Annotated[bool, Field(description="Keep metrics, and serve them at /metrics for Prometheus.")] = True
    metrics_public: Annotated[
        bool, Field(description="Serve /metrics without authentication; default: it needs what every other path does.")
    ] = False
    metrics_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65535,
            description="Also serve metrics on this port of 127.0.0.1, for a collector beside the host; default: none.",
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severity that is logged, to stderr.")
    ] = "info"

    @model_validator(mode="after")
    def _agents_apart(self) -> Self:
        for what, values in (
            ("name", [a.name for a in self.agents]),
            ("path", [a.path or f"/{a.name}" for a in self.agents]),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"two agents have the same {what}: {', '.join(sorted(values))}")
        for agent in self.agents:
            first = (agent.path or f"/{agent.name}").split("/")[1]
            if first in OWN_PATHS:
                raise ValueError(
                    f"agent {agent.name} cannot be at /{first}, which the host answers itself; set its path"
                )
        return self

    @model_validator(mode="after")
    def _loopback_unless_allowed(self) -> Self:
        if self.host in LOOPBACK:
            return self
        if self.auth == "none" and not self.allow_unauthenticated:
            raise ValueError(
                f"host {self.host} is reachable from outside and there is no authentication; "
                "listen on 127.0.0.1, choose one with --auth, "
                "or set allow_unauthenticated if something in front checks callers"
            )
        if self.auth == "cloud-run-iam" and not os.environ.get("K_SERVICE"):
            raise ValueError(
                "auth cloud-run-iam trusts whatever reaches this port; it is for Cloud Run, which sets K_SERVICE"
            )
        return self

    @model_validator(mode="after")
    def _auth_is_complete(self) -> Self:
        given = {name for names in _TAKEN.values() for name in names if getattr(self, name) is not None}
        taken = set(_TAKEN.get(self.auth, ()))
        if unread := sorted(given - taken):
            raise ValueError(f"{unread[0]} is set but auth {self.auth} does not read it; which is meant?")
        if self.auth == "tokens" and len(given) != 1:
            raise ValueError("auth tokens needs either tokens_file or tokens")
        if missing := [name for name in _NEEDED.get(self.auth, ()) if not listed(getattr(self, name))]:
            raise ValueError(f"auth {self.auth} needs {missing[0]}")
        for name in ("auth_issuer", "auth_jwks_url"):
            if (url := getattr(self, name)) is not None and not may_be_asked(url):
                raise ValueError(f"{name} has to begin with https://, not be {url}")
        return self

    @model_validator(mode="after")
    def _grpc_in_one_way(self) -> Self:
        if self.grpc_only and self.grpc_port is not None:
            raise ValueError("grpc_only serves gRPC on the port itself; leave grpc_port out, or serve HTTP as well")
        if self.advertise_grpc and not self.serves_grpc:
            raise ValueError("advertise_grpc lists what is not served; set grpc_port or grpc_only")
        return self

    @model_validator(mode="after")
    def _metrics_are_kept(self) -> Self:
        for name in ("metrics_public", "metrics_port"):
            if not self.metrics and getattr(self, name) not in (None, False):
                raise ValueError(f"{name} is about metrics, which are off; leave it out, or set metrics")
        return self

    @property
    def work_directory(self) -> Path:
        """Where running tasks get their directories."""
        return self.work_dir or Path(tempfile.gettempdir()) / "a2a-gcs"

    @property
    def serves_grpc(self) -> bool:
        return self.grpc_only or self.grpc_port is not None

    @property
    def authenticated(self) -> bool:
        """Whether callers are known, so that each has a root of its own."""
        return self.auth != "none"

    def hosted(self) -> tuple[AgentSettings, ...]:
        """The settings of each agent, complete: what its table leaves out is as for the host."""
        agents = self.agents or (AgentSettings(name="agent", agent=self.agent),)
        return tuple(each.model_copy(update=self._shared(each.model_fields_set)) for each in agents)

    def _shared(self, but: set[str]) -> dict[str, object]:
        return {name: getattr(self, name) for name in AgentOptions.model_fields if name not in but}


def load_settings(config: Path | None, given: Mapping[str, object]) -> Settings:
    """Settings from the command line, the environment and a TOML file; the first one that says something counts.

    Args:
        config: The file, or None.
        given: What the command line says.

    Raises:
        ConfigError: The file cannot be read, or is no TOML.
        ValidationError: A value is not allowed.
    """
    if config is None:
        return Settings(**given)  # type: ignore[arg-type]
    try:
        table = tomllib.loads(config.read_text())
    except (OSError, ValueError) as e:
        raise ConfigError(f"the configuration file {config} cannot be read: {e}") from e

    if not isinstance(table.get("agents", []), list):
        raise ConfigError(f"the configuration file {config} has to hold agents as [[agents]] tables")

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config)

    return FromFile(**given)  # type: ignore[arg-type]
