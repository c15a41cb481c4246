"""What one exchange with a host costs in the bucket, by the gateway's meter.

Heartbeats and sweeps go on beside any exchange, at their own pace; they are left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from fake_gcs.meter import billing_class, round_trips

QUIET_SECONDS = 2.0
"""A second longer than the journal, the end of a turn and the pointer after it take to be written."""


@dataclass(frozen=True)
class Cost:
    """Requests of one exchange.

    Attributes:
        requests: Each as the gateway noted it.
    """

    requests: list[dict]

    def of_class(self, name):
        return sum(billing_class(r["operation"]) == name for r in self.requests)

    @property
    def round_trips(self):
        return round_trips(self.requests)

    @property
    def bytes_written(self):
        return sum(r["bytes_in"] for r in self.requests)

    def keys(self):
        return [f"{r['operation']} {r['key'].rsplit('/', 1)[-1]}" for r in self.requests]

    def __str__(self):
        return (
            f"{self.of_class('A'):3d} class A {self.of_class('B'):3d} class B {self.of_class('free'):3d} free "
            f"{self.round_trips:3d} round trips {self.bytes_written:9,d} bytes written"
        )


class Meter:
    """Reads the gateway's meter between two points of an exchange."""

    def __init__(self, emulator, bucket):
        self._emulator = emulator
        self._bucket = bucket
        self._after = 0
        self.cost()

    def cost(self):
        """The requests since the last call."""
        found = self._emulator.requests(bucket=self._bucket, after=self._after)
        self._after = max([self._after, *(r["seq"] for r in found)])
        return Cost([r for r in found if not r["key"].startswith("hosts/") and not _is_sweep(r)])

    def rest(self):
        """The requests since the last call, once they have come to an end."""
        found = []
        while True:
            time.sleep(QUIET_SECONDS)
            more = self.cost().requests
            if not more:
                return Cost(found)
            found += more


def _is_sweep(request):
    return request["operation"] == "objects.list" and not request["key"]
