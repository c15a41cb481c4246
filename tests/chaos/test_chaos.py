"""Three hosts, seven clients, faults at the gateway and on the wires, and hosts killed at random; then the checker.

A2A_GCS_CHAOS_SECONDS makes it longer, A2A_GCS_CHAOS_SEED repeats a run: what is done is drawn from the seed,
what comes of it also depends on the machine. A run that fails leaves its trace for
`python -m tests.chaos.checker`.
"""

from __future__ import annotations

import gc
import os
import random

import pytest

from tests.chaos.checker import check
from tests.chaos.driver import Plan, drive, missing, summary
from tests.chaos.world import World, dumped

SECONDS = float(os.environ.get("A2A_GCS_CHAOS_SECONDS", "30"))
SEED = int(os.environ.get("A2A_GCS_CHAOS_SEED") or random.randrange(10**6))
MORE_SECONDS = 90.0


@pytest.mark.timeout(SECONDS + MORE_SECONDS + 240)
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")  # asyncio's, of clients gone mid-connect
async def test_no_invariant_breaks_in_chaos(gateway, tmp_path):
    """Many hosts on one bucket behave as one correct server, whatever happens to hosts, wires, bucket and clients."""
    plan = Plan(seconds=SECONDS, more=MORE_SECONDS)
    async with World(gateway, tmp_path) as world:
        trace = await drive(world, SEED, plan)
    gc.collect()  # here, and not in a test that has no such clients
    with dumped(trace, tmp_path / "trace.json"):
        assert [str(v) for v in check(trace)] == [], f"{summary(trace)}; trace: {tmp_path / 'trace.json'}"
        assert missing(trace["calls"], trace["events"], plan) == set(), summary(trace)
