"""The pytest fixture `fake_gcs_server`: one emulator per test session, started when first asked for.

Registered as the entry point `fake_gcs`, so that it is there wherever the package is
installed. Nothing heavy is imported, and nothing runs, in a session that does not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fake_gcs.faults import Fault
    from fake_gcs.process import FakeGcs
    from fake_gcs.remote import ScriptedFault


@pytest.fixture(scope="session")
def fake_gcs_server() -> Iterator[FakeGcs]:
    """A running emulator: `.url` for STORAGE_EMULATOR_HOST, `.create_bucket()` for a fresh bucket."""
    from fake_gcs.process import FakeGcs  # noqa: PLC0415 - keeps the plugin light where it is not used

    with FakeGcs.start() as server:
        yield server


@pytest.fixture
def gcs_fault(fake_gcs_server: FakeGcs) -> Iterator[Callable[[Fault], ScriptedFault]]:
    """Puts a fault in force until the end of the test, which fails if the fault was never served."""
    from contextlib import ExitStack  # noqa: PLC0415

    with ExitStack() as stack:

        def script(fault: Fault) -> ScriptedFault:
            return stack.enter_context(fake_gcs_server.faults(fault))[0]

        yield script
