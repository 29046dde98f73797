"""Backoff: delays after failures, and calls that are repeated in place, on simulated time."""

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.backoff import CONFLICT_SECONDS, MAX_BACKOFF_SECONDS, pause_after, repeat
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import Answer, Conflict, KubeError, UnexpectedAnswer, Unreachable
from tests.support.clock import jumping_time


class Calls:
    """A call that raises these errors one after the other, and then returns its number."""

    def __init__(self, *errors: KubeError) -> None:
        self._errors = list(errors)
        self.times: list[float] = []
        """Loop times at which it was called."""

    async def __call__(self) -> int:
        self.times.append(loop_time())
        if self._errors:
            raise self._errors.pop(0)
        return len(self.times)


def asking_to_wait(seconds: float) -> Unreachable:
    """Return an error whose server requests a delay."""
    error = UnexpectedAnswer("HTML")
    error.retry_after = seconds
    return error


def test_backoff_grows_up_to_the_maximum_unless_the_server_requests_a_delay() -> None:
    for failures, least, most in ((1, 0.5, 1.0), (2, 1.0, 1.5), (5, 8.0, 8.5), (7, 30.0, 30.0), (5000, 30.0, 30.0)):
        assert least <= pause_after(None, failures) <= most
    assert pause_after(asking_to_wait(45.0), failures=5) == 45.0


def test_first_delay_after_a_conflict_is_short() -> None:
    conflict = Conflict(Answer(409, "Conflict", "changed"))
    assert CONFLICT_SECONDS <= pause_after(conflict, failures=1) <= 2 * CONFLICT_SECONDS


@jumping_time
async def test_call_is_repeated_with_growing_delays_whatever_the_server_requests() -> None:
    calls = Calls(Unreachable("away"), asking_to_wait(300.0), *[Unreachable("away")] * 6)
    with capture_logs() as logged:
        assert await repeat(calls, on=Unreachable, what="not read") == 9
    first, second, *_, last = [later - earlier for earlier, later in zip(calls.times, calls.times[1:], strict=False)]
    assert (0.5 <= first <= 1.0, 1.0 <= second <= 1.5) == (True, True)
    assert last == pytest.approx(MAX_BACKOFF_SECONDS)
    assert [(line["event"], line["error"]) for line in logged] == [("not read", "away")]


@jumping_time
async def test_last_attempt_raises_its_error_without_a_delay() -> None:
    calls = Calls(Unreachable("first"), Unreachable("second"), Unreachable("third"))
    with pytest.raises(Unreachable, match="second"):
        await repeat(calls, on=(Unreachable, Conflict), attempts=2, delay=lambda _failures: 5.0)
    assert len(calls.times) == 2
    assert loop_time() - calls.times[0] == pytest.approx(5.0)
