"""An emulator for the chaos tests alone: faults, memory and history of others would disturb them."""

from __future__ import annotations

import pytest

from fake_gcs.process import FakeGcs


@pytest.fixture(scope="session")
def gateway():
    with FakeGcs.start(options=("--log-level", "error")) as emulator:
        yield emulator
