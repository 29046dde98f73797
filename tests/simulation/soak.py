"""Runs thousands of schedules, and shortens a scenario that fails.

python -m tests.simulation.soak --seeds 10000        # from a first seed that the commit determines
python -m tests.simulation.soak --minutes 30 --first 5000
python -m tests.simulation.soak --seed 4711          # one, with a trace
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import Final

from tests.simulation.actions import Scenario
from tests.simulation.scenario import scenario_of
from tests.simulation.schedule import Result, Schedule
from tests.simulation.seeds import first_unseen

BATCH: Final = 25
TRACE_LINES: Final = 80
"""Number of printed lines of a trace."""


def play(seed: str) -> Result:
    return Schedule(scenario_of(seed)).run()


def play_batch(first: int) -> tuple[list[tuple[str, str]], Counter[str]]:
    """Run ``BATCH`` schedules; return seeds and messages of failures, and the number of schedules with each fault."""
    failed, met = [], Counter[str]()
    for seed in map(str, range(first, first + BATCH)):
        result = play(seed)
        met.update(["schedules", *result.met])
        if result.wrong:
            failed.append((seed, result.wrong))
    return failed, met


def shortened(scenario: Scenario, wrong: str) -> Scenario:
    """Return the scenario without all that it fails without, in the same way."""
    kind = kind_of(wrong)
    size = max(len(scenario.actions) // 2, 1)
    while True:
        found, start = False, 0
        while start < len(scenario.actions):
            shorter = replace(scenario, actions=scenario.actions[:start] + scenario.actions[start + size :])
            if kind_of(Schedule(shorter).run().wrong) == kind:
                scenario, found = shorter, True
            else:
                start += size
        if size > 1:
            size //= 2
        elif not found:
            return scenario


def kind_of(wrong: str) -> str:
    """Return the kind of a failure: its words without names and numbers."""
    return " ".join(word for word in wrong.split() if word.isalpha() and len(word) > 2)[:60]


def print_trace(scenario: Scenario, wrong: str) -> None:
    print(f"\nseed {scenario.seed}, {scenario.pool} addresses: {wrong}\n")
    for action in scenario.actions:
        print(f"  {action.pause:8.3f} s later  {action}")
    print()
    for line in Schedule(scenario).run(trace=True).trace[-TRACE_LINES:]:
        print(f"  {line[:300]}")


def main(arguments: list[str]) -> int:
    """Run schedules and print failures; return 1 if one failed."""
    parser = argparse.ArgumentParser(description="schedules of the whole program in memory")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, help="first seed; by default one that the commit determines")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--seed", help="run only this one and print its trace")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--whole", action="store_true", help="do not make failing scenarios short")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        result = play(options.seed)
        scenario = result.scenario if options.whole or not result.wrong else shortened(result.scenario, result.wrong)
        print_trace(scenario, result.wrong or "no failure")
        return int(bool(result.wrong))
    first = first_unseen() if options.first is None else options.first
    print(f"schedules from seed {first}: FIRST={first}", flush=True)
    began, failed, met = time.monotonic(), [], Counter[str]()
    with ProcessPoolExecutor(options.workers) as pool:
        waiting = {pool.submit(play_batch, batch) for batch in range(first, first + options.seeds, BATCH)}
        for one in as_completed(waiting):
            failures, counts = one.result()
            failed += failures
            met += counts
            if time.monotonic() - began > 60 * options.minutes:
                pool.shutdown(cancel_futures=True)
                break
    for fault, count in met.most_common():
        print(f"{count:9} {fault}")
    kinds: dict[str, tuple[str, str]] = {}
    for seed, wrong in failed:
        kinds.setdefault(kind_of(wrong), (seed, wrong))
    print(f"{len(failed)} failed, in {len(kinds)} ways")
    for seed, wrong in kinds.values():
        scenario = scenario_of(seed)
        print_trace(scenario if options.whole else shortened(scenario, wrong), wrong)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
