"""Growing pauses between tries."""

from __future__ import annotations

from tenacity import RetryCallState, wait_exponential_jitter


def backoff(failures: int, *, first: float, longest: float) -> float:
    """Return the pause in seconds after the n-th failure in a row: doubling from ``first``, a little random, capped."""
    # In units of the first pause: the name of the parameter for it differs between releases of the package.
    wait = wait_exponential_jitter(max=longest / first, jitter=1)
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]  # only the count is read
    state.attempt_number = failures
    return first * wait(state)
