"""The emulated Harvester next to the real one: the seconds of each for the same load balancers.

``python -m benchmarks.calibration`` creates load balancers without the controller: all at once or a number in flight,
with and without the finalizer of Harvester's controller. One is in flight until it has its address and the finalizer.
Finally, the controller handles a hundred Services. The real controller and webhook were measured between the same API
servers, on an idle machine and at a load of 20. Exits with 1 if an emulated time is not within ``TOLERANCE`` of the
real one.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from devenv.harvester.loadbalancers import FINALIZER
from devenv.harvester.records import LOAD_BALANCERS, is_ready
from devenv.process import run_directory
from devenv.stage import VM_NAMESPACE, Scene, Stage
from devenv.watch import Document

TOLERANCE: Final = 0.25
MAX_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.03
REST_SECONDS: Final = 4.0
"""Time until the controller's burst is available again."""


class Case(NamedTuple):
    """Load balancers, how they are created, and the least and most seconds of the real controller."""

    balancers: int
    in_flight: int
    has_finalizer: bool
    real: tuple[float, float]


CASES: Final = (
    Case(40, 40, has_finalizer=False, real=(22.4, 37.0)),
    Case(40, 1, has_finalizer=False, real=(23.8, 25.8)),
    Case(40, 1, has_finalizer=True, real=(14.0, 14.0)),
    Case(40, 2, has_finalizer=True, real=(29.6, 29.6)),
    Case(40, 40, has_finalizer=True, real=(26.0, 30.0)),
)
SERVICES: Final = 100
REAL_SERVICES: Final = (39.5, 39.5)


async def create(stage: Stage, case: Case) -> None:
    """Create the load balancers of a case; return when all are done."""
    in_flight = asyncio.Semaphore(case.in_flight)
    spec, finalizers = {"ipam": "pool", "workloadType": "cluster"}, [FINALIZER] if case.has_finalizer else []

    async def create_one(name: str) -> None:
        metadata = {"name": name, "namespace": VM_NAMESPACE, "finalizers": finalizers}
        body = {"apiVersion": LOAD_BALANCERS.api_version, "kind": LOAD_BALANCERS.kind}
        async with in_flight:
            await stage.host.create(
                LOAD_BALANCERS, {**body, "metadata": metadata, "spec": spec}, namespace=VM_NAMESPACE
            )
            while not _is_done(stage.harvester.balancers.get(f"{VM_NAMESPACE}/{name}")):  # noqa: ASYNC110 - a mirror
                await asyncio.sleep(POLL_SECONDS)

    await asyncio.gather(*(create_one(f"c-{number}") for number in range(case.balancers)))


async def create_services(stage: Stage) -> None:
    """Create Services; return when the controller has assigned all addresses."""
    names = [f"web-{number}" for number in range(SERVICES)]
    await asyncio.gather(*map(stage.create_service, names))
    await stage.served(*names, within=MAX_SECONDS)


async def compare(title: str, work: Awaitable[None], real: tuple[float, float]) -> bool:
    """Do the work and print its time; return whether the real controller takes as long."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await work
    seconds = loop.time() - began
    least, most = real
    fits = least * (1 - TOLERANCE) <= seconds <= most * (1 + TOLERANCE)
    print(f"{title:36}{seconds:8.1f} s {least:8.1f} to {most:.1f} s  {'OK' if fits else 'FAR'}", flush=True)
    await asyncio.sleep(REST_SECONDS)
    return fits


def _is_done(balancer: Document | None) -> bool:
    return balancer is not None and is_ready(balancer) and bool(balancer["metadata"].get("finalizers"))


async def run(scene: Scene, directory: Path) -> bool:
    """Measure and print all cases; return whether all fit."""
    print(f"{'':36}{'emulated':>10}{'real':>18}")
    fits = []
    async with Stage(scene, directory) as stage:
        await stage.harvester.create_pool("lan", "10.77.0.0/16")
        await asyncio.sleep(REST_SECONDS)
        for case in CASES:
            flight = "all at once" if case.in_flight == case.balancers else f"{case.in_flight} in flight"
            title = f"{case.balancers} {flight}{', with finalizer' * case.has_finalizer}"
            fits.append(await compare(title, create(stage, case), case.real))
            for one in stage.harvester.balancers.all():
                await stage.host.delete(LOAD_BALANCERS, one["metadata"]["name"], namespace=VM_NAMESPACE)
            await stage.nothing_left(MAX_SECONDS)
            await asyncio.sleep(REST_SECONDS)
        await stage.logged(stage.run(), "service controller started")
        fits.append(await compare(f"{SERVICES} Services of the controller", create_services(stage), REAL_SERVICES))
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
