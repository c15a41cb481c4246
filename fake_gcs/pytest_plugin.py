"""The pytest fixture `fake_gcs_server`: one emulator per test session, started when first asked for.

Registered as the entry point `fake_gcs`, so that it is there wherever the package is
installed. Nothing heavy is imported, and nothing runs, in a session that does not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fake_gcs.process import FakeGcs


@pytest.fixture(scope="session")
def fake_gcs_server() -> Iterator[FakeGcs]:
    """A running emulator: `.url` for STORAGE_EMULATOR_HOST, `.create_bucket()` for a fresh bucket."""
    from fake_gcs.process import FakeGcs  # noqa: PLC0415 - keeps the plugin light where it is not used

    with FakeGcs.start() as server:
        yield server
