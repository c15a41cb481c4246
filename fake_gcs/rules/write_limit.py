"""Rule `write_limit`: one write a second to the same object name, or 429 rateLimitExceeded.

Source: cloud.google.com/storage/quotas#objects ("one write per second to the same object name").
How short bursts pass is not documented. ASSUMPTION: a token bucket with burst 2 and refill 1/s
per name; creating, overwriting, patching and deleting each take a token ("object mutation
operations (create, update, and delete)", the text of the real 429), failed preconditions do not.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_BURST = 2
_REMEMBER = 10_000


class WriteLimit:
    """Token buckets by object name.

    Attributes:
        burst: Writes that may follow one another at once.
        refill: Tokens that come back per second.
    """

    def __init__(
        self, burst: float = DEFAULT_BURST, refill: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.burst = burst
        self.refill = refill
        self._clock = clock
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def allows(self, key: tuple[str, str]) -> bool:
        return self._tokens(key, self._clock()) >= 1

    def take(self, key: tuple[str, str]) -> bool:
        """Takes a token for one write to key and answers True, or answers False."""
        now = self._clock()
        tokens = self._tokens(key, now)
        if tokens < 1:
            return False
        if len(self._buckets) > _REMEMBER:
            self._forget_full(now)
        self._buckets[key] = (tokens - 1, now)
        return True

    def reset(self) -> None:
        self._buckets.clear()

    def _tokens(self, key: tuple[str, str], now: float) -> float:
        tokens, since = self._buckets.get(key, (self.burst, now))
        return min(self.burst, tokens + (now - since) * self.refill)

    def _forget_full(self, now: float) -> None:
        self._buckets = {key: value for key, value in self._buckets.items() if self._tokens(key, now) < self.burst}
