"""Three hosts, seven clients, faults at the gateway and on the wires, and hosts killed at random; then the checker.

A2A_GCS_CHAOS_SECONDS makes it longer, A2A_GCS_CHAOS_SEED repeats a run: what is done is drawn from the seed,
what comes of it also depends on the machine. A run that fails leaves its trace for
`python -m tests.chaos.checker`.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.chaos.checker import check
from tests.chaos.driver import Plan, drive, summary
from tests.chaos.world import World, dumped

SECONDS = float(os.environ.get("A2A_GCS_CHAOS_SECONDS", "30"))
SEED = int(os.environ.get("A2A_GCS_CHAOS_SEED") or random.randrange(10**6))


@pytest.mark.timeout(SECONDS + 240)
async def test_no_invariant_breaks_in_chaos(gateway, tmp_path):
    """Many hosts on one bucket behave as one correct server, whatever happens to hosts, wires, bucket and clients."""
    async with World(gateway, tmp_path) as world:
        trace = await drive(world, SEED, Plan(seconds=SECONDS))
    with dumped(trace, tmp_path / "trace.json"):
        assert [str(v) for v in check(trace)] == [], f"{summary(trace)}; trace: {tmp_path / 'trace.json'}"
        _assert_that_much_happened(trace)


def _assert_that_much_happened(trace):
    """A run in which nothing went wrong and nothing went well proves nothing."""
    told = [t for call in trace["calls"] for t in call["told"]]
    states = {t.get("state") for t in told}
    assert {"completed", "failed", "canceled", "input-required"} <= states, summary(trace)
    upsets = {event["what"] for event in trace["events"]} - {"start", "heal", "ended", "cont"}
    assert len(upsets) >= 2, summary(trace)
    assert len({t["task"] for t in told if t.get("task")}) > SECONDS / 3, summary(trace)
