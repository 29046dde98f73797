"""What the program asks for in each minute while nothing changes, and while somebody else undoes what it writes.

    python -m benchmarks.fights

The whole program runs in memory, with the clock jumping: what counts here are requests, and these do not depend on the
machine. Lists that are read anew now and then, watches and the Lease do not count.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import structlog

from benchmarks.result import Measurement, Section
from tests.worlds.clock import JumpingLoop
from tests.worlds.fights import FIGHTS, Arena, Fight, calls_per_minute
from tests.worlds.memory_server import Call, placed

MINUTES: Final = 60
MOST: Final = 6
"""Requests in a minute that are good enough for one object in a fight."""


async def measure(fight: Fight | None, minutes: int = MINUTES) -> tuple[list[int], list[int]]:
    """Return the writes to objects, and all requests with Events among them, of each minute."""
    arena = Arena()
    async with arena.at_rest():
        calls = await calls_per_minute(arena, fight, minutes)
    return [len(list(filter(_is_change, one))) for one in calls], [len(list(filter(_is_work, one))) for one in calls]


def section(name: str, fight: Fight | None, minutes: int = MINUTES) -> Section:
    """Measure a fight, or rest, and return the numbers."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        changes, requests = runner.run(measure(fight, minutes))
    most = MOST if fight else 0
    return Section(
        name,
        [
            Measurement("writes to objects in the worst minute", max(changes), target=most),
            Measurement("requests in the first minute, with Events and questions", requests[0]),
            Measurement("requests in the worst minute after that", max(requests[1:]), target=most),
            Measurement("requests a minute, mean", sum(requests) / len(requests)),
        ],
    )


def _is_work(call: Call) -> bool:
    return call.is_write or bool(placed(call.path).name)


def _is_change(call: Call) -> bool:
    return call.is_write and "/events" not in call.path


def main() -> None:
    """Print a table for rest and for each fight."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(section("Nothing changes", None).text(), end="\n\n")
    for name, fight in FIGHTS.items():
        print(section(f"{name[0].upper()}{name[1:]}", fight).text(), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
