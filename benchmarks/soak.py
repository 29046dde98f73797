"""``python -m benchmarks.soak``: ten minutes of faults, one after the other, and what they cost.

Real API servers, the emulated Harvester and kube-vip, and the program as a process of its own with everything that it
sends going through proxies. Watches are cut, API servers restarted, both servers answer 429, 500 and 503, etcd halts,
goes on, and is put back to a backup, credentials are exchanged, and strangers connect and say nothing. In between and
meanwhile Services are created; printed is the worst time until one was served, beside its target, and what the process
has of memory, descriptors and tasks at the begin and at the end.

``--quick`` does each once and shortly: whether everything works is seen in a minute, times are not measured then.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from benchmarks.asking import ask
from benchmarks.machine import describe_machine, resident_bytes
from benchmarks.result import Measurement, Section, missed
from benchmarks.strangers import slowest_probe
from devenv.apiserver import ControlPlane
from devenv.ccm import CcmProcess
from devenv.faults import Answer
from devenv.harvester import FAST
from devenv.kubevip import KubeVipOptions
from devenv.process import DevenvError, ReservedPort, run_directory
from devenv.stage import SERVICE_ACCOUNT, VM_NAMESPACE, Scene, Stage, until
from harvester_ccm.errors import AlreadyExists, CCMError
from harvester_ccm.names import LB_SERVICE_NAME
from harvester_ccm.plan.service.orphans import ORPHAN_GRACE

LEASE: Final = {
    "leader-elect-lease-duration": "120s",
    "leader-elect-renew-deadline": "100s",
    "leader-elect-retry-period": "25s",
}
"""The Lease is in the guest, whose servers are away on purpose; how leaders change is measured elsewhere. It is renewed
so rarely that connections which nobody uses are closed in between."""
WATCHES: Final = 6
"""So many connections are in use while nothing happens."""
ALIVE: Final = 5
"""So many Services are there at a time."""
PATIENCE: Final = 120.0
EVERY_SECONDS: Final = 0.5
"""Pause between two Services while watches are cut."""
CONNECTIONS: Final = 20
"""Six watches, and what was used together a moment ago."""
MIB: Final = 2**20
SERVED: Final = 1.5
REFUSALS: Final = (
    Answer(429, "too many requests", "TooManyRequests", retry_after=1),
    Answer(500, "etcdserver: request timed out", "InternalError"),
    Answer(503, "the server is currently unable to handle the request", "ServiceUnavailable"),
)


@dataclass(frozen=True)
class Pace:
    """How long each fault lasts, in seconds."""

    cut: float
    down: float
    refusing: float
    halted: float
    strangers: int
    """Connections that say nothing."""
    total: float
    """Rounds of all faults go on until so much time is over."""
    grace: float = ORPHAN_GRACE
    """For so long a load balancer must look left over before it is deleted."""
    still: float = 3.0
    """A process whose descriptors have been the same for so long is idle."""


FULL: Final = Pace(cut=20, down=4, refusing=25, halted=8, strangers=4000, total=600)
QUICK: Final = Pace(cut=2, down=0.5, refusing=2, halted=1, strangers=400, total=0, grace=3, still=1.5)


@dataclass(frozen=True)
class State:
    """What a process has."""

    memory: float
    """MiB."""
    connections: int
    """To the two API servers. Those that were used together are kept for a while, so how many there are depends on what
    was done last."""
    descriptors: int
    """All others."""
    tasks: int


class Soak:
    """A run of the program under faults."""

    def __init__(self, stage: Stage, pace: Pace) -> None:
        """``stage`` has a pool that serves every Service."""
        self._stage = stage
        self._pace = pace
        self._port = ReservedPort()
        self._sides = {
            "the guest": (stage.scene.guest, stage.guest_proxy),
            "Harvester": (stage.scene.harvester, stage.harvester_proxy),
        }
        self._names: deque[str] = deque()
        self._created = 0
        self._run: CcmProcess | None = None
        self._found: dict[str, tuple[float, float]] = {}
        """Worst time in seconds and the target, by what was done."""

    @property
    def run(self) -> CcmProcess:
        """The program. Raises RuntimeError when it has ended."""
        if self._run is None or self._run.exit_code is not None:
            raise RuntimeError("the program has ended" if self._run else "the program was not started")
        return self._run

    async def measure(self) -> Section:
        """Run all of it and return what was found; nothing is left in either cluster then."""
        loop = asyncio.get_running_loop()
        self._port.release()
        times = {} if self._pace.grace == ORPHAN_GRACE else {"plan.service.orphans.ORPHAN_GRACE": self._pace.grace}
        flags = {**LEASE, "v": "2", "bind-address": "127.0.0.1", "secure-port": str(self._port.number)}
        self._run = self._stage.run(flags=flags, proxied=True, module="benchmarks.observed", times=times)
        await self._stage.logged(self.run, "service controller started", within=PATIENCE)
        for _ in range(ALIVE):
            await self._serve("at peace", SERVED)
        begin, began, rounds = await self._state(), loop.time(), 0
        after_first = begin
        while not rounds or loop.time() - began < self._pace.total:
            for fault in self._faults():
                await fault()
            rounds += 1
            if rounds == 1:
                after_first = await self._state()
        seconds = loop.time() - began
        requests = sum(len(proxy.requests) for _, proxy in self._sides.values())
        await self._all_right()
        await self._remove_all()
        end = await self._state(at_most=begin.descriptors)
        numbers = [Measurement(f"served: {what}", *self._in_seconds(what)) for what in self._found]
        return Section(
            f"{seconds / 60:.1f} minutes of faults, rounds: {rounds}, Services: {self._created}",
            [
                *numbers,
                Measurement("requests per second, all of them", requests / seconds, target=10.0),
                Measurement("memory at the begin", begin.memory, "MiB"),
                Measurement("memory after the first round", after_first.memory, "MiB"),
                Measurement("memory at the end", end.memory, "MiB"),
                Measurement("growth of memory", max(0.0, end.memory - begin.memory), "MiB", target=5.0),
                Measurement("descriptors at the begin", begin.connections + begin.descriptors),
                *self._growth_of_descriptors(begin, end),
                Measurement("tasks at the begin", begin.tasks),
                Measurement("growth of tasks", max(0, end.tasks - begin.tasks), target=0),
            ],
        )

    def _growth_of_descriptors(self, begin: State, end: State) -> list[Measurement]:
        """Return how many more there are; connections in a pool count only where they had the time to be closed."""
        others = Measurement("growth of other descriptors", max(0, end.descriptors - begin.descriptors), target=0)
        if not self._pace.total:
            return [Measurement("connections to API servers at the end", end.connections, target=CONNECTIONS), others]
        grown = end.connections + end.descriptors - begin.connections - begin.descriptors
        return [
            Measurement("connections to API servers at the begin", begin.connections),
            Measurement("connections to API servers at the end", end.connections),
            Measurement("growth of descriptors", max(0, grown), target=0),
        ]

    def _in_seconds(self, what: str) -> tuple[float, str, float]:
        worst, target = self._found[what]
        return worst, "s", target

    def _faults(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return all faults, in order."""
        both = self._sides
        return [
            partial(self._serve, "at peace", SERVED),
            *(partial(self._cut, every) for every in (1.0, 10.0)),
            *(partial(self._restart, side) for side in both),
            *(partial(self._refuse, answer) for answer in REFUSALS),
            *(partial(self._halt, side) for side in both),
            self._restore,
            *(partial(self._exchange, side) for side in both),
            self._strangers,
        ]

    def _note(self, what: str, seconds: float, target: float) -> None:
        worst, _ = self._found.get(what, (0.0, target))
        self._found[what] = max(worst, seconds), target

    async def _create(self) -> str:
        """Create a Service, whatever its API server says at first, and let an old one go."""
        name = f"soak-{self._created:05}"
        self._created += 1

        async def created() -> bool:
            with suppress(AlreadyExists):
                await self._stage.create_service(name)
            return True

        await self._insist(created, f"creation of {name}")
        self._names.append(name)
        if len(self._names) > ALIVE:
            oldest = self._names.popleft()

            async def deleted() -> bool:
                await self._stage.delete_service(oldest)
                return True

            await self._insist(deleted, f"deletion of {oldest}")
        return name

    async def _insist(self, attempt: Callable[[], Awaitable[bool]], what: str) -> None:
        """Return when the attempt says yes; servers that do not answer say no."""

        async def tolerant() -> bool:
            # Says so when the program has ended.
            _ = self.run
            try:
                return await attempt()
            except CCMError:
                return False

        await until(tolerant, within=PATIENCE, what=what)

    async def _shown(self, *names: str) -> None:
        """Return when the Services have addresses."""

        async def shown() -> bool:
            found = [await self._stage.service(name) for name in names]
            return all(one is not None and one.addresses for one in found)

        await self._insist(shown, f"addresses of {', '.join(names)}")

    async def _serve(self, what: str, target: float, *waiting: str) -> None:
        """Create a Service and note how long it takes until it, and those that wait already, are served."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._shown(await self._create(), *waiting)
        self._note(what, loop.time() - began, target)

    async def _cut(self, every: float) -> None:
        loop = asyncio.get_running_loop()
        over, due = loop.time() + max(self._pace.cut, every * (self._pace.total > 0)), loop.time()
        while loop.time() < over:
            if loop.time() >= due:
                for _, proxy in self._sides.values():
                    proxy.cut_watches()
                due = loop.time() + every
            await self._serve(f"watches cut each {every:g} s", SERVED)
            await asyncio.sleep(EVERY_SECONDS)

    async def _restart(self, side: str) -> None:
        plane, _ = self._sides[side]
        await asyncio.to_thread(plane.stop_apiserver)
        await asyncio.sleep(self._pace.down)
        await asyncio.to_thread(plane.start_apiserver)
        await self._serve(f"API server of {side} was away for {self._pace.down:g} s and its start", 3.0)

    async def _refuse(self, answer: Answer) -> None:
        waiting = await self._create()
        rules = [(proxy, proxy.inject(answer)) for _, proxy in self._sides.values()]
        for proxy, _ in rules:
            # No watch gets around it.
            proxy.cut_watches()
        await asyncio.sleep(self._pace.refusing)
        for proxy, rule in rules:
            proxy.heal(rule)
        await self._serve(f"both servers said {answer.status} for {self._pace.refusing:g} s", 5.0, waiting)

    async def _halt(self, side: str) -> None:
        plane, _ = self._sides[side]
        etcd = plane.processes["etcd"]
        os.kill(etcd, signal.SIGSTOP)
        try:
            await asyncio.sleep(self._pace.halted)
        finally:
            os.kill(etcd, signal.SIGCONT)
        await self._serve(f"etcd of {side} was halted for {self._pace.halted:g} s", 5.0)

    async def _restore(self) -> None:
        """Put Harvester back to before a Service was made and another one deleted."""
        plane, proxy = self._sides["Harvester"]
        backup = self._stage.directory / "backup"
        await asyncio.to_thread(plane.back_up, backup)
        try:
            await self._serve("after a backup of Harvester", SERVED)
            await proxy.down()
            async with self._stage.harvester.stopped():
                await asyncio.to_thread(plane.restore, backup)
            await proxy.up()
        finally:
            await asyncio.to_thread(shutil.rmtree, backup)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._insist(self._all_have_balancers, "a load balancer for each Service")
        self._note("what Harvester's restored backup does not know", loop.time() - began, 5.0)
        await self._all_right()
        self._note("what it still knows is deleted", loop.time() - began, self._pace.grace + 15.0)

    async def _exchange(self, side: str) -> None:
        plane, proxy = self._sides[side]
        before = self.run.log.count("credentials reloaded")
        # Written in place, as Rancher's agent does.
        proxy.kubeconfig(self._new_credential(side, plane), self._file_of(side))

        async def reloaded() -> bool:
            return self.run.log.count("credentials reloaded") > before

        await self._insist(reloaded, f"new credential for {side}")
        await self._serve(f"new credential for {side}", SERVED)

    def _new_credential(self, side: str, plane: ControlPlane) -> Path:
        namespace, home = ("kube-system", "kube-system") if side == "the guest" else (VM_NAMESPACE, VM_NAMESPACE)
        path = self._stage.directory / f"new-{self._created}.kubeconfig"
        return plane.kubeconfig_for_service_account(namespace, SERVICE_ACCOUNT, context_namespace=home, path=path)

    def _file_of(self, side: str) -> Path:
        return self._stage.directory / ("kubeconfig" if side == "the guest" else "cloud-config")

    async def _strangers(self) -> None:
        slowest = await slowest_probe(self._port.number, strangers=self._pace.strangers)
        self._note(f"/livez beside {self._pace.strangers} connections that say nothing", slowest, 0.1)
        await self._serve("after the silent connections", SERVED)

    async def _all_right(self) -> None:
        """Return when Harvester has a load balancer for every Service that there is, and for no other."""

        async def right() -> bool:
            return await self._held() == set(self._names)

        await self._insist(right, "a load balancer for each Service and no other")
        await self._shown(*self._names)

    async def _all_have_balancers(self) -> bool:
        return await self._held() >= set(self._names)

    async def _held(self) -> set[str]:
        """Return the names of the Services that Harvester has an address for."""
        return {one.metadata.label(LB_SERVICE_NAME) or "" for one in await self._stage.load_balancers() if one.address}

    async def _remove_all(self) -> None:
        while self._names:
            await self._stage.delete_service(self._names.popleft())
        await self._stage.nothing_left(within=PATIENCE)

    async def _state(self, *, at_most: int | None = None) -> State:
        """Return what the process has once it is idle; connections that are kept open a while may end before.

        In a run that takes its time anyway those are waited for that a pool keeps for the next request.
        """
        loop = asyncio.get_running_loop()
        pid, since, over = self.run.pid, loop.time(), loop.time() + PATIENCE / 2
        pooled = WATCHES if self._pace.total else CONNECTIONS
        others = connections = -1

        def is_idle() -> bool:
            few = (at_most is None or others <= at_most) and connections <= pooled
            return loop.time() - since >= self._pace.still and (few or loop.time() >= over)

        while not is_idle():
            found = sum(proxy.connections for _, proxy in self._sides.values())
            descriptors = len(os.listdir(f"/proc/{pid}/fd")) - found
            if (descriptors, found) != (others, connections):
                others, connections, since = descriptors, found, loop.time()
            await asyncio.sleep(EVERY_SECONDS)
        tasks = (await ask(pid, lambda: self.run.log, within=PATIENCE)).tasks
        return State(resident_bytes(pid) / MIB, connections, others, tasks)


@asynccontextmanager
async def opened(scene: Scene, directory: Path) -> AsyncIterator[Stage]:
    """Yield a stage with a pool for every Service, whose Harvester is no part of what is measured."""
    async with Stage(scene, directory, pace=FAST, kube_vip=KubeVipOptions()) as stage:
        await stage.harvester.create_pool("lan", "127.77.0.0/24")
        yield stage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak and return the exit code: 0 when it ran, whatever the numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="Faults for ten minutes.")
    parser.add_argument("--quick", action="store_true", help="each fault once, shortly: does everything work")
    parser.add_argument("--minutes", type=float, help=f"so long instead of {FULL.total / 60:g}")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    pace = QUICK if options.quick else FULL
    if options.minutes is not None:
        pace = replace(pace, total=options.minutes * 60)
    try:
        with run_directory("soak", keep=options.keep) as directory:
            asyncio.run(_measure(directory, pace))
    except (CCMError, DevenvError, TimeoutError, RuntimeError) as error:
        sys.stderr.write(f"the soak could not run: {error}\n")
        return 1
    return 0


async def _measure(directory: Path, pace: Pace) -> None:
    scene = Scene.start(directory)
    try:
        version = scene.guest.admin.request("GET", "/version")["gitVersion"]
        print(describe_machine(version), end="\n\n", flush=True)
        async with opened(scene, directory) as stage:
            section = await Soak(stage, pace).measure()
        print(section.text(), end="\n\n")
        for line in missed([section]) or ["all targets met"]:
            print(line)
    finally:
        scene.stop()


if __name__ == "__main__":
    sys.exit(main())
