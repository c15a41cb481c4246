"""The command line of a command agent, from SPEC to argv, and its environment; pure but for the program's look-up."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from a2a_gcs.errors import A2AGcsError, ConfigError

PASSED_ON = ("PATH", "LANG", "LANGUAGE", "LC_*", "TERM", "TZ", "TMPDIR")
"""Variables of the host that every program gets; the setting command_env adds to them."""

NEVER = "A2A_GCS_*"
"""The host's own settings, which no setting passes on."""

_PLACEHOLDER = re.compile(r"\{(text|task|context|workspace|message_file)\}")


class MessageRefused(A2AGcsError):
    """A message that cannot be given to the program in this form; the text is what the caller reads."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A program and its arguments, with placeholders.

    Attributes:
        words: The program by its absolute path, then the arguments.
    """

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> CommandLine:
        """Splits like a shell does, but runs none: `*`, `$X`, `|` and `>` are characters like any other.

        A program without a slash is looked up on PATH, another one from the current
        directory, once and here: the workspace cannot put its own in the place.

        Raises:
            ConfigError: It cannot be split, or there is no such program.
        """
        spec = f"agent 'command:{text}'"
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"{spec} cannot be split into words: {error}") from error
        if not words or not words[0]:
            raise ConfigError(f"{spec} names no program; write command:PROGRAM ARGUMENTS")
        if _PLACEHOLDER.search(words[0]):
            raise ConfigError(f"{spec}: the program itself cannot come from a placeholder")
        program = shutil.which(words[0])
        if program is None:
            where = "here" if "/" in words[0] else "on PATH"
            raise ConfigError(f"{spec}: there is no program {words[0]!r} {where} that may be run")
        return cls((str(Path(program).absolute()), *words[1:]))

    @property
    def name(self) -> str:
        """The program, as people call it."""
        return Path(self.words[0]).name

    @property
    def reads_stdin(self) -> bool:
        """The message is given on standard input, as no argument takes it."""
        return not any("{text}" in word or "{message_file}" in word for word in self.words)

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """The words with their placeholders replaced, each once: what comes from a message is not looked at again.

        Raises:
            MessageRefused: The program could take the message for an option.
        """
        text = values["text"]
        for place, word in enumerate(self.words):
            if word.startswith("{text}") and text.startswith("-") and "--" not in self.words[1:place]:
                raise MessageRefused(
                    f"A message that begins with '-' could be taken for an option of {self.name}. "
                    "Send it with other words first."
                )
        return [_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in self.words]


def environment(host: Mapping[str, str], more: Iterable[str], own: Mapping[str, str]) -> dict[str, str]:
    """What a program finds in its environment.

    Args:
        host: The host's own variables, of which only those that are named get through.
        more: Names, or patterns like `OPENAI_*`, beside PASSED_ON.
        own: Variables of this turn; they win.
    """
    patterns = (*PASSED_ON, *more)
    passed = {
        name: value
        for name, value in host.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) and not fnmatch.fnmatchcase(name, NEVER)
    }
    return {"PATH": os.defpath, **passed, **own}
