"""Whether a2a-sdk makes spans: only where something collects them, or somebody says so."""

import os
import subprocess
import sys

import pytest

from a2a_gcs.host.telemetry import SDK_SPANS
from tests.support.host_process import environment

PROGRAM = """
import os, sys
import a2a_gcs.cli.hosting
assert "a2a.utils" not in sys.modules  # it would have decided by now
{provider}
from a2a_gcs.host.telemetry import SDK_SPANS, import_sdk
import_sdk()
from a2a.utils.telemetry import otel_enabled
print(otel_enabled, os.environ.get(SDK_SPANS))
"""
PROVIDER = "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider\n"
PROVIDER += "trace.set_tracer_provider(TracerProvider())"


@pytest.mark.parametrize(
    ("provider", "said", "spans"),
    [("", None, False), (PROVIDER, None, True), ("", "true", True), (PROVIDER, "false", False)],
)
def test_the_sdk_makes_spans_only_for_somebody(provider, said, spans):
    """Without a provider it makes none, unless its own variable says so; programs of agents see no such variable."""
    env = environment(**({SDK_SPANS: said} if said else {}))
    if said is None:
        env.pop(SDK_SPANS, None)
    program = PROGRAM.format(provider=provider)
    run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert run.stdout.split() == [str(spans), str(said)], run.stderr
    assert SDK_SPANS not in os.environ
