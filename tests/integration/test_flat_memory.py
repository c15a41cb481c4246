"""What large content costs a host in memory: a multiple of one request, never of the whole.

The host is a process of its own; its peak is what the kernel counted (VmHWM), reset before each exchange.
"""

import asyncio
import base64
import contextlib
import json
import socket
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from fake_gcs.faults import Fault
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from Linux's /proc")

MIB = 1024**2
FILES = "tests.support.agents:Files"
V10 = {"A2A-Version": "1.0"}
TIMEOUT = 100


@pytest.fixture(scope="module")
def host(start_host, make_place):
    return start_host(make_place("file"), agent=FILES)


@pytest.fixture(scope="module")
def far(start_host, make_place):
    """A host over a bucket, which can be slow."""
    host = start_host(make_place("gcs"), agent=FILES)
    sent(host, json.dumps(message("events 100")))
    return host


def _status(host, name):
    for line in Path(f"/proc/{host.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


class Peak:
    """How far the host's memory went beyond what it was at the beginning of the `with`, in bytes."""

    def __init__(self, host):
        self._host = host
        self.grown = 0

    def __enter__(self):
        Path(f"/proc/{self._host.pid}/clear_refs").write_text("5")
        self._before = _status(self._host, "VmRSS")
        return self

    def __exit__(self, *_):
        self.grown = _status(self._host, "VmHWM") - self._before


def message(text, *parts, **ids):
    said = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}, *parts], **ids}
    return {"message": said}


def streamed(host, text, context):
    """The events of a message, as they come."""
    body = json.dumps(message(text, contextId=context))
    with httpx.stream(
        "POST", f"{host.url}/message:stream", content=body, headers=V10, timeout=TIMEOUT, trust_env=False
    ) as response:
        for line in response.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line[5:])


def sent(host, body):
    response = httpx.post(f"{host.url}/message:send", content=body, headers=V10, timeout=TIMEOUT, trust_env=False)
    assert response.status_code == 200, response.text[:1000]
    return response.json()["task"]


@pytest.fixture(scope="module", autouse=True)
def _warm(host):
    """Everything that a host loads once is loaded."""
    sent(host, json.dumps(message("hello", {"raw": base64.b64encode(bytes(MIB)).decode()})))
    assert list(streamed(host, "large 3 300000", "warm"))


@pytest.mark.parametrize(("count", "size"), [(200, MIB), (1600, MIB // 8)])
async def test_an_artifact_of_200_mib_in_chunks(host, fresh, count, size):
    """In large chunks and in small ones: memory is that of a few chunks, task.json small, and the content whole."""
    with Peak(host) as peak:
        events = list(streamed(host, f"large {count} {size}", fresh))
    assert peak.grown < 48 * MIB
    told = [part for e in events if "artifactUpdate" in e for part in e["artifactUpdate"]["artifact"]["parts"]]
    lengths = [part["metadata"]["a2a-gcs/size"] if "url" in part else size for part in told]
    assert sum(lengths) == 200 * MIB
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task_id = events[0]["task"]["id"]
    stored = await host.place.read(f"contexts/{fresh}/{task_id}/task.json")
    assert len(stored) < MIB
    assert [part.get("url", "")[-64:] for part in told] == [
        part.get("url", "")[-64:] for part in json.loads(stored)["artifacts"][0]["parts"]
    ]
    with Peak(host) as peak:
        last = await asyncio.to_thread(httpx.get, told[-1]["url"], timeout=TIMEOUT, trust_env=False)
    assert last.content[-8:] == (count - 1).to_bytes(8, "big")
    assert peak.grown < 16 * MIB


def test_a_task_with_5000_events(host, fresh):
    """Every event reaches the client in its order, and the host keeps a few copies of the task, not one an event."""
    with Peak(host) as peak:
        events = list(streamed(host, "events 5000", fresh))
    texts = [
        (e["artifactUpdate"]["artifact"] if "artifactUpdate" in e else e["statusUpdate"]["status"]["message"])["parts"][
            0
        ]
        for e in events[1:]
    ]
    assert [part["text"] for part in texts] == [*(f"event {n}" for n in range(5000)), "done"]
    assert peak.grown < 64 * MIB


def nobody_reads(host, body):
    """A stream that the client opens, and reads nothing of before its task has ended; its last event."""
    address, port = host.url.removeprefix("http://").split(":")
    head = "Host: x\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(TIMEOUT)
        connection.connect((address, int(port)))
        sending = f"POST /message:stream HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}"
        connection.sendall(sending.encode())
        yield
        late = bytearray()
        while b"TASK_STATE_COMPLETED" not in late:
            late += connection.recv(65536) or pytest.fail("the stream broke off")


def blocking(host, body):
    """A send that waits for the end of its task, in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(sent, host, body)
        yield
        assert sending.result()["status"]["state"] == "TASK_STATE_COMPLETED"


def at_once(host, body):
    """A send that is answered while its task runs."""
    task = sent(host, json.dumps(json.loads(body) | {"configuration": {"returnImmediately": True}}))
    assert task["status"]["state"] in {"TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"}
    yield


@pytest.mark.parametrize("way", [nobody_reads, blocking, at_once])
async def test_a_task_that_grows_while_its_host_waits_for_the_bucket(far, emulator, fresh, way):
    """What the agent emits meanwhile waits, but never with a copy of the task beside each event (here: 1 GB)."""
    host, slow = far, Fault("delay", "objects.insert", f"*/{fresh}/*/task.json", times=None, seconds=1.0)
    body = json.dumps(message(f"flood 1200 {MIB}", contextId=fresh))

    def ended():
        listing = {"contextId": fresh, "status": "TASK_STATE_COMPLETED"}
        response = httpx.get(f"{host.url}/tasks", params=listing, headers=V10, timeout=TIMEOUT, trust_env=False)
        return response.json()["totalSize"]

    with emulator.faults(slow), Peak(host) as peak, contextlib.contextmanager(way)(host, body):
        await until(ended, seconds=TIMEOUT)
    assert peak.grown < 64 * MIB


def test_a_body_of_30_mib(host):
    """One costs a few copies of itself while it is taken in; a second one costs no more."""
    grown = []
    for number in range(2):
        content = base64.b64encode(bytes([number]) * (22 * MIB)).decode()
        body = json.dumps(message("keep", {"raw": content, "filename": "f"}))
        assert 29 * MIB < len(body) < 30 * MIB
        with Peak(host) as peak:
            task = sent(host, body)
        grown.append(peak.grown)
        (part,) = task["artifacts"][0]["parts"]
        assert part["metadata"]["a2a-gcs/size"] == 22 * MIB
        assert len(json.dumps(task)) < 4096
    assert grown[0] < 10 * 30 * MIB
    assert grown[1] < grown[0] + 30 * MIB
