"""How a command ends: one line `error: ...` on stderr, and a status that scripts can tell apart."""

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from a2a_gcs.errors import A2AGcsError, ConfigError

FAILED = 1
USAGE = 2
INTERRUPTED = 130


class CommandFailed(A2AGcsError):
    """A command could not do what it was asked to; the message says why and what to do."""


class Commands(TyperGroup):
    """The group of all commands: errors raised on purpose are printed without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            _end(str(error), USAGE)
        except A2AGcsError as error:
            _end(str(error), FAILED)
        except KeyboardInterrupt:
            _end("interrupted", INTERRUPTED)
        except ValueError as error:
            _end(invalid_settings(error), USAGE)


def paragraphs(command: Callable[..., None]) -> str:
    """A command's docstring as its help, without the line ends that typer keeps from the second paragraph on."""
    return "\n\n".join(" ".join(each.split()) for each in (inspect.getdoc(command) or "").split("\n\n"))


def invalid_settings(error: ValueError) -> str:
    """One line per setting that pydantic refused, named as it is set; another ValueError is a bug and goes on."""
    from pydantic import ValidationError  # noqa: PLC0415  # heavy, and rarely needed

    if not isinstance(error, ValidationError):
        raise error
    return "\n       ".join(_refused(dict(one)) for one in error.errors(include_url=False))


def _refused(error: dict[str, Any]) -> str:
    reason = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return reason
    name = str(error["loc"][0])
    return f"--{name.replace('_', '-')} or A2A_GCS_{name.upper()}: {reason}, not {error['input']!r}"


def _end(message: str, status: int) -> NoReturn:
    from a2a_gcs.workspaces.differences import shown  # noqa: PLC0415  # not needed for --help

    text = "\n".join(shown(line) for line in message.split("\n"))  # it may quote what is stored, or what a host says
    typer.echo(f"error: {text}", err=True)
    raise typer.Exit(status)
