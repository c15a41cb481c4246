"""`make bench-smoke`: requests, bytes and round trips of a short task and of a streamed one, through the gateway."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from fake_gcs.process import FakeGcs
from tests.benchmark.exchanges import exchange


def main():
    with (
        FakeGcs.start() as emulator,
        tempfile.TemporaryDirectory() as directory,
        exchange(emulator, Path(directory) / "host.log") as host,
    ):
        _short_tasks(host)
        _streams(host)


def _short_tasks(host):
    context = str(uuid.uuid4())
    for name, ids in (
        ("short task, minted context", {}),
        ("short task, named context", {"contextId": context}),
        ("short task, same context", {"contextId": context}),
    ):
        _, before, after = host.send("hello", **ids)
        print(f"{name:32} until the answer {before}")
        print(f"{'':32} after it         {after}")


def _streams(host):
    for chunks, size in ((200, 256), (1000, 1024)):
        first, whole, after = host.stream(f"stream {chunks} {size}")
        written = (whole.bytes_written + after.bytes_written) / (chunks * size)
        print(f"{f'stream of {chunks} x {size} bytes':32} to the first event {first}")
        print(f"{'':32} to the last      {whole}")
        print(f"{'':32} after it         {after}")
        print(f"{'':32} written / output {written:.2f}")


if __name__ == "__main__":
    main()
