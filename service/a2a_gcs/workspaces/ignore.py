"""What stays out of a snapshot: patterns of a setting, and those of the workspace's own `.a2aignore`."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from pathspec import GitIgnoreSpec

from a2a_gcs.errors import ConfigError
from a2a_gcs.workspaces.beneath import open_file
from a2a_gcs.workspaces.errors import WorkspaceError
from a2a_gcs.workspaces.notes import Notes

IGNORE_FILE = b".a2aignore"
"""In the workspace's top directory, in the syntax of .gitignore; it travels itself."""

CREDENTIALS = (
    ".netrc",
    ".git-credentials",
    ".pypirc",
    "application_default_credentials.json",
    "**/.ssh/id_*",
    "!**/.ssh/id_*.pub",
    "**/.aws/credentials",
    "**/.aws/sso/cache/",
    "**/.azure/msal_token_cache.*",
    "**/.cargo/credentials.toml",
    "**/.config/gcloud/",
    "**/.config/gh/hosts.yml",
    "**/.docker/config.json",
    "**/.kube/config",
)
"""Credential files that must not travel unless a setting says so; each one left out is noted."""

_MAX_SIZE = 1 << 20


class Ignore:
    """Matches paths below one workspace.

    `.a2aignore` can leave out more, but not bring back what the setting keeps out.
    """

    def __init__(self, setting: GitIgnoreSpec, own: GitIgnoreSpec) -> None:
        self._setting = setting
        self._own = own

    @classmethod
    def of(cls, root: int, setting: GitIgnoreSpec, notes: Notes) -> Ignore:
        """Reads `.a2aignore` from an open workspace, if there is one; lines that are no patterns are noted."""
        own: list[str] = []
        for number, line in enumerate(_own_lines(root), 1):
            try:
                GitIgnoreSpec.from_lines([line])
            except ValueError:
                notes.add(IGNORE_FILE, f"line {number} is no pattern and has no effect")
            else:
                own.append(line)
        return cls(setting, GitIgnoreSpec.from_lines(own))

    def by_setting(self, path: bytes, *, directory: bool) -> bool:
        return self._setting.match_file(_subject(path, directory=directory))

    def by_workspace(self, path: bytes, *, directory: bool) -> bool:
        return self._own.match_file(_subject(path, directory=directory))


NOTHING = Ignore(GitIgnoreSpec([]), GitIgnoreSpec([]))
"""Leaves nothing out."""


def patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    """Compiles the patterns of a setting. Raises ConfigError."""
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise ConfigError(f"the patterns to ignore have the syntax of .gitignore: {error}") from error


def _subject(path: bytes, *, directory: bool) -> str:
    return path.decode("utf-8", "surrogateescape") + "/" * directory


def _own_lines(root: int) -> list[str]:
    """The file's lines; none if it is a directory or a link, which is not followed."""
    try:
        if not stat.S_ISREG(os.stat(IGNORE_FILE, dir_fd=root, follow_symlinks=False).st_mode):
            return []
        fd = open_file(IGNORE_FILE, root)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise WorkspaceError.of("read", IGNORE_FILE, error) from error
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
        data = file.read(_MAX_SIZE + 1)
    if len(data) > _MAX_SIZE:
        raise WorkspaceError(f"{IGNORE_FILE.decode()} is longer than {_MAX_SIZE:,} bytes")
    return data.decode("utf-8", "surrogateescape").splitlines()
