"""``python -m benchmarks``: run them, print every number, say at the end what missed its target.

Exit code 0 when all ran, whatever the numbers, and 1 when something could not run.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

import harvester_ccm
from benchmarks.arena import open_arena
from benchmarks.held import run_held
from benchmarks.machine import describe_machine
from benchmarks.result import Section, missed
from benchmarks.scale import run_scale
from benchmarks.scenarios import run_all, run_joins
from devenv.process import DevenvError, run_directory
from devenv.stage import Scene
from harvester_ccm.errors import CCMError

COUNT: Final = 100
SINGLES: Final = 30
QUICK: Final = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure harvester-ccm on this machine.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} Services instead of {COUNT}: does it run at all")
    parser.add_argument(
        "--nodes",
        type=int,
        nargs="?",
        const=0,
        metavar="COUNT",
        help="nothing about Services: only Nodes that join, or with a number what so many of them cost",
    )
    parser.add_argument(
        "--services", type=int, metavar="COUNT", help="only what it costs to hold so many Services, and a share of them"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    count, singles = (QUICK, QUICK) if options.quick else (COUNT, SINGLES)
    # As in the image: what compiles itself at its start takes longer for it, and memory that it never gives back.
    compileall.compile_dir(Path(harvester_ccm.__file__).parent, quiet=1)
    try:
        with run_directory("benchmarks", keep=options.keep) as directory:
            asyncio.run(_measure(directory, count, singles, nodes=options.nodes, services=options.services))
    except (CCMError, DevenvError, TimeoutError, RuntimeError) as error:
        sys.stderr.write(f"benchmarks could not run: {error}\n")
        return 1
    return 0


async def _measure(directory: Path, count: int, singles: int, *, nodes: int | None, services: int | None) -> None:
    scene = Scene.start(directory, audit=True)
    try:
        version = scene.guest.admin.request("GET", "/version")["gitVersion"]
        print(describe_machine(version), end="\n\n")
        sections: list[Section] = []
        async with open_arena(scene, directory) as arena:
            if services is not None:
                measured = run_held(arena, services)
            elif nodes is None:
                measured = run_all(arena, count, singles)
            else:
                measured = run_scale(arena, nodes) if nodes else run_joins(arena)
            async for section in measured:
                sections.append(section)
                print(section.text(), end="\n\n", flush=True)
        for line in missed(sections) or ["all targets met"]:
            print(line)
    finally:
        scene.stop()


if __name__ == "__main__":
    sys.exit(main())
