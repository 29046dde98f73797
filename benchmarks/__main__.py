"""``python -m benchmarks``: measure the controller on this machine and print one table.

Exits with 0 whatever the values are, and with 1 if a measurement failed.
"""

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
from benchmarks import free_text, nodes, services
from benchmarks.environment import open_environment
from benchmarks.table import HEADING, Row
from devenv.process import DevenvError, run_directory
from devenv.stage import Scene
from harvester_ccm.kube.errors import KubeError

NODES, RATE_SERVICES = 100, 300
"""Of a run without options."""


def main() -> int:
    """Run the benchmarks and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure harvester-ccm on this machine.")
    parser.add_argument("--services", type=int, metavar="COUNT", help="only this number of Services, at a steady rate")
    parser.add_argument("--nodes", type=int, metavar="COUNT", help="only this number of Nodes")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    # As in the image: a process that compiles modules starts later and does not return the memory for it.
    compileall.compile_dir(Path(harvester_ccm.__file__).parent, quiet=1)
    try:
        with run_directory("benchmarks") as directory:
            print(f"{_machine()}\n\n{HEADING}", flush=True)
            if not (options.services or options.nodes):
                for row in free_text.measure():
                    print(row.line(), flush=True)
            asyncio.run(_measure(directory, options.services, options.nodes))
    except (KubeError, DevenvError, TimeoutError, RuntimeError) as error:
        print(f"benchmarks could not run: {error}", file=sys.stderr)
        return 1
    return 0


async def _measure(directory: Path, service_count: int | None, node_count: int | None) -> None:
    is_default = not (service_count or node_count)
    scene = await asyncio.to_thread(Scene.start, directory, audit=True)
    try:
        async with open_environment(scene, directory) as environment:
            if is_default:
                await _print(services.measure(environment))
            if is_default or service_count:
                await _print(services.measure_rate(environment, service_count or RATE_SERVICES))
            if is_default or node_count:
                await _print(nodes.measure(environment, node_count or NODES))
    finally:
        scene.stop()


async def _print(rows: AsyncIterator[Row]) -> None:
    async for row in rows:
        print(row.line(), flush=True)


def _machine() -> str:
    """Return processor, cores, load and versions in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (
        f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the "
        f"start, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main())
