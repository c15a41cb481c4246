"""Two hosts on one bucket that takes the time of a real one, beside the design with two puts for each event."""

from __future__ import annotations

import contextlib

from tests.benchmark.load import clients_of
from tests.benchmark.sends import SHORT, Bucket
from tests.benchmark.subjects import gateway, host, together, two_puts_on_the_emulator

OURS, TWO_PUTS = "a2a-gcs", "two puts, emulator"
REGIONAL = "--latency=regional"
FIVE = "5 64"
FIVE_CHUNKS = "short task of five chunks, new context"
LEASE = 600
"""Seconds; so long that the heartbeat stays out of the way."""


@contextlib.contextmanager
def servers(directory, *options_of_peer):
    """Yields the two hosts, the peer, and the Bucket of either."""
    with contextlib.ExitStack() as stack:
        emulator, place = stack.enter_context(gateway(REGIONAL))
        starts = [together(host(place, directory, lease_seconds=LEASE) for _ in range(2))]
        starts.append(two_puts_on_the_emulator(directory, *options_of_peer))
        hosts, peer = stack.enter_context(together(starts))
        yield hosts, peer, Bucket(emulator, place.uri.removeprefix("gs://")), Bucket(peer.emulator, peer.bucket)


@contextlib.asynccontextmanager
async def clients(hosts, peer):
    """A client of each host, and one of the peer, whose servers have done a task."""
    async with clients_of([*hosts, peer]) as (here, elsewhere, other):
        for client in (here, elsewhere):
            await client.send(SHORT)
        await other.send(FIVE)
        yield here, elsewhere, other
