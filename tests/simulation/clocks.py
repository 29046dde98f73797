"""Time of day and unique names of the controller, from the seed of the schedule."""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Self

import harvester_ccm.app
import harvester_ccm.kube.clock
import harvester_ccm.kube.events
import harvester_ccm.kube.lease
from tests.simulation.loop import PROCESS, SeededLoop

BEGAN: Final = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def time_of_day(loop: SeededLoop) -> str:
    """Return the time as the API writes it."""
    return (BEGAN + timedelta(seconds=loop.time())).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def of_schedule(loop: SeededLoop, seed: str) -> Iterator[None]:
    """Replace the clock and the random numbers of the controller within the block."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(BEGAN.timestamp() + loop.time(), tz)

    reads = itertools.count()

    class Moment:
        @staticmethod
        def time_ns() -> int:
            # No two reads of a real clock return the same nanosecond.
            return int(loop.time() * 1e9) + next(reads)

    class Names:
        @staticmethod
        def uuid4() -> str:
            return PROCESS.get()

    state = random.getstate()
    random.seed(f"{seed} program")
    replaced: list[tuple[Any, str, Any]] = [
        (harvester_ccm.kube.clock, "datetime", Clock),
        (harvester_ccm.kube.events, "time", Moment),
        (harvester_ccm.kube.lease, "datetime", Clock),
        (harvester_ccm.app, "uuid", Names),
    ]
    real = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    try:
        for module, name, value in replaced:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in real:
            setattr(module, name, value)
        random.setstate(state)
