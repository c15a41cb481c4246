"""`make bench`, `make bench-<suite>`, `make bench-smoke`."""

from __future__ import annotations

from typing import Annotated

import typer

from tests.benchmark import report, runner


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
    for name in suites or ():
        if name not in runner.SUITES:
            raise typer.BadParameter(f"There is no suite {name!r}; there are: {', '.join(runner.SUITES)}.")
    for name in suites or runner.SUITES:
        results = runner.run_suite(name, smoke=smoke, rounds=rounds)
        runner.print_results(results)
        if keep and not smoke:
            runner.save(results)
    if keep and not smoke:
        report.write(runner.load_all())


if __name__ == "__main__":
    typer.run(main)
