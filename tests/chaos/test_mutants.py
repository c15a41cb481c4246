"""A checker that flags nothing is worth nothing: broken hosts, and the scenario in which each is noticed.

These are a few; `make chaos-mutants` runs them all.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos import mutations, scenarios
from tests.chaos.mutants import SCENARIOS, hunt

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
    assert all(hasattr(scenarios, scenario) for scenario, _ in SCENARIOS.values())


@pytest.mark.timeout(300)
async def test_broken_hosts_are_noticed(gateway, tmp_path):
    """The rule that each of these mutants breaks is the one that is found broken."""
    limit = asyncio.Semaphore(2)  # more at once, and a host might starve beyond its lease

    async def noticed(mutant):
        async with limit:
            return await hunt(gateway, mutant, tmp_path / mutant)

    found = await asyncio.gather(*map(noticed, QUICK))
    assert [(name, str(all_of_it)) for name, (what, all_of_it) in zip(QUICK, found, strict=True) if not what] == []
