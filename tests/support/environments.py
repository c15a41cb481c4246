"""Python environments beside the project's own, for tools and clients that do not go together with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

UV = Path(sys.executable).with_name("uv")


def make(directory, *wanted):
    """Makes an environment and installs into it what pip's arguments name.

    uv takes seconds where pip takes minutes, but does not read pip's settings: where it cannot do it, pip does.
    """
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = Path(directory) / "bin" / "python"
    if subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *wanted], check=False).returncode:
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)


if __name__ == "__main__":
    make(*sys.argv[1:])
