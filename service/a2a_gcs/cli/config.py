"""`a2a-gcs config show`: the settings that `serve` would use, and where each comes from."""

import functools
import inspect
import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from a2a_gcs.cli.serve import serve, settings_of

if TYPE_CHECKING:
    from a2a_gcs.host.settings import AgentSettings, Settings

Source = Literal["option", "env", "file", "default"]

config = typer.Typer(name="config", help="Look at the settings.", no_args_is_help=True)


def _show(ctx: typer.Context, *, as_json: bool, **options: Any) -> None:
    """Show the settings that `serve` with the same options, environment and file would use, and where each is from.

    The first one that says something counts: option, environment, file, default. Secrets are masked.
    """
    given = {name: value for name, value in options.items() if name != "config" and _on_the_command_line(ctx, name)}
    path: Path | None = options["config"]
    settings = settings_of(path, **{name: value for name, value in options.items() if name != "config"})
    in_file = frozenset(tomllib.loads(path.read_text())) if path else frozenset[str]()
    sources = {name: _source(name, given, in_file) for name in type(settings).model_fields}
    _print(settings, sources, as_json=as_json)


def _on_the_command_line(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _source(name: str, given: dict[str, Any], in_file: frozenset[str]) -> Source:
    variables = [f"A2A_GCS_{name.upper()}", *(["PORT"] if name == "port" else [])]
    if name in given:
        return "option"
    if any(os.environ.get(variable) for variable in variables) and not (name == "agents" and name in in_file):
        return "env"
    return "file" if name in in_file else "default"


def _print(settings: "Settings", sources: dict[str, Source], *, as_json: bool) -> None:
    from a2a_gcs.cli import tables  # noqa: PLC0415

    values = settings.model_dump(mode="json")  # pydantic masks what is a secret
    values["work_dir"] = str(settings.work_directory)
    values["agents"] = [agent.model_dump(mode="json") for agent in settings.hosted()] if settings.agents else []
    if as_json:
        for name, value in values.items():
            tables.print_json({"name": name, "value": value, "source": sources[name]})
        return
    del values["agents"]
    rows = [(name, _text(value), sources[name]) for name, value in values.items()]
    rows += [(f"agents.{agent.name}", _own(agent), sources["agents"]) for agent in settings.agents]
    tables.print_paged(tables.table(("setting", "value", "source"), rows))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return json.dumps(value)  # as it is set
    return "-" if value in {None, ""} else str(value)


def _own(agent: "AgentSettings") -> str:
    """What an `[[agents]]` table says for itself; the rest is as for the host, and has a line already."""
    own = agent.model_dump(mode="json", exclude_unset=True, exclude={"name", "agent"})
    return " ".join(f"{name}={_text(value)}" for name, value in {"agent": agent.agent, **own}.items())


def _with_the_options_of_serve() -> Any:
    """`show` takes what `serve` takes, so that a command line can be tried by writing `config show` for `serve`."""

    @functools.wraps(_show)
    def show(ctx: typer.Context, **options: Any) -> None:
        _show(ctx, **options)

    own = inspect.signature(_show).parameters
    as_json = own["as_json"].replace(
        default=False,
        annotation=Annotated[bool, typer.Option("--json", help="One line of JSON for each setting.")],
    )
    known = inspect.signature(serve).parameters
    parameters = [own["ctx"], *known.values(), as_json]
    show.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    show.__annotations__ = {p.name: p.annotation for p in parameters}
    del show.__wrapped__
    return show


config.command(name="show")(_with_the_options_of_serve())
