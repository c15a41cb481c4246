"""What large content costs a host in memory: a multiple of one request, never of the whole.

The host is a process of its own; its peak is what the kernel counted (VmHWM), reset before each exchange.
"""

import asyncio
import base64
import json
import sys
import uuid
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from Linux's /proc")

MIB = 1024**2
FILES = "tests.support.agents:Files"
V10 = {"A2A-Version": "1.0"}
TIMEOUT = 100


@pytest.fixture(scope="module")
def host(start_host, make_place):
    return start_host(make_place("file"), agent=FILES)


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
    """Every event reaches the client in its order, and the host does not keep a copy of the task an event.

    Up to 1,024 events wait for a reader that lags, each with a copy of the task in the SDK's queue; all 5,000 would be
    several times that.
    """
    with Peak(host) as peak:
        events = list(streamed(host, "events 5000", fresh))
    texts = [
        (e["artifactUpdate"]["artifact"] if "artifactUpdate" in e else e["statusUpdate"]["status"]["message"])["parts"][
            0
        ]
        for e in events[1:]
    ]
    assert [part["text"] for part in texts] == [*(f"event {n}" for n in range(5000)), "done"]
    assert peak.grown < 1024 * MIB


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
