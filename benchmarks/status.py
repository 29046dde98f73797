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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Final

import aiohttp
import structlog

from benchmarks.arena import CLUSTER, PATIENCE, Arena, open_arena
from benchmarks.load import names_of, service_body
from benchmarks.machine import cpu_seconds, describe_machine
from benchmarks.result import Measurement, Section, missed
from devenv.process import DevenvError, run_directory
from devenv.stage import Scene
from harvester_ccm.commands.beside import find_program
from harvester_ccm.errors import CCMError

COUNT: Final = 1000
ROUNDS: Final = 5
TARGET_SECONDS: Final = 1.5
QUIET_SECONDS: Final = 2.0
PROBE_SECONDS: Final = 0.01
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
            section = await _section(arena, scene, count, directory)
            print(section.text(), end="\n\n")
            for line in missed([section]) or ["all targets met"]:
                print(line)
    finally:
        scene.stop()


async def _section(arena: Arena, scene: Scene, count: int, directory: Path) -> Section:
    flags = (
        f"--cloud-config={scene.cloud_config}",
        f"--kubeconfig={scene.kubeconfig}",
        f"--cluster-name={CLUSTER}",
    )
    # As in the pod: the program is process 1, and its command line gives the flags.
    proc = directory / "proc"
    proc.mkdir()
    (proc / "1").symlink_to(f"/proc/{arena.program.pid}")
    program = find_program({}, proc)
    port = program.flags.read("secure-port", int) if program is not None else 0
    await _timed(count, proc, ("-o", "json"))
    quiet = await _longest_answer(port, lambda: asyncio.sleep(QUIET_SECONDS))
    before = cpu_seconds(arena.program.pid)
    led = [await _timed(count, proc, ("-o", form)) for form in FORMS * ROUNDS]
    served = (cpu_seconds(arena.program.pid) - before) / len(led)
    busy = await _longest_answer(port, lambda: _timed(count, proc, ("-o", "json")))
    listed = [await _timed(count, directory, (*flags, "-o", form)) for form in FORMS * ROUNDS]
    return Section(
        f"status with {count} Services",
        [
            Measurement("in the pod of the leader", median(one.seconds for one in led), "s", TARGET_SECONDS),
            Measurement("  processor time of the command", median(one.processor for one in led), "s"),
            Measurement("  processor time of the program", served, "s"),
            Measurement("from lists of both clusters", median(one.seconds for one in listed), "s", TARGET_SECONDS),
            Measurement("  processor time of the command", median(one.processor for one in listed), "s"),
            Measurement("longest answer of /livez, nobody asks for the status", 1000 * quiet, "ms"),
            Measurement("longest answer of /livez, while somebody does", 1000 * busy, "ms"),
        ],
    )


@dataclass(frozen=True)
class _Run:
    seconds: float
    processor: float


async def _timed(count: int, proc: Path, words: Sequence[str]) -> _Run:
    """Return what the command takes from its start to its end."""
    command = (
        "import sys; from pathlib import Path; from harvester_ccm.cli import main; "
        f"sys.exit(main(proc=Path({str(proc)!r})))"
    )
    began, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    line = [sys.executable, "-c", command, "status", *words]
    done = await asyncio.to_thread(partial(subprocess.run, line, check=False, capture_output=True, text=True))
    seconds, after = time.perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    if "json" in words and len(json.loads(done.stdout)["services"]) != count:
        raise RuntimeError(f"status shows not all of {count} Services: {done.stderr}")
    from_leader = "  program " in done.stdout
    if "text" in words and from_leader == any(word.startswith("--cloud-config") for word in words):
        raise RuntimeError(f"status was made otherwise than meant: {done.stdout[:1000]}")
    return _Run(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


async def _longest_answer(port: int, meanwhile: Callable[[], Awaitable[object]]) -> float:
    """Return the longest time in seconds in which the program answered a probe while something else went on."""
    address = f"https://127.0.0.1:{port}/livez"
    longest, other = 0.0, asyncio.ensure_future(meanwhile())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        while not other.done():
            began = time.perf_counter()
            async with session.get(address) as answer:
                await answer.read()
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(PROBE_SECONDS)
    await other
    return longest


if __name__ == "__main__":
    sys.exit(main())
