"""The image that infra/Dockerfile describes serves, read-only, as nobody, and as compose.yaml uses it.

Not collected with the rest, as it installs the distribution and all that it needs anew: `make infra-image`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import httpx
import pytest
import yaml

from tests.infra.tools import INFRA, REPOSITORY
from tests.support.host_process import READY

IMAGE = Path(__file__).with_name("image.py")
BUILD_SECONDS = 900
END_SECONDS = 30
NOBODY = 65532

pytestmark = pytest.mark.timeout(BUILD_SECONDS)


def apart(*words):
    """The command line that runs image.py in a mount namespace of its own."""
    return ["unshare", "--mount", sys.executable, str(IMAGE), *map(str, words)]


@pytest.fixture(scope="module")
def image():
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("carrying out a Dockerfile without a container runtime takes Linux, and root")
    out = Path(f"/var/tmp/a2a-gcs-image-{uuid.uuid4().hex}")
    try:
        building = apart("build", INFRA / "Dockerfile", REPOSITORY, out, "EXTRAS=[emulator]")
        subprocess.run(building, check=True, timeout=BUILD_SECONDS)
        yield out
    finally:
        shutil.rmtree(out, ignore_errors=True)


@pytest.fixture
def containers(image):
    """Starts containers, as `docker run --read-only` does, and ends them with the test."""
    started = []

    def start(**given):
        process = subprocess.Popen(
            apart("run", image, json.dumps(given)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        started.append(process)
        line = process.stdout.readline()
        assert line.startswith(READY), line
        return process, line.removeprefix(READY).strip()

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def completed(url, text):
    """What the demo agent read, once its task is completed."""
    message = {"messageId": uuid.uuid4().hex, "contextId": "image", "role": "ROLE_USER", "parts": [{"text": text}]}
    answer = httpx.post(
        url,
        json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}},
        headers={"A2A-Version": "1.0"},
        timeout=60,
    )
    task = answer.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    return task


def test_it_serves_on_port_as_nobody_with_a_read_only_root(containers):
    port = free_port()
    process, said = containers(env={"PORT": str(port), "A2A_GCS_ALLOW_UNAUTHENTICATED": "true"})
    assert said == f"http://0.0.0.0:{port}"
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}

    status = Path(f"/proc/{process.pid}/status").read_text()
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}\n" in status
    for path in ("", "opt/a2a-gcs", "var/tmp"):
        assert os.statvfs(f"/proc/{process.pid}/root/{path}").f_flag & os.ST_RDONLY

    completed(url, "write notes.txt kept")
    task = completed(url, "read notes.txt")
    assert any(part.get("text") == "kept" for artifact in task["artifacts"] for part in artifact["parts"])

    process.terminate()
    assert process.wait(END_SECONDS) == 0


def test_it_does_not_serve_everybody_unasked(image):
    done = subprocess.run(apart("run", image, "{}"), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "there is no authentication" in done.stderr


def test_the_services_of_compose_keep_a_task_in_the_bucket(containers):
    services = yaml.safe_load((INFRA / "compose.yaml").read_text())["services"]
    bucket, host = services["bucket"], services["host"]
    assert host["depends_on"] == {"bucket": {"condition": "service_healthy"}}
    command = ["0" if word == "4443" else word for word in bucket["command"]]  # its port may be taken on this machine
    _, store = containers(entrypoint=bucket["entrypoint"], command=command)
    store = store.replace("0.0.0.0", "127.0.0.1")
    probe = bucket["healthcheck"]["test"][1:]
    reached = [word.replace("http://127.0.0.1:4443", store) for word in probe]
    assert reached != probe
    subprocess.run([sys.executable, *reached[1:]], check=True, timeout=60)

    env = {name: value.replace("${A2A_GCS_AGENT:-demo}", "demo") for name, value in host["environment"].items()}
    assert env["STORAGE_EMULATOR_HOST"] == "http://bucket:4443"
    _, url = containers(env={**env, "STORAGE_EMULATOR_HOST": store, "PORT": "0"})
    task = completed(url.replace("0.0.0.0", "127.0.0.1"), "hello")
    objects = httpx.get(f"{store}/storage/v1/b/local/o").json()["items"]
    assert f"contexts/image/{task['id']}/task.json" in {item["name"] for item in objects}
