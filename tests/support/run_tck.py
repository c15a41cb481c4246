"""Runs the A2A conformance kit: `make tck TCK_DIR=<its checkout> ARGS='...'`.

Branch `1.0-dev` of a2aproject/a2a-tck is for A2A 1.0, `0.3.x` for 0.3. Without more it is all
bindings of 1.0, or the mandatory tests of 0.3 over JSON-RPC. `--bare` runs the kit against the
same agent on the bare SDK; everything else goes to the kit, such as `--transport grpc`
(1.0: grpc, jsonrpc, http_json) or `--transports rest` (0.3: jsonrpc, rest, grpc).

The kit gets an environment of its own, in its own directory; nothing of it is part
of this repository.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import venv
from pathlib import Path

import httpx

from tests.support import tck_split
from tests.support.host_process import CommandProcess

AGENT, AGENT_03 = "tests.support.tck_agent:TckAgent", "tests.support.tck_agent:TckAgent03"
NEEDS_03 = ["python-dotenv", "pyOpenSSL"]
"""What the 0.3 branch imports and does not list."""


class BareSdk(CommandProcess):
    program = (sys.executable, "-m", "tests.support.tck_bare")


def main(arguments):
    parser = argparse.ArgumentParser(prog="run_tck", description="The A2A conformance kit, see the module.")
    parser.add_argument("directory", nargs="?", default=".")
    parser.add_argument("--bare", action="store_true", help="against the bare SDK")
    options, more = parser.parse_known_args(arguments)
    kit = Path(options.directory).resolve()
    script = kit / "run_tck.py"
    if not script.exists():
        sys.exit(f"{kit} holds no run_tck.py: TCK_DIR is a checkout of a2aproject/a2a-tck, branch 1.0-dev or 0.3.x")
    new = "--sut-host" in script.read_text()
    python = environment_of(kit, new=new)
    with contextlib.ExitStack() as stack:
        logs = stack.enter_context(tempfile.TemporaryDirectory())
        host = server(Path(logs) / "host.log", new=new, bare=options.bare).start()
        try:
            url = stack.enter_context(urls_in_card(host.url)) if not new and "grpc" in more else host.url
            told = told_to(url, more, new=new)
            path = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": logs}
            status = subprocess.run([python, script, *told], cwd=kit, env=path, check=False).returncode
        finally:
            host.terminate()
    if new:
        print(tck_split.told(kit / "reports" / "junitreport.xml"))  # noqa: T201 - what it is for
    return status


def environment_of(kit, *, new):
    """The kit's own Python."""
    python = kit / ".venv" / "bin" / "python"
    if not python.exists():
        venv.create(python.parents[1], with_pip=True)
        wanted = ["-e", "."] if new else ["-r", "requirements.txt", *NEEDS_03]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], cwd=kit, check=True)
    return python


def server(log, *, new, bare):
    """What is tested, not started yet."""
    if bare:
        return BareSdk(["1.0" if new else "0.3"], log=log)
    agent = AGENT if new else AGENT_03
    serve = ["serve", "--port", "0", "--agent", agent, "--answers", "message", "--grpc-port", "0", "--advertise-grpc"]
    # The kit receives on localhost, and stores configurations of example.com, whose news nobody waits for.
    return CommandProcess(serve, log=log, A2A_GCS_PUSH_ALLOWED_HOSTS="localhost,example.com")


@contextlib.contextmanager
def urls_in_card(url):
    """The kit of 0.3 dials gRPC only where the card has a scheme, and a2a-sdk's client only where it has none.

    So this serves the host's card with one.
    """
    card = httpx.get(f"{url}/.well-known/agent-card.json").json()
    for interface in card["additionalInterfaces"]:
        if interface["transport"] == "GRPC":
            interface["url"] = f"grpc://{interface['url']}"

    class Front(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(card).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front) as front:
        threading.Thread(target=front.serve_forever).start()
        yield f"http://127.0.0.1:{front.server_port}"
        front.shutdown()


def told_to(url, more, *, new):
    """The kit's own arguments."""
    if new:
        return ["--sut-host", url, *more]
    told = ["--sut-url", f"{url}/", *more]
    told += [] if "--category" in more else ["--category", "mandatory"]
    return told if "--transports" in more else [*told, "--transports", "jsonrpc"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
