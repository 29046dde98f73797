"""``python -m benchmarks``: measure the program on this machine and print one table.

Exits with 0 whatever the numbers are, and with 1 if something could not run.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import logging
import os
import platform
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

import harvester_ccm
from benchmarks import handover, nodes, services
from benchmarks.arena import open_arena
from benchmarks.table import HEADING, Row
from devenv.process import DevenvError, run_directory
from devenv.stage import Scene
from harvester_ccm.errors import CCMError


def main() -> int:
    """Run the benchmarks and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure harvester-ccm on this machine.")
    parser.add_argument("--services", type=int, metavar="COUNT", help="only this number of Services, at a steady rate")
    parser.add_argument("--nodes", type=int, metavar="COUNT", help="only this number of Nodes")
    parser.add_argument("--handovers", type=int, metavar="COUNT", help="only this number of handovers")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    # As in the image: a program that compiles itself starts later and never returns the memory for it.
    compileall.compile_dir(Path(harvester_ccm.__file__).parent, quiet=1)
    parts = {"services": options.services, "nodes": options.nodes, "handovers": options.handovers}
    if not any(parts.values()):
        parts = {"default": 1, "services": 300, "nodes": 100, "handovers": 20}
    try:
        with run_directory("benchmarks", keep=options.keep) as directory:
            print(f"{_machine()}\n\n{HEADING}", flush=True)
            for part, count in parts.items():
                if count:
                    asyncio.run(_print(part, count, directory / part))
    except (CCMError, DevenvError, TimeoutError, RuntimeError) as error:
        print(f"benchmarks could not run: {error}", file=sys.stderr)
        return 1
    return 0


async def _print(part: str, count: int, directory: Path) -> None:
    """Measure one part on clusters of its own and print its rows."""
    scene = await asyncio.to_thread(Scene.start, directory, audit=True)
    try:
        async for row in _measure(part, count, scene, directory):
            print(row.line(), flush=True)
    finally:
        scene.stop()


async def _measure(part: str, count: int, scene: Scene, directory: Path) -> AsyncIterator[Row]:
    if part == "handovers":
        async for row in handover.measure(scene, directory, count):
            yield row
        return
    async with open_arena(scene, directory) as arena:
        if part == "services":
            await arena.start()
        rows = {
            "default": lambda: services.measure(arena),
            "services": lambda: services.measure_rate(arena, count),
            "nodes": lambda: nodes.measure(arena, count),
        }[part]()
        async for row in rows:
            yield row


def _machine() -> str:
    """Return processor, cores, load and versions in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return (
        f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main())
