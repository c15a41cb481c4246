"""Runs the A2A conformance kit against this host: `make tck TCK_DIR=<its checkout>`.

Branch `1.0-dev` of a2aproject/a2a-tck is for A2A 1.0 (all bindings), `0.3.x` for
0.3 (JSON-RPC, the mandatory tests). The kit gets an environment of its own, in
its own directory; nothing of it is part of this repository.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.support.host_process import CommandProcess

AGENT, AGENT_03 = "tests.support.tck_agent:TckAgent", "tests.support.tck_agent:TckAgent03"
NEEDS_03 = ["python-dotenv", "pyOpenSSL"]
"""What the 0.3 branch imports and does not list."""


def main(directory):
    kit = Path(directory).resolve()
    script = kit / "run_tck.py"
    if not script.exists():
        sys.exit(f"{kit} holds no run_tck.py: TCK_DIR is a checkout of a2aproject/a2a-tck, branch 1.0-dev or 0.3.x")
    new = "--sut-host" in script.read_text()
    python = kit / ".venv" / "bin" / "python"
    if not python.exists():
        venv.create(python.parents[1], with_pip=True)
        wanted = ["-e", "."] if new else ["-r", "requirements.txt", *NEEDS_03]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], cwd=kit, check=True)
    with tempfile.TemporaryDirectory() as logs:
        arguments = ["serve", "--port", "0", "--agent", AGENT if new else AGENT_03, "--answers", "message"]
        if new:
            arguments += ["--grpc-port", "0", "--advertise-grpc"]
        # The kit receives on localhost, and stores configurations of example.com, whose news nobody waits for.
        pushes = {"A2A_GCS_PUSH_ALLOWED_HOSTS": "localhost,example.com"}
        host = CommandProcess(arguments, log=Path(logs) / "host.log", **pushes).start()
        try:
            options = ["--sut-host", host.url] if new else ["--sut-url", f"{host.url}/", "--category", "mandatory"]
            if not new:
                options += ["--transports", "jsonrpc"]
            path = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": logs}
            return subprocess.run([python, script, *options], cwd=kit, env=path, check=False).returncode
        finally:
            host.terminate()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["."]))
