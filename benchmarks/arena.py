"""Where the benchmarks run: two API servers, the allocator, followers of what changes, and runs of the program.

The audit logs of both servers tell what the program asked for. No proxy stands between it and them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.asking import ask
from benchmarks.audit import AuditLog, Request, is_work
from benchmarks.follower import Follower, ServiceFollower
from benchmarks.load import NAMESPACE, Load
from benchmarks.machine import busy_seconds, cpu_seconds
from benchmarks.observed import Step
from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.process import ChildProcess, ReservedPort, log_tail
from devenv.stage import SERVICE_ACCOUNT, VM_NAMESPACE, Scene
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.model.core import LEASES
from harvester_ccm.model.harvester import LOAD_BALANCERS

CLUSTER: Final = "bench"
LEASE: Final = "kube-system/cloud-controller-manager"
GUEST_USER: Final = f"system:serviceaccount:kube-system:{SERVICE_ACCOUNT}"
HARVESTER_USER: Final = f"system:serviceaccount:{VM_NAMESPACE}:{SERVICE_ACCOUNT}"
QUIET_SECONDS: Final = 1.0
"""After so long without a request the program counts as idle."""
LOOK_SECONDS: Final = 0.1
PATIENCE: Final = 120.0
STOP_SECONDS: Final = 30.0
"""Time limit for a stop; the program itself needs less than two seconds, a loaded machine more."""


@dataclass(frozen=True)
class Usage:
    """Processor seconds so far."""

    program: float
    servers: float
    """Both API servers and both etcds."""
    others: float
    """Whatever else runs on the machine; the load and the allocator of the benchmark are not in it."""

    def since(self, earlier: Usage) -> Usage:
        """Return what was used after ``earlier``."""
        return Usage(
            self.program - earlier.program, self.servers - earlier.servers, max(0.0, self.others - earlier.others)
        )


@dataclass(frozen=True)
class Traffic:
    """The program's requests that count: without watches and the Lease."""

    guest: list[Request]
    harvester: list[Request]

    @property
    def total(self) -> int:
        """Requests to both servers."""
        return len(self.guest) + len(self.harvester)


@dataclass(frozen=True)
class Mark:
    """A moment from which requests are counted."""

    guest: int
    harvester: int


class Arena:
    """Everything a benchmark needs. Made by ``open_arena``."""

    def __init__(
        self, scene: Scene, directory: Path, *, guest: ApiClient, harvester: ApiClient, allocator: ChildProcess
    ) -> None:
        self.guest = guest
        self.harvester = harvester
        self.load = Load(guest)
        self.services = ServiceFollower(guest, NAMESPACE, check=self._check)
        self.balancers = Follower(harvester, LOAD_BALANCERS, VM_NAMESPACE, check=self._check)
        self.leases = Follower(guest, LEASES, "kube-system", check=self._check)
        self._scene = scene
        self._directory = directory
        self._allocator = allocator
        self._guest_log = AuditLog(scene.guest.audit_log, GUEST_USER)
        self._harvester_log = AuditLog(scene.harvester.audit_log, HARVESTER_USER)
        self._program: CcmProcess | None = None

    @property
    def program(self) -> CcmProcess:
        """The run of the program. Raises RuntimeError when there is none, or it has ended by itself."""
        self._check()
        if self._program is None:
            raise RuntimeError("the program was not started")
        return self._program

    async def start_program(self, *, renamed: str = "", observed: bool = False) -> float:
        """Start the program as it is installed; return the seconds from there until it leads.

        ``renamed``: under this name, with the usual one as the former. ``observed``: so that it can be asked what its
        event loop does, which costs it a little.
        """
        loop = asyncio.get_running_loop()
        await self.lease_free()
        port = ReservedPort()
        port.release()
        names = {"cluster-name": renamed, "former-cluster-name": CLUSTER} if renamed else {"cluster-name": CLUSTER}
        flags = {**names, "v": "2", "bind-address": "127.0.0.1", "secure-port": str(port.number)}
        began = loop.time()
        self._program = CcmProcess.start(
            self._directory,
            cloud_config=self._scene.cloud_config,
            kubeconfig=self._scene.kubeconfig,
            flags=flags,
            module="benchmarks.observed" if observed else "harvester_ccm",
        )
        await self.leases.until(self._is_led, within=PATIENCE, what="the program to lead")
        return loop.time() - began

    async def lease_free(self) -> None:
        """Return when nobody holds the Lease."""
        await self.leases.until(lambda: not self._is_led(), within=PATIENCE, what="the Lease to be free")

    async def stop_program(self) -> None:
        """End the program as the kubelet does."""
        code = await asyncio.to_thread(self.program.terminate, STOP_SECONDS)
        if code is None:
            raise RuntimeError(f"the program still runs {STOP_SECONDS:g} s after it was asked to stop")
        self._program = None
        if code != 0:
            raise RuntimeError(f"the program ended with code {code} when it was asked to stop; expected 0")

    async def longest_step(self) -> Step:
        """Return the longest step of the program's event loop since this was asked before; it is an observed one."""
        program = self.program
        return (await ask(program.pid, lambda: program.log, within=PATIENCE)).step

    def end(self) -> None:
        """End the program in whatever way."""
        if self._program is not None:
            self._program.stop()

    def usage(self) -> Usage:
        """Return the processor time used so far."""
        program = cpu_seconds(self.program.pid)
        servers = sum(
            cpu_seconds(pid) for one in (self._scene.guest, self._scene.harvester) for pid in one.processes.values()
        )
        ours = cpu_seconds(os.getpid()) + cpu_seconds(self._allocator.pid)
        return Usage(program, servers, busy_seconds() - program - servers - ours)

    def mark(self) -> Mark:
        """Return this moment."""
        return Mark(self._guest_log.position(), self._harvester_log.position())

    async def idle_mark(self) -> Mark:
        """Return a moment at which nothing of what went before is still being asked for."""
        await self.settled(self.mark())
        return self.mark()

    def traffic(self, since: Mark) -> Traffic:
        """Return what the program has asked for after a moment."""
        return Traffic(
            [one for one in self._guest_log.since(since.guest) if is_work(one)],
            [one for one in self._harvester_log.since(since.harvester) if is_work(one)],
        )

    async def settled(self, since: Mark, *, within: float = PATIENCE) -> Traffic:
        """Return what the program has asked for after a moment, once it has been idle for QUIET_SECONDS."""
        loop = asyncio.get_running_loop()
        seen, idle_since = since, loop.time()
        async with asyncio.timeout(within):
            while loop.time() - idle_since < QUIET_SECONDS:
                await asyncio.sleep(LOOK_SECONDS)
                guest, at_guest = self._guest_log.read(seen.guest)
                harvester, at_harvester = self._harvester_log.read(seen.harvester)
                seen = Mark(at_guest, at_harvester)
                if any(map(is_work, (*guest, *harvester))):
                    idle_since = loop.time()
        return self.traffic(since)

    async def events(self) -> dict[str, int]:
        """Return how often each Event on a Service was told, by the Event's name."""
        body = await self.guest.request("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
        items = msgspec.json.decode(body, type=_Events).items
        return {item.metadata.name: item.count for item in items if item.involved_object.kind == "Service"}

    def _check(self) -> None:
        """Raise RuntimeError when something that nobody ended has ended."""
        code = self._program.exit_code if self._program is not None else None
        if self._program is not None and code is not None:
            raise RuntimeError(f"the program ended with code {code}: {log_tail(self._program.log_file, 3)}")
        if self._allocator.exit_code() is not None:
            raise RuntimeError(f"the allocator ended: {self._allocator.log_tail(3)}")

    def _is_led(self) -> bool:
        lease = self.leases.informer.get(LEASE)
        return lease is not None and bool(lease.spec.holder_identity)


class _Named(msgspec.Struct):
    name: str = ""
    kind: str = ""


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Named
    involved_object: _Named
    count: int = 1


class _Events(msgspec.Struct):
    items: list[_Event]


@asynccontextmanager
async def open_arena(scene: Scene, directory: Path) -> AsyncIterator[Arena]:
    """Yield an arena on a running scene that has audit logs; end all that was started in it."""
    kubeconfig = scene.harvester.admin_kubeconfig
    allocator = ChildProcess.start(
        "allocator",
        [sys.executable, "-m", "benchmarks.allocator", kubeconfig, VM_NAMESPACE],
        log_file=directory / "allocator.log",
    )
    try:
        async with (
            # Who loads the servers does not give up where others have the machine.
            ApiClient(load_kubeconfig(scene.guest.admin_kubeconfig), cluster="guest-admin", patience=PATIENCE) as guest,
            ApiClient(load_kubeconfig(kubeconfig), cluster="harvester-admin", patience=PATIENCE) as harvester,
        ):
            arena = Arena(scene, directory, guest=guest, harvester=harvester, allocator=allocator)
            followers = (arena.services, arena.balancers, arena.leases)
            following = Background("followers", [one.run for one in followers])
            await following.start([one.informer.wait_synced for one in followers], within=PATIENCE)
            try:
                yield arena
            finally:
                arena.end()
                await following.stop()
    finally:
        allocator.stop()
