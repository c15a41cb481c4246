"""From an agent SPEC, as written on the command line, to the executor that it names."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from a2a.server.agent_execution import AgentExecutor

from a2a_gcs.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from a2a_gcs.executors.command import CommandOptions

FORMS = (
    "an agent is `demo`, `command:PROGRAM ARGUMENTS` or `package.module:attribute` "
    "(an a2a-sdk AgentExecutor instance, class or factory)"
)
COMMAND = "command:"

_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_PYTHON_SPEC = re.compile(rf"({_DOTTED}):({_DOTTED})")


def load_agent(spec: str, command: CommandOptions | None = None) -> AgentExecutor:
    """The executor that a SPEC names. Importing the module runs it, from the current directory or what is installed.

    Args:
        spec: `demo`; `command:` and a command line; or `package.module:attribute`
            where the attribute is an AgentExecutor, a subclass that takes no
            arguments, or a function without arguments that returns one.
        command: What the host gives to a command agent.

    Raises:
        ConfigError: The SPEC has another form, or what it names cannot be
            used; the message says which of the steps failed.
    """
    if spec == "demo":
        from a2a_gcs.executors.demo import DemoAgent  # noqa: PLC0415  # loaded only when asked for

        return DemoAgent()
    if spec.startswith(COMMAND):
        return _command(spec.removeprefix(COMMAND), command)
    match = _PYTHON_SPEC.fullmatch(spec)
    if match is None:
        raise ConfigError(f"agent {spec!r} is not understood; {FORMS}")
    module_name, attribute = match.groups()
    return _instance(spec, _attribute(spec, _module(spec, module_name), attribute))


def _command(line: str, options: CommandOptions | None) -> AgentExecutor:
    from a2a_gcs.executors.command import CommandAgent  # noqa: PLC0415  # loaded only when asked for
    from a2a_gcs.executors.command_line import CommandLine  # noqa: PLC0415

    parsed = CommandLine.parse(line)
    if options is None:
        raise ConfigError("a command agent needs a host that it runs under")
    return CommandAgent(parsed, options)


def _module(spec: str, name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # a console script does not have the current directory there
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"agent {spec!r}: module {error.name} was not found ({error}), "
                f"neither in the current directory nor installed beside {sys.executable}"
            ) from error
        raise ConfigError(f"agent {spec!r}: importing {name} failed inside it: {_described(error)}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"agent {spec!r}: importing {name} failed inside it: {_described(error)}") from error


def _attribute(spec: str, module: Any, path: str) -> Any:
    found, walked = module, module.__name__
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(f"agent {spec!r}: {walked} has no attribute {name!r}") from error
        walked = f"{walked}.{name}"
    return found


def _instance(spec: str, found: Any) -> AgentExecutor:
    if isinstance(found, AgentExecutor):
        return found
    if isinstance(found, type) and not issubclass(found, AgentExecutor):
        raise ConfigError(f"agent {spec!r}: class {found.__name__} is not an a2a-sdk AgentExecutor; {FORMS}")
    if not callable(found):
        raise ConfigError(f"agent {spec!r} is {_a(found)}, not an AgentExecutor; {FORMS}")
    made = _called(spec, found)
    if not isinstance(made, AgentExecutor):
        raise ConfigError(f"agent {spec!r} returned {_a(made)}, not an AgentExecutor; {FORMS}")
    return made


def _called(spec: str, factory: Callable[[], Any]) -> Any:
    if inspect.iscoroutinefunction(factory):
        raise ConfigError(f"agent {spec!r} is an async function; the factory must be a plain one")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ConfigError(f"agent {spec!r} must be callable without arguments: {error}") from error
    except ValueError:
        pass  # no signature to look at: the call itself tells
    try:
        made = factory()
    except Exception as error:
        raise ConfigError(f"agent {spec!r}: creating it failed: {_described(error)}") from error
    if asyncio.iscoroutine(made):
        made.close()
        raise ConfigError(f"agent {spec!r} returned a coroutine; the factory must be a plain function")
    return made


def _described(error: BaseException) -> str:
    """Type, text and the line that raised it: enough to find the mistake without a traceback."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    if isinstance(error, SyntaxError) or not frames:
        return text
    return f"{text} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _a(value: object) -> str:
    return f"a {type(value).__name__}"
