"""Where the clients under test are installed: one environment each, kept in .venv/clients (`make clients`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.environments import make

REPOSITORY = Path(__file__).parents[2]
HOME = REPOSITORY / ".venv" / "clients"
DONE = ".installed"

PYTHON = {
    "a2a-sdk-0.3": ["a2a-sdk[grpc,http-server]==0.3.26"],
    "google-adk": ["google-adk[a2a]==2.13.0"],
}
NODE = {"@a2a-js/sdk": "1.3.0", "@bufbuild/protobuf": "^2.10.2", "@grpc/grpc-js": "^1.11.0"}
NODE_NEEDED = 20


def python(name):
    """The interpreter of a client's environment; None if it is not installed."""
    found = HOME / name
    return found / "bin" / "python" if _is_there(found, PYTHON[name]) else None


def node_modules():
    """The directory of the JavaScript client; None if it is not installed."""
    found = HOME / "js"
    return found if _is_there(found, NODE) and node() else None


def node():
    """Node, if it is new enough; else None."""
    found = shutil.which("node")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    major = version.removeprefix("v").partition(".")[0]
    return found if major.isdecimal() and int(major) >= NODE_NEEDED else None


def _is_there(directory, wanted):
    done = directory / DONE
    return done.exists() and json.loads(done.read_text()) == wanted


def install():
    """Installs what is missing, side by side. Without Node the JavaScript client is left out."""
    with ThreadPoolExecutor() as pool:
        tasks = [pool.submit(_install_python, name) for name in PYTHON if python(name) is None]
        if node() is None:
            print(f"Node {NODE_NEEDED} or newer is not there: the JavaScript client is left out", file=sys.stderr)
        elif node_modules() is None:
            tasks.append(pool.submit(_install_js))
        for task in tasks:
            task.result()


def _install_python(name):
    directory = _fresh(name)
    make(directory, *PYTHON[name])
    (directory / DONE).write_text(json.dumps(PYTHON[name]))


def _install_js():
    directory = _fresh("js")
    directory.mkdir(parents=True)
    (directory / "package.json").write_text(json.dumps({"private": True, "type": "module", "dependencies": NODE}))
    npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
    subprocess.run(npm, cwd=directory, check=True)
    (directory / DONE).write_text(json.dumps(NODE))


def _fresh(name):
    directory = HOME / name
    shutil.rmtree(directory, ignore_errors=True)
    return directory


if __name__ == "__main__":
    install()
