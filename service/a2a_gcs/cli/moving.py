"""What the commands that move or remove data have in common: a bar, counts, and no host that writes meanwhile."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.relocation import live_hosts

if TYPE_CHECKING:
    from a2a_gcs.objectstore import ObjectStore
    from a2a_gcs.relocation import Step


async def expect_no_hosts(bucket: "ObjectStore") -> None:
    """Raises CommandFailed while a host runs over the bucket, and StoreError."""
    if hosts := await live_hosts(bucket):
        raise CommandFailed(
            f"hosts run over this bucket: {', '.join(hosts)}. Stop them and try again; one that was killed counts "
            "until its lease is over, in half a minute. --force moves all the same"
        )


def counted(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `1 journal batch`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


@contextlib.contextmanager
def bar() -> Iterator[tuple["Step", Callable[[int], None]]]:
    """A bar on stderr where somebody watches: a function to tell of each step, and one to tell how many there are."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        row = progress.add_task("listing", total=None)

        def step(doing: str, count: int) -> None:
            progress.update(row, description=doing, advance=0 if doing == "listing" else count)

        yield step, lambda total: progress.update(row, total=total)
