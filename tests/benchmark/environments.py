"""Where the servers that the product is compared with are installed: one environment each, in .venv/peers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.environments import make

REPOSITORY = Path(__file__).parents[2]
HOME = REPOSITORY / ".venv" / "peers"
DONE = ".installed"

PEERS = {
    "a2a-sdk": ["a2a-sdk[http-server,sqlite,postgresql]==1.3.0", "uvicorn>=0.34"],
    "a2akit": ["a2akit[postgres]==0.0.32", "uvicorn>=0.34"],
    "fasta2a": ["fasta2a==2.1.1", "uvicorn>=0.34"],
}


class NotInstalled(Exception):
    """A peer could not be had; what pip has said stands above."""


def python(name):
    """The interpreter of a peer's environment, which is made if it is not there; else NotInstalled."""
    directory = HOME / name
    done = directory / DONE
    if not done.exists() or json.loads(done.read_text()) != PEERS[name]:
        shutil.rmtree(directory, ignore_errors=True)
        print(
            f"installing {PEERS[name][0]}, once, into {directory.relative_to(REPOSITORY)}", file=sys.stderr, flush=True
        )
        try:
            make(directory, *PEERS[name])
        except subprocess.CalledProcessError as error:
            raise NotInstalled(f"{PEERS[name][0]} could not be installed into {directory}.") from error
        done.write_text(json.dumps(PEERS[name]))
    return directory / "bin" / "python"


def install():
    """All of them, side by side."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(python, PEERS))


if __name__ == "__main__":
    install()
