"""The emulated Harvester beside the real one: the seconds that each takes for the same load balancers.

``python -m benchmarks.calibration`` creates load balancers directly, without the program: all at once or a number in
flight, with and without the finalizer of Harvester's controller from the start. One is in flight until it has its
address and the finalizer. Finally the program serves a hundred Services. The numbers of the real controller and webhook
were measured between the same API servers, on a machine at rest and at a load of 20. Exits with 1 if a time of the
emulated one is not within ``TOLERANCE`` of the real one's.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from devenv.harvester.loadbalancers import FINALIZER
from devenv.harvester.records import LOAD_BALANCERS, is_ready
from devenv.process import run_directory
from devenv.stage import VM_NAMESPACE, Scene, Stage
from devenv.watch import Document

TOLERANCE: Final = 0.25
PATIENCE: Final = 300.0
POLL_SECONDS: Final = 0.03
REST_SECONDS: Final = 4.0
"""After this time the controller may write as much at once as after any pause."""
SERVICES: Final = 100


@dataclass(frozen=True)
class Way:
    """A way to create load balancers, and what the real controller needed for it."""

    count: int
    in_flight: int
    preset: bool
    """Whether the controller's finalizer is there from the start."""
    seconds: tuple[float, float]
    """Least and most."""
    writes: str
    """To pools and load balancers."""


WAYS: Final = (
    Way(40, 40, preset=False, seconds=(22.4, 37.0), writes="40 + 81 to 104, 1 to 24 conflicts"),
    Way(40, 1, preset=False, seconds=(23.8, 25.8), writes="40 + 80, 9 to 19 conflicts"),
    Way(40, 1, preset=True, seconds=(14.0, 14.0), writes="40 + 40, 0 conflicts"),
    Way(40, 2, preset=True, seconds=(29.6, 29.6), writes="40 + 79, 39 conflicts"),
    Way(40, 40, preset=True, seconds=(26.0, 30.0), writes="40 + 79, 39 conflicts"),
)
PROGRAM: Final = Way(SERVICES, 1, preset=True, seconds=(39.5, 39.5), writes="100 + 100, 0 conflicts")


async def create(stage: Stage, way: Way) -> None:
    """Create load balancers this way; return when all are done."""
    in_flight = asyncio.Semaphore(way.in_flight)

    async def create_one(name: str) -> None:
        async with in_flight:
            await stage.host.create(LOAD_BALANCERS, _body(name, preset=way.preset), namespace=VM_NAMESPACE)
            while not _is_done(stage.harvester.balancers.get(f"{VM_NAMESPACE}/{name}")):  # noqa: ASYNC110 - a mirror
                await asyncio.sleep(POLL_SECONDS)

    await asyncio.gather(*(create_one(f"c-{number}") for number in range(way.count)))


async def serve(stage: Stage) -> None:
    """Have the program serve Services."""
    names = [f"web-{number}" for number in range(SERVICES)]
    await asyncio.gather(*map(stage.create_service, names))
    await stage.served(*names, within=PATIENCE)


async def compare(stage: Stage, title: str, work: Awaitable[None], way: Way) -> bool:
    """Do the work and print how long it took; return whether that is what the real controller takes."""
    records, loop = (stage.harvester.balancers, stage.harvester.pools), asyncio.get_running_loop()
    before, began = sum((one.written for one in records), Counter[str]()), loop.time()
    await work
    seconds = loop.time() - began
    await asyncio.sleep(REST_SECONDS)
    written = sum((one.written for one in records), Counter[str]()) - before
    conflicts = written["ippools conflict"] + written["loadbalancers conflict"]
    least, most = way.seconds
    fits = least * (1 - TOLERANCE) <= seconds <= most * (1 + TOLERANCE)
    shown = f"{written['ippools']} + {written['loadbalancers']}, {conflicts} conflicts"
    print(
        f"{title:36}{seconds:8.1f} s {least:8.1f} to {most:.1f} s  {'OK' if fits else 'FAR'}  {shown} | {way.writes}",
        flush=True,
    )
    return fits


def _body(name: str, *, preset: bool) -> Document:
    metadata = {"name": name, "namespace": VM_NAMESPACE, "finalizers": [FINALIZER] if preset else []}
    spec = {"ipam": "pool", "workloadType": "cluster"}
    return {"apiVersion": LOAD_BALANCERS.api_version, "kind": LOAD_BALANCERS.kind, "metadata": metadata, "spec": spec}


def _is_done(balancer: Document | None) -> bool:
    return balancer is not None and is_ready(balancer) and bool(balancer["metadata"].get("finalizers"))


async def run(scene: Scene, directory: Path) -> bool:
    """Measure and print every way; return whether all fit."""
    print(f"{'':36}{'emulated':>10}{'real':>18}       writes: emulated | real")
    fits = []
    async with Stage(scene, directory) as stage:
        await stage.harvester.create_pool("lan", "127.77.0.0/16")
        await asyncio.sleep(REST_SECONDS)
        for way in WAYS:
            flight = "all at once" if way.in_flight == way.count else f"{way.in_flight} in flight"
            title = f"{way.count} {flight}{', finalizer preset' * way.preset}"
            fits.append(await compare(stage, title, create(stage, way), way))
            for one in stage.harvester.balancers.all():
                await stage.host.delete(LOAD_BALANCERS, one["metadata"]["name"], namespace=VM_NAMESPACE)
            await stage.nothing_left(PATIENCE)
            await asyncio.sleep(REST_SECONDS)
        await stage.logged(stage.run(), "service controller started")
        fits.append(await compare(stage, f"{SERVICES} Services of the program", serve(stage), PROGRAM))
    return all(fits)


def main() -> int:
    """Run it and return the exit code."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with run_directory("calibration") as directory:
        scene = Scene.start(directory)
        try:
            return 0 if asyncio.run(run(scene, directory)) else 1
        finally:
            scene.stop()


if __name__ == "__main__":
    sys.exit(main())
