"""What a host imports before it listens: on Cloud Run every start pays for it."""

import asyncio
import json
import subprocess
import sys

import httpx
import pytest

from a2a_gcs.host.app import create_app
from a2a_gcs.host.settings import Settings

LATE = ("aiohttp", "cryptography", "gcsfs", "google.auth", "grpc_health.v1", "jinja2", "jwt", "requests")
"""What a host over a local store without signing, tokens of others and gRPC has no use for, until it is asked."""


def imported_by(code):
    """Of LATE, what a fresh process has imported after this code."""
    path = [entry for entry in sys.path if entry]
    code = (
        f"import json, sys; sys.path[:0] = {path!r}\n{code}\nprint(json.dumps([m for m in {LATE} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, set()),
        ({"auth": "tokens", "tokens": "ada:" + "x" * 40}, set()),
        ({"auth": "google", "auth_audience": "x"}, {"cryptography", "jwt"}),
        ({"grpc_port": 0}, {"grpc_health.v1"}),
        ({"store": "gs://bucket"}, {"aiohttp", "cryptography", "gcsfs", "google.auth", "requests"}),
    ],
    ids=["defaults", "tokens", "google", "grpc", "gs"],
)
def test_a_host_imports_what_its_settings_need(settings, expected):
    """And nothing of what other settings need; what it does import shows that the look finds it."""
    made = f"from a2a_gcs.host.settings import Settings; create_app(Settings(**{settings!r}))"
    assert imported_by(f"import a2a_gcs.cli.hosting; from a2a_gcs.host.app import create_app; {made}") == expected


async def test_the_first_pages_come_at_once():
    """The console is made for its first request; several that come together are all answered."""
    transport = httpx.ASGITransport(create_app(Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        answers = await asyncio.gather(*(http.get("/console/static/console.css") for _ in range(5)))
    assert [answer.status_code for answer in answers] == [200] * 5
