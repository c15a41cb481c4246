"""Runs the fidelity suite against googleapis/storage-testbench: `run_testbench.py FOLDER`.

FOLDER is a checkout of https://github.com/googleapis/storage-testbench, which is not on PyPI. It is
installed into an environment of its own inside .venv, for it pins old versions of everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

from fake_gcs.server import free_port

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[1] / ".venv" / "testbench"
START_SECONDS = 60


def main():
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "testbench" / "rest_server.py").is_file():
        sys.exit("usage: run_testbench.py FOLDER, a checkout of https://github.com/googleapis/storage-testbench")
    folder = Path(sys.argv[1]).absolute()
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "bin" / "gunicorn").exists():
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", folder], check=True)
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    server = subprocess.Popen(
        [python, "-m", "gunicorn", f"--bind={url.removeprefix('http://')}", "--worker-class=gthread", "--threads=16",
         "--log-level=error", "testbench:run()"],
        cwd=folder,
    )  # fmt: skip
    try:
        wait_until_it_answers(url, server)
        suite = [sys.executable, "-m", "pytest", str(HERE / "fidelity"), "-k", "testbench", "-q"]
        sys.exit(subprocess.run(suite, env={**os.environ, "TESTBENCH_URL": url}, check=False).returncode)
    finally:
        server.terminate()
        server.wait(30)


def wait_until_it_answers(url, server):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    sys.exit("the testbench did not start")


if __name__ == "__main__":
    main()
