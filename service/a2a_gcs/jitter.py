"""The one place where chance enters: what many hosts do now and then, they should not do in step.

The numbers come from the system. Those of the module `random` belong to whoever seeds it, and a process that is forked
would draw the same ones as its parent.
"""

from __future__ import annotations

import random

_SYSTEM = random.SystemRandom()

fraction = _SYSTEM.random
"""A uniform number in [0, 1)."""


def jittered(seconds: float, spread: float = 0.5) -> float:
    """So many seconds, give or take: uniform within `spread`, a fraction of them, to either side."""
    return seconds * (1 + spread * (2 * fraction() - 1))
