"""The programs that check infra/, in environments of their own: `make infra-tools` makes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
INFRA = REPOSITORY / "infra"


def tool(environment, name):
    """The path of a program, or a skip."""
    path = Path(sys.prefix) / environment / "bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not installed; run: make infra-tools")
    return path


def output(*command):
    """What a program writes to standard output, whatever its status."""
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def in_infra_tools(script, *arguments):
    """What a Python script prints that runs with the libraries of infra-tools."""
    done = output(tool("infra-tools", "python"), "-c", script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
