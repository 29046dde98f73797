"""How long to wait before the next try."""

from __future__ import annotations

import random
from typing import Final

from harvester_ccm.errors import CCMError

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Pauses in seconds between two tries of a request that nothing can go on without."""
_DOUBLINGS: Final = 64
"""No pause grows any more after so many failures; more would be too large for a float."""


def backoff(failures: int, *, first: float, longest: float, growth: float = 2.0) -> float:
    """Return the pause in seconds after the n-th failure in a row: growing from ``first``, a little random, capped."""
    return min(longest, first * (growth ** min(failures - 1, _DOUBLINGS) + random.random()))


def pause_after(
    error: Exception | None,
    failures: int,
    *,
    first: float = FIRST_PAUSE,
    longest: float = LONGEST_PAUSE,
    growth: float = 2.0,
) -> float:
    """Return the seconds to wait after a failure: what the server asked for, or a growing random time."""
    if isinstance(error, CCMError) and error.retry_after is not None:
        return error.retry_after
    return backoff(failures, first=first, longest=longest, growth=growth)
