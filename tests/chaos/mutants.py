"""Breaks every rule of the protocol, one at a time, and sees that the checker notices.

`python -m tests.chaos.mutants [--only NAME ...]` runs the mutants of `tests.chaos.mutations` through their directed
scenarios. With `--random SECONDS [--seed N]` they meet the random driver instead, which finds many of them, and no
particular one for certain. Status 1 if one survives.
"""

from __future__ import annotations

import argparse
import asyncio
import re
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

ASSERTION = "assertion"

SCENARIOS = {
    "claim_without_cas": ("rush", "I1"),
    "turn_without_cas": ("two_answers", "I7"),
    "turn_while_open": ("answer_while_open", "I1"),
    "no_openlist": ("claim_given_up", ASSERTION),
    "impatient": ("rush", ASSERTION),
    "no_recheck": ("message_while_judged", "M"),
    "no_release": ("message_answer", "M"),
    "no_idem": ("repeat_before_the_task", "R"),
    "no_dedup": ("story", "R"),
    "resume_from_any": ("story", "I5"),
    "pointer_late": ("story", "I3"),
    "pointer_taken_back": ("claim_given_up_and_settled", "I3"),
    "no_settlement": ("killed_while_streaming", ASSERTION),
    "no_sweep": ("nobody_looks", ASSERTION),
    "no_tombstone": ("claim_whose_save_is_late", "I1"),
    "parked_settled": ("parked_host_dies", "I2"),
    "settled_without_journal": ("killed_while_streaming", "I2"),
    "no_fence": ("late_end", "I2"),
    "terminal_overwritten": ("late_end", "I2"),
    "save_without_cas": ("late_end", "I2"),
    "archive_without_cas": ("late_archive", "I7"),
    "no_watch": ("silent_agent_canceled", ASSERTION),
    "no_lapse": ("parted_from_the_bucket", ASSERTION),
    "claims_without_lease": ("work_after_a_lapse", ASSERTION),
    "no_overlay_check": ("read_after_cancel", "I2"),
    "stale_cancel": ("cancel_meets_progress", "I2"),
    "state_before_archive": ("story", "I4"),
    "told_before_stored": ("end_is_held", "I2"),
    "end_in_journal": ("end_is_held", "I2"),
    "no_restore": ("story", "I5"),
    "no_drain": ("host_is_stopped", ASSERTION),
    "journal_per_task": ("story", "I7"),
    "journal_removed_at_once": ("story", "S"),
    "ends_without_batch": ("reader_between_batches", "S"),
    "journal_lost": ("story", "S"),
    "tap_drops": ("story", "S"),
    "no_readback": ("lost_answers", ASSERTION),
}
"""Which scenario brings a mutant to where it fails, and what is to notice: a rule of the checker, or, where only a
deadline or the count of answers can tell, an assertion of the scenario."""

LIMIT_SECONDS = 90.0


@dataclass
class Outcome:
    """What a scenario came to.

    Attributes:
        violations: What the checker found.
        failure: The assertion that failed, "" if none did.
        broken: What shows that the mutation itself does not work any more; then nothing else counts.
    """

    violations: list
    failure: str = ""
    broken: str = ""

    @property
    def clean(self):
        return not self.violations and not self.failure

    def shows(self, rule):
        """What broke a rule; "" if it was kept."""
        if self.broken:
            return ""
        if rule == ASSERTION:
            return self.failure
        return next((str(v) for v in self.violations if v.rule == rule), "")

    def __str__(self):
        if self.broken:
            return f"the mutation is broken, mend it: {self.broken}"
        return "; ".join([*map(str, self.violations[:2]), self.failure]) or "nothing was noticed"


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
    logs = "".join(host.process.errors() for host in world.hosts.values())
    broken = re.search(r"mutations\.py[^\n]*((?:Attribute|Type|Name)Error[^\n]{,100})", logs)
    return Outcome(check(trace), failure, broken[1] if broken else "")


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


async def hunt(gateway, mutant, directory):
    """Runs a mutant in its scenario: what was noticed ("" if nothing was), and all that came of it."""
    scenario, rule = SCENARIOS[mutant]
    outcome = await run(gateway, directory, scenario, mutant)
    return outcome.shows(rule), outcome


async def main(arguments):
    """Hunts the chosen mutants; the number that survive."""
    chosen = arguments.only or list(SCENARIOS)
    survivors = []
    with FakeGcs.start(options=("--log-level", "error")) as gateway:
        for name in chosen:
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix=f"chaos-{name}-") as directory:
                if arguments.random:
                    outcome = await run_random(gateway, directory, name, arguments.seed, arguments.random)
                    noticed = "" if outcome.clean else str(outcome)
                else:
                    noticed, outcome = await hunt(gateway, name, directory)
            if not noticed:
                survivors.append(name)
            word, seconds = "killed" if noticed else "SURVIVES", time.monotonic() - began
            print(f"{word:9}{name:26}{seconds:5.1f} s  {(noticed or str(outcome))[:150]}", flush=True)  # noqa: T201
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
