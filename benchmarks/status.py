"""How long ``harvester-ccm status`` takes with many Services, on real API servers: ``python -m benchmarks.status``.

The whole command is measured, from its start to its end, as somebody waits for it. Exit code 0 when all ran, whatever
the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Final

import structlog

from benchmarks.arena import CLUSTER, PATIENCE, open_arena
from benchmarks.load import names_of, service_body
from benchmarks.machine import describe_machine
from benchmarks.result import Measurement, Section, missed
from devenv.process import DevenvError, run_directory
from devenv.stage import Scene
from harvester_ccm.errors import CCMError

COUNT: Final = 1000
ROUNDS: Final = 5
TARGET_SECONDS: Final = 1.5
FORMS: Final = ("json", "text")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.status", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help=f"Services (default {COUNT})")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        with run_directory("benchmarks-status", keep=False) as directory:
            asyncio.run(_measure(directory, options.count))
    except (CCMError, DevenvError, TimeoutError, RuntimeError) as error:
        sys.stderr.write(f"benchmarks could not run: {error}\n")
        return 1
    return 0


async def _measure(directory: Path, count: int) -> None:
    scene = Scene.start(directory, audit=True)
    try:
        print(describe_machine(scene.guest.admin.request("GET", "/version")["gitVersion"]), end="\n\n")
        async with open_arena(scene, directory) as arena:
            await arena.start_program()
            names = names_of("web", count)
            await arena.load.create([service_body(name) for name in names])
            await arena.services.until(
                lambda: sum(bool(one.addresses) for one in arena.services.informer.all()) >= count,
                within=10 * PATIENCE,
                what=f"addresses of {count} Services",
            )
            section = await _section(scene, count)
            print(section.text(), end="\n\n")
            for line in missed([section]) or ["all targets met"]:
                print(line)
    finally:
        scene.stop()


async def _section(scene: Scene, count: int) -> Section:
    flags = (
        f"--cloud-config={scene.cloud_config}",
        f"--kubeconfig={scene.kubeconfig}",
        f"--cluster-name={CLUSTER}",
    )
    runs = [await _timed(count, (*flags, "-o", form)) for form in FORMS * ROUNDS]
    return Section(
        f"status with {count} Services",
        [
            Measurement("from its start to its end", median(one.seconds for one in runs), "s", TARGET_SECONDS),
            Measurement("  processor time", median(one.processor for one in runs), "s"),
        ],
    )


@dataclass(frozen=True)
class _Run:
    seconds: float
    processor: float


async def _timed(count: int, words: Sequence[str]) -> _Run:
    """Return what the command takes from its start to its end."""
    began, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    line = [sys.executable, "-m", "harvester_ccm", "status", *words]
    done = await asyncio.to_thread(partial(subprocess.run, line, check=False, capture_output=True, text=True))
    seconds, after = time.perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    if "json" in words and len(json.loads(done.stdout)["services"]) != count:
        raise RuntimeError(f"status shows not all of {count} Services: {done.stderr}")
    return _Run(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    sys.exit(main())
