"""Plays schedules by the thousand, and makes a short story of one that fails.

python -m tests.simulation.soak --seeds 10000        # so many, from seed 0 on
python -m tests.simulation.soak --minutes 30 --first 5000
python -m tests.simulation.soak --seed 4711          # one, with all that happened
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Final

from tests.simulation.acts import Story
from tests.simulation.schedule import Result, Schedule
from tests.simulation.story import story_of

BATCH: Final = 25
TOLD: Final = 80
"""Last lines of what happened that are printed."""


def play(seed: str) -> Result:
    """Play the schedule of a seed."""
    return Schedule(story_of(seed)).run()


@dataclass
class Played:
    """What came of some schedules."""

    number: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Seeds, and what was wrong."""
    states: set[int] = field(default_factory=set)
    met: Counter[str] = field(default_factory=Counter)
    """What went wrong around the program, and how often."""
    of: Counter[str] = field(default_factory=Counter)
    """The same, and in how many schedules."""
    seconds: float = 0.0
    """Of CPU."""

    def add(self, more: Played) -> None:
        """Take in what came of others."""
        self.number += more.number
        self.failed += more.failed
        self.states |= more.states
        self.met += more.met
        self.of += more.of
        self.seconds += more.seconds

    def __str__(self) -> str:
        lines = [f"{count:9} {what}, in {self.of[what]} schedules" for what, count in self.met.most_common()]
        each = f"{1000 * self.seconds / max(self.number, 1):.0f} ms of CPU each"
        return "\n".join([f"{self.number} schedules, {len(self.states)} different states, {each}", *lines])


def play_batch(first: int, number: int = BATCH) -> Played:
    """Play some schedules."""
    began, played = time.process_time(), Played(number)
    for seed in range(first, first + number):
        result = play(str(seed))
        played.states |= result.states
        played.met += result.met
        played.of.update(result.met.keys())
        if result.wrong:
            played.failed.append((str(seed), result.wrong))
    played.seconds = time.process_time() - began
    return played


def shortened(story: Story, wrong: str) -> Story:
    """Return the story without all that it fails without, in the same way."""
    kind = kind_of(wrong)
    size = max(len(story.acts) // 2, 1)
    while True:
        found, start = False, 0
        while start < len(story.acts):
            shorter = replace(story, acts=story.acts[:start] + story.acts[start + size :])
            if kind_of(Schedule(shorter).run().wrong) == kind:
                story, found = shorter, True
            else:
                start += size
        if size > 1:
            size //= 2
        elif not found:
            return story


def kind_of(wrong: str) -> str:
    """Return what sort of failure it is: the words without names and numbers."""
    return " ".join(word for word in wrong.split() if word.isalpha() and len(word) > 2)[:60]


def tell(story: Story, wrong: str) -> None:
    """Print a story, and what happened in it."""
    print(f"\nseed {story.seed}, {story.pool} addresses: {wrong}\n")
    for act in story.acts:
        print(f"  {act.pause:8.3f} s later  {act}")
    print()
    for line in Schedule(story).run(tell=True).trace[-TOLD:]:
        print(f"  {line[:300]}")


def main(arguments: list[str]) -> int:
    """Play and tell; return 1 when one failed."""
    parser = argparse.ArgumentParser(description="schedules of the whole program in memory")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", help="play only this one and tell all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--whole", action="store_true", help="do not make failing stories short")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        result = play(options.seed)
        story = result.story if options.whole or not result.wrong else shortened(result.story, result.wrong)
        tell(story, result.wrong or "nothing is wrong")
        return int(bool(result.wrong))
    began, played = time.monotonic(), Played()
    with ProcessPoolExecutor(options.workers) as pool:
        waiting = {
            pool.submit(play_batch, first) for first in range(options.first, options.first + options.seeds, BATCH)
        }
        for one in as_completed(waiting):
            played.add(one.result())
            if time.monotonic() - began > 60 * options.minutes:
                pool.shutdown(cancel_futures=True)
                break
    print(played)
    kinds: dict[str, tuple[str, str]] = {}
    for seed, wrong in played.failed:
        kinds.setdefault(kind_of(wrong), (seed, wrong))
    print(f"{len(played.failed)} failed, in {len(kinds)} ways")
    for seed, wrong in kinds.values():
        story = story_of(seed)
        tell(story if options.whole else shortened(story, wrong), wrong)
    return int(bool(played.failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
