"""Hosts to fuzz, and what must hold of every answer.

`A2A_GCS_FUZZ_EXAMPLES` sets the examples of each test; `make test` takes few.
"""

import asyncio
import json
import os

import httpx
import pytest
from hypothesis import HealthCheck, settings

from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.host_thread import serve_in_thread

EXAMPLES = int(os.environ.get("A2A_GCS_FUZZ_EXAMPLES", "15"))
ANSWERED_WITHIN_SECONDS = 20.0

settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The demo agent over a store in memory."""
    with serve_in_thread(MemoryStore(), work_dir=tmp_path_factory.mktemp("work"), grpc_port=0) as running:
        yield running


class Fuzzed:
    """Sends what it is given and checks what comes back."""

    def __init__(self, host):
        self.host = host
        self.http = httpx.Client(base_url=host.url, timeout=ANSWERED_WITHIN_SECONDS, trust_env=False)

    def send(self, method, path, **options):
        """Never a 5xx, never -32603, never a hang; a refusal leaves the bucket as it was."""
        before = self.claims()
        response = self.http.request(method, path, **options)
        assert response.status_code < 500, response.text
        for body in bodies(response):
            error = body.get("error") if isinstance(body, dict) else None
            if error is not None:
                assert error.get("code") != -32603, (error, options)
        if refused(response):
            assert self.claims() == before, (response.text, options)
        return response

    def claims(self):
        """What a message makes before its agent runs; the rest comes by itself while earlier tasks go on."""
        return [key for key in self.keys() if key.endswith(("/contextId.txt", "/context.json"))]

    def keys(self):
        return asyncio.run(self.host.place.keys())

    def check_bucket(self):
        """Below every root, each object belongs to a task with pointer and record, or to such a task's context."""
        roots = {}
        for key in self.keys():
            parts = key.split("/")
            depth = 2 if parts[0] == "tenants" else 0
            roots.setdefault(tuple(parts[:depth]), []).append(tuple(parts[depth:]))
        for found in roots.values():
            pointers = {parts[1] for parts in found if parts[0] == "tasks"}
            records = {parts[1:3] for parts in found if parts[-1] == "task.json"}
            assert {task for _, task in records} == pointers
            for parts in found:
                if parts[0] == "tasks":
                    assert parts[2:] == ("contextId.txt",)
                elif parts[-1] == "workspace.tar.gz":
                    assert parts[1:3] in records
                else:
                    assert parts[0] == "contexts"
                    assert parts[-1] in ("task.json", "context.json")
                    assert parts[1] in {context for context, _ in records}


def bodies(response):
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]
    try:
        return [response.json()]
    except ValueError:
        return []


def refused(response):
    found = bodies(response)
    return response.status_code >= 400 or bool(found and isinstance(found[0], dict) and "error" in found[0])


@pytest.fixture(scope="module")
def fuzzed(host):
    sender = Fuzzed(host)
    yield sender
    sender.check_bucket()
    sender.http.close()
