"""Breaks every rule of the protocol, one at a time, and sees that the checker notices.

`python -m tests.chaos.mutants [--only NAME ...] [--seed N] [--random SECONDS]` runs the mutants of
`tests.chaos.mutations` through their directed scenarios; with --random those that survive also meet the random
driver. Status 1 if one survives.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fake_gcs.process import FakeGcs
from tests.chaos import scenarios
from tests.chaos.checker import check
from tests.chaos.driver import Plan, drive
from tests.chaos.world import World

SCENARIOS = {
    "claim_without_cas": ("rush",),
    "turn_without_cas": ("two_answers",),
    "turn_while_open": ("answer_while_open",),
    "no_openlist": ("claim_given_up",),
    "impatient": ("rush",),
    "no_recheck": ("message_while_judged",),
    "no_release": ("message_answer",),
    "no_idem": ("repeat_before_the_task",),
    "no_dedup": ("story",),
    "resume_from_any": ("story",),
    "pointer_late": ("story",),
    "pointer_taken_back": ("claim_given_up_and_settled",),
    "no_settlement": ("killed_while_streaming",),
    "no_tombstone": ("claim_whose_save_is_late",),
    "parked_settled": ("parked_host_dies",),
    "settled_without_journal": ("killed_while_streaming",),
    "no_fence": ("late_end",),
    "terminal_overwritten": ("late_end",),
    "save_without_cas": ("late_end",),
    "archive_without_cas": ("late_archive",),
    "no_watch": ("silent_agent_canceled",),
    "no_lapse": ("parted_from_the_bucket",),
    "no_overlay_check": ("read_after_cancel",),
    "stale_cancel": ("cancel_meets_progress",),
    "state_before_archive": ("story",),
    "told_before_stored": ("end_is_held",),
    "end_in_journal": ("end_is_held",),
    "no_restore": ("story",),
    "no_drain": ("host_is_stopped",),
    "journal_per_task": ("story",),
    "journal_removed_at_once": ("story",),
    "ends_without_batch": ("reader_between_batches",),
    "journal_lost": ("story",),
    "tap_drops": ("story",),
    "no_readback": ("lost_answers",),
}
"""Which scenarios bring a mutant to where it fails."""

LIMIT_SECONDS = 120.0


@dataclass
class Outcome:
    """What a scenario came to.

    Attributes:
        violations: What the checker found.
        failure: The assertion that failed, "" if none did.
    """

    violations: list
    failure: str = ""

    @property
    def noticed(self):
        return bool(self.violations or self.failure)

    def __str__(self):
        return str(self.violations[0]) if self.violations else self.failure or "nothing was noticed"


async def run(gateway, directory, scenario, mutant=""):
    """One scenario on hosts that are broken as `mutant` says."""
    failure = ""
    async with World(gateway, Path(directory), mutant=mutant) as world:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await getattr(scenarios, scenario)(world)
        except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as error:
            failure = f"{type(error).__name__} {error}".strip()
        trace = await world.trace()
    return Outcome(check(trace), failure)


async def run_random(gateway, directory, mutant, seed, seconds):
    """The random driver on broken hosts."""
    failure = ""
    async with World(gateway, Path(directory), mutant=mutant) as world:
        try:
            await drive(world, seed, Plan(seconds=seconds))
        except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as error:
            failure = f"{type(error).__name__} {error}".strip()
        trace = await world.trace()
    return Outcome(check(trace), failure)


async def hunt(gateway, mutant, *, seed, seconds):
    """Runs a mutant until somebody notices: (how, outcome)."""
    for scenario in SCENARIOS[mutant]:
        with tempfile.TemporaryDirectory(prefix=f"chaos-{mutant}-") as directory:
            outcome = await run(gateway, directory, scenario, mutant)
        if outcome.noticed:
            return scenario, outcome
    if seconds:
        with tempfile.TemporaryDirectory(prefix=f"chaos-{mutant}-") as directory:
            outcome = await run_random(gateway, directory, mutant, seed, seconds)
        return f"seed {seed}", outcome
    return "", outcome


async def main(arguments):
    """Hunts the chosen mutants; the number that survive."""
    chosen = arguments.only or list(SCENARIOS)
    survivors = []
    with FakeGcs.start(options=("--log-level", "error")) as gateway:
        for name in chosen:
            began = time.monotonic()
            how, outcome = await hunt(gateway, name, seed=arguments.seed, seconds=arguments.random)
            if not outcome.noticed:
                survivors.append(name)
            word = "killed" if outcome.noticed else "SURVIVES"
            print(f"{word:9}{name:26}{how:28}{time.monotonic() - began:5.1f} s  {str(outcome)[:150]}", flush=True)  # noqa: T201
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed; survivors: {survivors or 'none'}")  # noqa: T201
    return len(survivors)


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append", choices=sorted(SCENARIOS), help="May be repeated.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=float, default=0.0, metavar="SECONDS")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(main(_arguments()))))
