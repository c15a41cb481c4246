"""How long a bucket far away takes: delays by class of operation, so that round trips show in time.

`regional` is a documented choice, not a measurement: about the medians that clients in the bucket's
own region report for small objects, and 125 MB/s for bodies. Half of a delay passes before a request
takes effect, half after, as on a wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_REGIONAL_MS = {
    "objects.get": 20,
    "objects.media": 30,
    "objects.list": 50,
    "objects.insert": 60,
    "objects.startUpload": 60,
    "objects.resume": 60,
    "objects.patch": 50,
    "objects.update": 50,
    "objects.delete": 40,
    "objects.compose": 90,
    "objects.copy": 90,
    "objects.rewrite": 90,
    "objects.move": 90,
    "batch": 60,
}
_REGIONAL_OTHER_MS = 50
_REGIONAL_MS_PER_MB = 8.0
PROFILES = ("none", "regional")


@dataclass
class Latency:
    """A profile of delays.

    Attributes:
        name: One of PROFILES.
        milliseconds: Delay by operation.
        other: Delay of operations that are not named, in ms.
        per_megabyte: Delay for each 10^6 bytes of a body, either way, in ms.
    """

    name: str = "none"
    milliseconds: dict[str, float] = field(default_factory=dict)
    other: float = 0.0
    per_megabyte: float = 0.0

    def seconds(self, operation: str) -> float:
        """Answers the delay of one operation without its body, in seconds."""
        return self.milliseconds.get(operation, self.other) / 1000

    def body_seconds(self, size: int) -> float:
        return size / 1_000_000 * self.per_megabyte / 1000


def profile(name: str) -> Latency:
    """Answers a profile by name.

    Raises:
        ValueError: there is no such profile.
    """
    if name == "none":
        return Latency()
    if name == "regional":
        return Latency("regional", {**_REGIONAL_MS}, _REGIONAL_OTHER_MS, _REGIONAL_MS_PER_MB)
    raise ValueError(f"no latency profile {name!r}; choose from {', '.join(PROFILES)}")
