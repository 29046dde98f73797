"""Delay before the next attempt of a failed request."""

from __future__ import annotations

import random
from typing import Final

from harvester_ccm.errors import CCMError

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""First and longest delay in seconds."""
_DOUBLINGS: Final = 64
"""Number of failures after which the delay is constant; a larger exponent would overflow a float."""


def pause_after(
    error: BaseException | None,
    failures: int,
    *,
    first: float = FIRST_PAUSE,
    longest: float = LONGEST_PAUSE,
    growth: float = 2.0,
) -> float:
    """Return the delay in seconds after the n-th failure in a row.

    It is the server's Retry-After, or else grows exponentially from ``first`` to ``longest``, with jitter.
    """
    if isinstance(error, CCMError) and error.retry_after is not None:
        return error.retry_after
    return min(longest, first * (growth ** min(failures - 1, _DOUBLINGS) + random.random()))
