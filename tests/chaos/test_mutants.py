"""A checker that flags nothing is worth nothing: broken hosts, and the scenario in which each is noticed.

These are a few; `make chaos-mutants` runs them all.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos import mutations, scenarios
from tests.chaos.mutants import SCENARIOS, run

QUICK = (
    "claim_without_cas",
    "turn_without_cas",
    "no_tombstone",
    "no_fence",
    "archive_without_cas",
    "told_before_stored",
    "ends_without_batch",
    "no_readback",
)


def test_every_mutation_has_a_scenario():
    """No mutation is without a scenario that is to notice it."""
    assert set(SCENARIOS) == set(mutations.MUTATIONS)
    assert all(hasattr(scenarios, name) for names in SCENARIOS.values() for name in names)


@pytest.mark.timeout(300)
async def test_broken_hosts_are_noticed(gateway, tmp_path):
    """The checker, or the scenario's deadline, notices each of these mutants."""
    limit = asyncio.Semaphore(2)  # more at once, and a host might starve beyond its lease

    async def hunt(mutant):
        async with limit:
            return await run(gateway, tmp_path / mutant, SCENARIOS[mutant][0], mutant)

    outcomes = await asyncio.gather(*map(hunt, QUICK))
    assert [name for name, outcome in zip(QUICK, outcomes, strict=True) if not outcome.noticed] == []
