"""Time, as the rest of the package sees it: the one place where clocks are read.

Two clocks, for two purposes. `boottime` never jumps and goes on while the
machine sleeps, so it measures leases. `utcnow` is for what people read. The
age of an object is neither: it comes from the store's own clock
(`ObjectInfo.age`), as hosts' clocks may be wrong by hours.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> float:
    """Seconds since boot, counting suspended time; `CLOCK_MONOTONIC` where there is no such clock."""
    return time.clock_gettime(_BOOTTIME)


def utcnow() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def unix_millis() -> int:
    """The current time in Unix milliseconds, as A2A's timestamps have it."""
    return time.time_ns() // 1_000_000
