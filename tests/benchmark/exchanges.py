"""The exchanges whose cost is counted: by `make bench-requests` for people, and by a test against their limits."""

from __future__ import annotations

import contextlib
import uuid

import httpx

from tests.support.cost import Cost, Meter
from tests.support.host_process import HostProcess
from tests.support.places import Place

HEADERS = {"A2A-Version": "1.0"}


class Exchange:
    """One host over one bucket, asked over JSON-RPC."""

    def __init__(self, emulator, bucket, url):
        self._meter = Meter(emulator, bucket)
        self._url = url

    def send(self, text, **ids):
        """A blocking send: its cost until the answer, and what came after."""
        self._meter.cost()
        answer = httpx.post(self._url, json=_call("SendMessage", text, ids), headers=HEADERS, timeout=60)
        before = self._meter.cost()
        return answer.json()["result"]["task"], before, self._meter.rest()

    def stream(self, text, **ids):
        """A streaming send: its cost until the first event, until the last, and what came after."""
        self._meter.cost()
        first = None
        with httpx.stream(
            "POST", self._url, json=_call("SendStreamingMessage", text, ids), headers=HEADERS, timeout=120
        ) as response:
            for line in response.iter_lines():
                if line.startswith("data:") and first is None:
                    first = self._meter.cost()
        rest = self._meter.cost()
        return first, Cost(first.requests + rest.requests), self._meter.rest()


@contextlib.contextmanager
def exchange(emulator, log):
    """A host with a long lease, so that its heartbeat stays out of the way."""
    bucket = emulator.create_bucket()
    place = Place(f"gs://{bucket}", {"STORAGE_EMULATOR_HOST": emulator.url})
    host = HostProcess(place, log=log, lease_seconds=600)
    host.start()
    try:
        yield Exchange(emulator, bucket, host.url)
    finally:
        host.terminate()


def _call(method, text, ids):
    message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **ids}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
