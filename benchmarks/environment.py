"""The environment of all measurements: two API servers with audit logs, the instant allocator, and the controller.

The controller connects to the servers directly; requests are counted in the audit logs. A Service is ready when a watch
of another client delivers its address.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from devenv.announcement import SERVICE_NAME_LABEL
from devenv.apiserver import SERVICE_ACCOUNT
from devenv.audit import AuditLog
from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.guestnodes import GuestNodes
from devenv.harvester.records import LOAD_BALANCERS, SERVICES, SLICES
from devenv.process import ChildProcess
from devenv.stage import VM_NAMESPACE, Scene, until
from devenv.watch import Document, Mirror, addresses_in, labels_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.names import LB_SERVICE_NAME

CLUSTER: Final = "bench"
NAMESPACE: Final = "default"
MIB: Final = 2**20
CONNECTIONS: Final = 10
"""Concurrent requests of the load."""
IDLE_SECONDS: Final = 1.0
"""After this time without a request, the controller is idle."""
MAX_SECONDS: Final = 300.0


class Environment:
    """Created by ``open_environment``."""

    def __init__(self, scene: Scene, directory: Path, guest: ApiClient, harvester: ApiClient) -> None:
        self.scene = scene
        self.directory = directory
        self.guest = guest
        self.harvester = harvester
        self.services = Mirror(guest, SERVICES, namespace=NAMESPACE)
        self.balancers = Mirror(harvester, LOAD_BALANCERS, namespace=VM_NAMESPACE)
        self.ready_at: dict[str, float] = {}
        """Loop time of the first address of each Service, by name."""
        self.services.subscribe(self._record_time)
        self._logs = [
            AuditLog(plane.audit_log, f"system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}")
            for plane, namespace in ((scene.guest, "kube-system"), (scene.harvester, VM_NAMESPACE))
        ]
        self._runs: list[CcmProcess] = []

    @property
    def controller(self) -> CcmProcess:
        """The process that was started last."""
        return self._runs[-1]

    async def start(self) -> float:
        """Start a controller as it is installed; return the seconds until it is the leader."""
        began = now()
        run = CcmProcess.start(
            self.directory,
            cloud_config=self.scene.cloud_config,
            kubeconfig=self.scene.kubeconfig,
            flags={"cluster-name": CLUSTER, "v": "2"},
        )
        self._runs.append(run)
        await self.until(lambda: "became leader" in run.log, "leadership")
        return now() - began

    async def hand_over(self) -> float:
        """Start a standby and send SIGTERM to the leader; return the seconds until the standby leads."""
        leader = self.controller
        takeover = asyncio.create_task(self.start())
        await self.until(lambda: self.controller is not leader and "waiting for leadership" in self.controller.log, "")
        began = now()
        leader.terminate(0)
        await takeover
        return now() - began

    async def stop(self) -> None:
        """Stop the controller with SIGTERM. Raises RuntimeError unless it exits with 0."""
        code = await asyncio.to_thread(self.controller.terminate, 30.0)
        if code != 0:
            raise RuntimeError(f"the controller exited with code {code} after SIGTERM, expected 0")

    def kill(self) -> None:
        """Kill all controllers that run."""
        for run in self._runs:
            run.stop()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once the condition holds. Raises TimeoutError that names ``what``."""

        async def holds() -> bool:
            return condition()

        await until(holds, within=MAX_SECONDS, what=what)

    async def mark(self) -> list[int]:
        """Return the positions of the audit logs, for ``requests``, once the controller is idle."""
        while True:
            before = [log.position() for log in self._logs]
            await asyncio.sleep(IDLE_SECONDS)
            if not self._count(before):
                return [log.position() for log in self._logs]

    async def requests(self, since: list[int]) -> int:
        """Return the number of requests after ``mark``, once the controller is idle again."""
        await self.mark()
        return self._count(since)

    def _count(self, positions: list[int]) -> int:
        return sum(log.count(position) for log, position in zip(self._logs, positions, strict=True))

    async def create(self, names: Iterable[str]) -> None:
        """Create Services of type LoadBalancer."""
        await self.each(lambda name: self.guest.create(SERVICES, service(name), namespace=NAMESPACE), names)

    async def give_endpoints(self, names: Iterable[str]) -> None:
        """Give Services a ready endpoint, as those of users have one."""
        await self.each(lambda name: self.guest.create(SLICES, _slice(name), namespace=NAMESPACE), names)

    async def ready(self, names: Iterable[str]) -> float:
        """Return the loop time at which the last of the Services got its address. Raises TimeoutError."""
        chosen = set(names)
        await self.until(lambda: chosen <= self.ready_at.keys(), f"addresses of {len(chosen)} Services")
        return max(self.ready_at[name] for name in chosen)

    async def delete(self, names: Iterable[str]) -> None:
        """Delete Services; return once they and their load balancers are deleted. Raises TimeoutError."""
        chosen = set(names)
        await self.each(lambda name: self.guest.delete(SERVICES, name, namespace=NAMESPACE), chosen)
        await self.until(
            lambda: chosen.isdisjoint(one["metadata"]["name"] for one in self.services.all()), "deletion of Services"
        )
        await self.until(
            lambda: chosen.isdisjoint(labels_of(one).get(LB_SERVICE_NAME, "") for one in self.balancers.all()),
            "deletion of load balancers",
        )
        for name in chosen:
            self.ready_at.pop(name, None)

    async def each(
        self, action: Callable[[str], Awaitable[object]], names: Iterable[str], *, at_once: int = CONNECTIONS
    ) -> None:
        """Call ``action`` for each name, at most ``at_once`` concurrently."""
        remaining = iter(list(names))

        async def work() -> None:
            for name in remaining:
                await action(name)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())

    def _record_time(self, _before: Document | None, after: Document | None) -> None:
        if after is not None and addresses_in(after):
            self.ready_at.setdefault(after["metadata"]["name"], now())


def now() -> float:
    """Return the loop time in seconds."""
    return asyncio.get_running_loop().time()


def service(name: str) -> Document:
    """Return a Service of type LoadBalancer with one port, without a node port, of which a cluster has about 2,700."""
    ports = [{"name": "http", "port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False},
    }


def _slice(name: str) -> Document:
    """Return an EndpointSlice of a Service, with one Pod. It stays after the Service: nothing here collects garbage."""
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {SERVICE_NAME_LABEL: name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.42.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": 80}],
    }


@asynccontextmanager
async def open_environment(scene: Scene, directory: Path) -> AsyncIterator[Environment]:
    """Yield the environment on API servers that have audit logs; stop everything that was started in it."""
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.allocator", scene.harvester.admin_kubeconfig]
    allocator = ChildProcess.start("allocator", [*command, VM_NAMESPACE], log_file=directory / "allocator.log")
    try:
        async with (
            ApiClient(
                load_credentials(scene.guest.admin_kubeconfig), cluster="guest-admin", timeout=MAX_SECONDS
            ) as guest,
            ApiClient(load_credentials(scene.harvester.admin_kubeconfig), cluster="host", timeout=MAX_SECONDS) as host,
        ):
            environment = Environment(scene, directory, guest, host)
            mirrors = (environment.services, environment.balancers)
            watches = Background("watches", [mirror.run for mirror in mirrors])
            await watches.start([mirror.wait_synced for mirror in mirrors], within=MAX_SECONDS)
            try:
                async with GuestNodes(guest, host, cluster=CLUSTER) as nodes:
                    await nodes.add(1, 2, 3)
                    yield environment
            finally:
                environment.kill()
                await watches.stop()
    finally:
        allocator.stop()
