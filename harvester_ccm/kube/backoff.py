"""Backoff: the delay after a failure, for everything in this package that tries again."""

import random
from typing import Final

from tenacity import wait_exponential_jitter

from harvester_ccm.kube.errors import Conflict, KubeError

BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 30.0
"""First and longest delay after failures."""
CONFLICT_SECONDS: Final = 0.02
"""First delay after a conflict: the watch has usually delivered the newer object by then."""


def pause_after(error: BaseException | None, failures: int, *, growth: float = 2.0) -> float:
    """Return the delay in seconds after the n-th failure in a row.

    It is the server's Retry-After, or else grows exponentially by the factor ``growth``, with jitter.
    """
    if isinstance(error, KubeError) and error.retry_after is not None:
        return error.retry_after
    first = CONFLICT_SECONDS if isinstance(error, Conflict) else BACKOFF_SECONDS
    # A much larger exponent would overflow a float.
    return min(MAX_BACKOFF_SECONDS, first * (growth ** min(failures - 1, 64) + random.random()))


IN_PLACE_DELAYS: Final = wait_exponential_jitter(
    multiplier=BACKOFF_SECONDS, max=MAX_BACKOFF_SECONDS, jitter=BACKOFF_SECONDS
)
"""Delays of the calls that tenacity repeats in place, outside of a reconcile."""
