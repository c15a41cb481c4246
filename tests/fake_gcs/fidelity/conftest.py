"""Where the fidelity suite runs: the gateway, the plain emulator, and a real bucket if there is one."""

from __future__ import annotations

import os

import pytest

from fake_gcs.process import FakeGcs
from tests.fake_gcs.fidelity import plain_gaps, testbench_gaps
from tests.fake_gcs.fidelity.api import REAL, Api

REAL_BUCKET = os.environ.get("A2A_GCS_TEST_BUCKET")
TESTBENCH = os.environ.get("TESTBENCH_URL")
KINDS = ["gateway", "plain", *(["real"] if REAL_BUCKET else []), *(["testbench"] if TESTBENCH else [])]


def pytest_collection_modifyitems(items):
    for item in items:
        kind = getattr(item, "callspec", None) and item.callspec.params.get("kind")
        gaps = {"plain": plain_gaps.GAPS, "testbench": testbench_gaps.GAPS}.get(kind, {}).get(item.path.name, ())
        case = item.name.replace(f"[{kind}-", "[").replace(f"[{kind}]", "")
        gap = next((name for name in (case, getattr(item, "originalname", "")) if name in gaps), None)
        if gap is not None:
            reason = gaps[gap] if kind == "testbench" else "fake-gcs-server has no such rule"
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="session")
def gateway_server():
    """A gateway whose write limit is out of the way; the tests of the limit set it."""
    with FakeGcs.start(options=["--write-burst=1000000"]) as server:
        yield server


@pytest.fixture(scope="session")
def plain_server():
    with FakeGcs.start(plain=True) as server:
        yield server


@pytest.fixture
def api(kind, request):
    """A bucket of the server under test."""
    if kind == "real":
        opened = Api(kind, REAL, REAL_BUCKET, headers=_authorization())
    elif kind == "testbench":
        opened = Api(kind, TESTBENCH, _testbench_bucket())
    else:
        server = request.getfixturevalue(f"{kind}_server")
        opened = Api(kind, server.url, server.create_bucket(), server)
    yield opened
    opened.close()


def _authorization():
    import google.auth
    import google.auth.transport.requests

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/devstorage.full_control"])
    credentials.refresh(google.auth.transport.requests.Request())
    return {"Authorization": f"Bearer {credentials.token}"}


def _testbench_bucket():
    import uuid

    from fake_gcs.server import create_bucket

    name = f"test-{uuid.uuid4().hex[:20]}"
    create_bucket(TESTBENCH, name)
    return name
