"""The emulated Harvester beside the real one: how long each takes for the same load balancers, and what it writes.

    python -m benchmarks.calibration

Load balancers are made directly, without the program: all at once or so many in flight, with and without the finalizer
of Harvester's controller from the start. One is in flight until it has its address and the finalizer. At last the
program serves a hundred Services. The figures of the real one were measured with its controller and its webhook between
the same API servers; ``docs/benchmarks.md`` says how. Ends with 1 when a time of the emulated one is not within
``TOLERANCE`` of the real one's.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from benchmarks.audit import read_requests
from benchmarks.machine import describe_machine
from devenv.harvester.loadbalancers import FINALIZER
from devenv.harvester.records import LOAD_BALANCERS
from devenv.process import run_directory
from devenv.stage import Scene, Stage
from devenv.watch import Document

TOLERANCE: Final = 0.25
NAMESPACE: Final = "default"
POOL: Final = "127.77.0.0/16"
PATIENCE: Final = 300.0
LOOK_SECONDS: Final = 0.03
"""Between two looks at what is in flight."""
REST_SECONDS: Final = 4.0
"""After which the controller may write as much at once as after any pause."""


@dataclass(frozen=True)
class Way:
    """A way to ask for load balancers, and what the real controller needed for it."""

    count: int
    in_flight: int
    preset: bool
    """Whether the controller's finalizer is there from the start."""
    seconds: tuple[float, float]
    """Least and most that was measured, by the load of the machine."""
    writes: str
    """What it wrote: to the pool, to load balancers; and what of it met a conflict."""

    @property
    def title(self) -> str:
        """What is done, in words."""
        how = "all at once" if self.in_flight >= self.count else f"{self.in_flight} in flight"
        return f"{self.count} {how}{', finalizer preset' if self.preset else ''}"

    def fits(self, seconds: float) -> bool:
        """Return whether a time is that of the real one."""
        least, most = self.seconds
        return least * (1 - TOLERANCE) <= seconds <= most * (1 + TOLERANCE)


WAYS: Final = (
    Way(40, 40, False, (22.4, 37.0), "40 + 81 to 104, 1 to 24 conflicts"),
    Way(40, 1, False, (23.8, 25.8), "40 + 80, 9 to 19 conflicts"),
    Way(40, 1, True, (14.0, 14.0), "40 + 40, no conflict"),
    Way(40, 2, True, (29.6, 29.6), "40 + 79, 39 conflicts"),
    Way(40, 40, True, (26.0, 30.0), "40 + 79, 39 conflicts"),
)


SERVICES: Final = Way(100, 1, True, (39.5, 39.5), "100 + 100, no conflict")
"""What the program comes to with a hundred Services."""
USER: Final = f"system:serviceaccount:{NAMESPACE}:harvester-cloud-provider"
REQUESTS: Final = "2.00"
"""That it sends to Harvester for each."""


async def measure(stage: Stage, way: Way, number: int) -> tuple[float, Mapping[str, int]]:
    """Make load balancers this way; return how long it took in seconds, and what the controllers wrote."""
    gate = asyncio.Semaphore(way.in_flight)
    done = {f"c{number}-{one}": asyncio.Event() for one in range(way.count)}

    async def make(name: str) -> None:
        async with gate:
            await stage.host.create(LOAD_BALANCERS, _body(name, preset=way.preset), namespace=NAMESPACE)
            await done[name].wait()

    async def look() -> None:
        while not all(one.is_set() for one in done.values()):
            for one in (await stage.host.list(LOAD_BALANCERS, namespace=NAMESPACE)).items:
                if _is_done(one):
                    done[one["metadata"]["name"]].set()
            await asyncio.sleep(LOOK_SECONDS)

    async def make_all() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(look())
            for name in done:
                group.create_task(make(name))

    return await _watched(stage, make_all())


async def serve(stage: Stage) -> tuple[float, Mapping[str, int], str]:
    """Have the program serve Services; return what ``measure`` does, and its requests to Harvester for each."""
    run = stage.run()
    await stage.logged(run, "service controller started", within=PATIENCE)
    names, log = [f"web-{number}" for number in range(SERVICES.count)], stage.scene.harvester.audit_log
    before = log.stat().st_size

    async def serve_all() -> None:
        await asyncio.gather(*map(stage.create_service, names))
        await stage.served(*names, within=PATIENCE)

    seconds, written = await _watched(stage, serve_all())
    with log.open("rb") as lines:
        lines.seek(before)
        asked = [one for one in read_requests(lines, USER) if one.resource == "loadbalancers" and one.verb != "watch"]
    for name in names:
        await stage.delete_service(name)
    await stage.gone(*names, within=PATIENCE)
    return seconds, written, f"{len(asked) / SERVICES.count:.2f}"


async def _watched(stage: Stage, work: Awaitable[None]) -> tuple[float, Mapping[str, int]]:
    """Return how long work takes in seconds, and what the controllers write meanwhile."""
    records = stage.harvester.balancers, stage.harvester.pools
    before = sum((one.written for one in records), Counter[str]())
    loop = asyncio.get_running_loop()
    began = loop.time()
    await work
    seconds = loop.time() - began
    await asyncio.sleep(REST_SECONDS)
    return seconds, sum((one.written for one in records), Counter[str]()) - before


def _body(name: str, *, preset: bool) -> Document:
    metadata: Document = {"name": name, "namespace": NAMESPACE}
    if preset:
        metadata["finalizers"] = [FINALIZER]
    spec = {"ipam": "pool", "workloadType": "cluster"}
    return {"apiVersion": LOAD_BALANCERS.api_version, "kind": LOAD_BALANCERS.kind, "metadata": metadata, "spec": spec}


def _is_done(balancer: Document) -> bool:
    allocated = (balancer.get("status") or {}).get("allocatedAddress") or {}
    return bool(allocated.get("ip") and balancer["metadata"].get("finalizers"))


async def _clear(stage: Stage) -> None:
    for one in (await stage.host.list(LOAD_BALANCERS, namespace=NAMESPACE)).items:
        await stage.host.delete(LOAD_BALANCERS, one["metadata"]["name"], namespace=NAMESPACE)
    await stage.nothing_left(PATIENCE)
    await asyncio.sleep(REST_SECONDS)


async def run(scene: Scene, directory: Path) -> bool:
    """Measure and print every way; return whether all fit."""
    print(f"{'':38}{'emulated':>10}  {'real':>14}     writes: emulated | real")
    fits = True
    async with Stage(scene, directory) as stage:
        await stage.harvester.create_pool("lan", POOL)
        await asyncio.sleep(REST_SECONDS)
        for number, way in enumerate(WAYS):
            seconds, written = await measure(stage, way, number)
            fits = fits and way.fits(seconds)
            print(_line(way.title, way, seconds, written), flush=True)
            await _clear(stage)
        seconds, written, requests = await serve(stage)
        print(_line(f"{SERVICES.count} Services of the program", SERVICES, seconds, written))
        print(f"  {'its requests for each':36}{requests:>8}    {REQUESTS:>14}")
    return fits and SERVICES.fits(seconds)


def _line(title: str, way: Way, seconds: float, written: Mapping[str, int]) -> str:
    least, most = way.seconds
    real = f"{least:.1f} s" if least == most else f"{least:.1f} to {most:.1f} s"
    verdict = "OK" if way.fits(seconds) else "FAR"
    return f"  {title:36}{seconds:8.1f} s  {real:>14}  {verdict:3}  {_shown(written)} | {way.writes}"


def _shown(written: Mapping[str, int]) -> str:
    pools, balancers = written.get("ippools", 0), written.get("loadbalancers", 0)
    conflicts = written.get("ippools conflict", 0) + written.get("loadbalancers conflict", 0)
    return f"{pools} + {balancers}, {conflicts or 'no'} conflict{'' if conflicts in (0, 1) else 's'}"


def main() -> int:
    """Run it and return the exit code."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with run_directory("calibration") as directory:
        scene = Scene.start(directory, audit=True)
        try:
            print(describe_machine(scene.harvester.admin.request("GET", "/version")["gitVersion"]), end="\n\n")
            return 0 if asyncio.run(run(scene, directory)) else 1
        finally:
            scene.stop()


if __name__ == "__main__":
    sys.exit(main())
