"""Backoff: the delay after a failure, for everything that tries again.

A reconcile never waits in place: the work queue enqueues its key again after ``pause_after``, as the informer lists
again. ``repeat`` is for the few calls outside of a reconcile.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from harvester_ccm.kube.errors import Conflict, KubeError

T = TypeVar("T")

log = structlog.get_logger(__name__)

BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 30.0
"""First and longest delay after failures."""
CONFLICT_SECONDS: Final = 0.02
"""First delay after a conflict: the watch has usually delivered the newer object by then."""
_MAX_EXPONENT: Final = 64
"""A much larger one would overflow a float."""


def growing_delay(failures: int, *, first: float = BACKOFF_SECONDS, growth: float = 2.0) -> float:
    """Return the delay in seconds after the n-th failure in a row: it grows by a factor, with jitter, up to a limit."""
    factor = growth ** min(failures - 1, _MAX_EXPONENT)
    return min(MAX_BACKOFF_SECONDS, first * (factor + random.random()))


def pause_after(error: Exception | None, failures: int, *, growth: float = 2.0) -> float:
    """Return the delay in seconds after the n-th failure in a row: the server's Retry-After, or a growing delay."""
    if isinstance(error, KubeError) and error.retry_after is not None:
        return error.retry_after
    first = CONFLICT_SECONDS if isinstance(error, Conflict) else BACKOFF_SECONDS
    return growing_delay(failures, first=first, growth=growth)


async def repeat(
    call: Callable[[], Awaitable[T]],
    *,
    on: type[KubeError] | tuple[type[KubeError], ...],
    attempts: float = math.inf,
    delay: Callable[[int], float] = growing_delay,
    what: str = "",
) -> T:
    """Repeat a call in place after errors of these classes, and return its result.

    ``delay`` returns the seconds to wait by the number of failures; the first one is logged as ``what``. A Retry-After
    does not count: others wait behind a call that is repeated in place, and one response would stop them for minutes.
    Raises any other error, and the error of the last attempt.
    """
    failures = 0
    while True:
        try:
            return await call()
        except on as error:
            failures += 1
            if failures >= attempts:
                raise
            if what and failures == 1:
                log.warning(what, error=str(error))
        await asyncio.sleep(delay(failures))
