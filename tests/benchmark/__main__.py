"""`make bench`, `make bench-<suite>`, `make bench-smoke`."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest
import typer
from rich.console import Console

from tests.benchmark import environments, report, runner
from tests.support import postgres

AT_A_TIME = 3


def main(
    suites: Annotated[
        list[str] | None, typer.Argument(help=f"Any of: {', '.join(runner.SUITES)}. All if none.")
    ] = None,
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each comparison.")] = runner.ROUNDS,
    smoke: Annotated[bool, typer.Option(help="Only try them: smallest sizes, one round; nothing is kept.")] = False,
    keep: Annotated[bool, typer.Option(help="Keep the results, and write RESULTS.md anew.")] = True,
):
    """Benchmarks of the product, side by side with what people would use instead."""
    names = [name.replace("-", "_") for name in suites or ()] or list(runner.SUITES)
    for name in names:
        if name not in runner.SUITES:
            raise typer.BadParameter(f"There is no suite {name!r}; there are: {', '.join(runner.SUITES)}.")
    console = Console(stderr=True)
    try:
        if not suites:  # not after half an hour
            postgres.programs()
            environments.install()
        if smoke and len(names) > 1:
            failed = try_together(names, console)
        else:
            failed = [name for name in names if not _run(name, console, smoke=smoke, rounds=rounds, keep=keep)]
    except pytest.skip.Exception as missing:  # as tests/support/postgres says what it lacks
        raise typer.BadParameter(str(missing)) from None
    except environments.NotInstalled as error:
        raise typer.BadParameter(str(error)) from None
    if failed:
        console.print(f"failed: {', '.join(failed)}", style="red")
        raise typer.Exit(1)


def try_together(names, console):
    """Tries several suites at a time, as their numbers mean nothing and they wait a lot. Answers which failed."""
    begun, failed = [], []

    def attempt(name):
        command = [sys.executable, "-m", "tests.benchmark", "--smoke", name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        begun.append(process)
        return process.communicate()[0], process.returncode

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            for name, (told, status) in zip(names, pool.map(attempt, names), strict=True):
                console.print(f"{name} …", style="bold")
                print(told)
                failed += [name] if status else []
        finally:  # also when this one is ended in the middle
            pool.shutdown(wait=False, cancel_futures=True)
            for process in begun:
                process.terminate()
    return failed


def _run(name, console, *, smoke, rounds, keep):
    """Whether a suite came to its end; the others go on if not."""
    console.print(f"{name} …", style="bold")
    try:
        results = runner.run_suite(name, smoke=smoke, rounds=rounds, console=console)
    except environments.NotInstalled:  # nor can others run
        raise
    except Exception:  # noqa: BLE001 - shown, and told by the status
        console.print_exception(max_frames=12)
        return False
    runner.print_results(results)
    if keep and not smoke:
        runner.save(results)
        report.write(runner.load_all())
    return True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: every server that runs is ended
    typer.run(main)
