"""What stays out of a snapshot: patterns of a setting, and those of the workspace's own `.a2aignore`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pathspec import GitIgnoreSpec

from a2a_gcs.workspaces.errors import WorkspaceError

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
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Ignore:
    """Matches paths below one workspace.

    `.a2aignore` can leave out more, but not bring back what the setting keeps out.
    """

    def __init__(self, setting: Sequence[str], own: Sequence[str] = ()) -> None:
        """Raises ValueError on a pattern that is none."""
        self._setting = GitIgnoreSpec.from_lines(setting)
        self._own = GitIgnoreSpec.from_lines(own)

    @classmethod
    def of(cls, root: int, setting: Sequence[str]) -> Ignore:
        """Reads `.a2aignore` from an open workspace, if there is one."""
        try:
            return cls(setting, _own_patterns(root))
        except ValueError as error:
            raise WorkspaceError(f"{IGNORE_FILE.decode()} cannot be used: {error}") from error

    def by_setting(self, path: bytes, *, directory: bool) -> bool:
        return self._setting.match_file(_subject(path, directory=directory))

    def by_workspace(self, path: bytes, *, directory: bool) -> bool:
        return self._own.match_file(_subject(path, directory=directory))


def _subject(path: bytes, *, directory: bool) -> str:
    return path.decode("utf-8", "surrogateescape") + "/" * directory


def _own_patterns(root: int) -> list[str]:
    try:
        fd = os.open(IGNORE_FILE, _REGULAR, dir_fd=root)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise WorkspaceError.of("read", IGNORE_FILE, error) from error
    try:
        data = os.read(fd, _MAX_SIZE + 1)
    except OSError as error:
        raise WorkspaceError.of("read", IGNORE_FILE, error) from error
    finally:
        os.close(fd)
    if len(data) > _MAX_SIZE:
        raise WorkspaceError(f"{IGNORE_FILE.decode()} is longer than {_MAX_SIZE:,} bytes")
    return data.decode("utf-8", "surrogateescape").splitlines()
