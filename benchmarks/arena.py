"""Where the benchmarks run: two API servers with audit logs, the instant allocator, and runs of the program.

Nothing stands between the program and the servers: requests are counted from the audit logs. A Service is served when
a watch of another client delivers its status with an address.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.audit import AuditLog, Request
from benchmarks.table import Row
from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.eyes import addresses_in
from devenv.harvester.machines import Machine, Machines
from devenv.harvester.records import LOAD_BALANCERS, SERVICES
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from devenv.process import ChildProcess, ReservedPort, cpu_seconds, log_tail, resident_bytes
from devenv.stage import SERVICE_ACCOUNT, VM_NAMESPACE, Scene, until
from devenv.watch import Document, Mirror, labels_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.names import LB_SERVICE_NAME

CLUSTER: Final = "bench"
NAMESPACE: Final = "default"
MIB: Final = 2**20
NODES: Final = 3
CONNECTIONS: Final = 10
"""Requests of the load at once; more only wait for each other on the allocation of node ports."""
MINUTE: Final = 60.0
IDLE_SECONDS: Final = 1.0
"""After this time without a request, the program is idle."""
PATIENCE: Final = 300.0


class Arena:
    """Everything that a benchmark needs. Made by ``open_arena``."""

    def __init__(self, scene: Scene, directory: Path, guest: ApiClient, harvester: ApiClient) -> None:
        self.scene = scene
        self.directory = directory
        self.guest = guest
        self.harvester = harvester
        self.services = Mirror(guest, SERVICES, namespace=NAMESPACE)
        self.balancers = Mirror(harvester, LOAD_BALANCERS, namespace=VM_NAMESPACE)
        self.served_at: dict[str, float] = {}
        """Loop time since when the status of a Service, by name, has had an address."""
        self.services.subscribe(self._note_time)
        self._logs = [
            AuditLog(plane.audit_log, {f"system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}": side})
            for plane, namespace, side in (
                (scene.guest, "kube-system", "guest"),
                (scene.harvester, VM_NAMESPACE, "harvester"),
            )
        ]
        self._program: CcmProcess | None = None
        self.port = 0
        """Where the program serves health and metrics."""

    @property
    def program(self) -> CcmProcess:
        """The run of the program. Raises RuntimeError if there is none, or if it has ended."""
        if self._program is None or self._program.exit_code is not None:
            detail = log_tail(self._program.log_file, 3) if self._program else "it was not started"
            raise RuntimeError(f"the program does not run: {detail}")
        return self._program

    @property
    def memory(self) -> float:
        """Resident memory of the program in MiB."""
        return resident_bytes(self.program.pid) / MIB

    async def start(self) -> float:
        """Start the program as it is installed; return the seconds until it is the leader."""
        reserved = ReservedPort()
        reserved.release()
        self.port = reserved.number
        began = asyncio.get_running_loop().time()
        self._program = CcmProcess.start(
            self.directory,
            cloud_config=self.scene.cloud_config,
            kubeconfig=self.scene.kubeconfig,
            flags={"cluster-name": CLUSTER, "v": "2", "bind-address": "127.0.0.1", "secure-port": str(self.port)},
        )
        await self.until(lambda: "became leader" in self.program.log, "the program to lead")
        return asyncio.get_running_loop().time() - began

    async def stop(self) -> None:
        """End the program with SIGTERM. Raises RuntimeError unless it exits with 0."""
        code = await asyncio.to_thread(self.program.terminate, 30.0)
        self._program = None
        if code != 0:
            raise RuntimeError(f"the program ended with code {code} after SIGTERM, expected 0")

    def kill(self) -> None:
        """End the program, whatever state it is in."""
        if self._program is not None:
            self._program.stop()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once the condition holds. Raises TimeoutError that names ``what``."""

        async def holds() -> bool:
            return condition()

        await until(holds, within=PATIENCE, what=what)

    async def mark(self) -> tuple[int, ...]:
        """Return a moment, for ``requests``, at which the program is idle."""
        while True:
            before = self._positions()
            await asyncio.sleep(IDLE_SECONDS)
            if not self._work(before):
                return self._positions()

    async def requests(self, since: tuple[int, ...]) -> list[Request]:
        """Return the requests after a moment, without watches and the Lease, once the program is idle again."""
        await self.mark()
        return self._work(since)

    def _positions(self) -> tuple[int, ...]:
        return tuple(log.position() for log in self._logs)

    def _work(self, since: tuple[int, ...]) -> list[Request]:
        logged = [one for log, position in zip(self._logs, since, strict=True) for one in log.since(position)]
        return [one for one in logged if one.resource != "leases"]

    async def minute(self, title: str, work: Callable[[], Awaitable[None]]) -> list[Row]:
        """Return what a minute costs in which only ``work`` is done. The program is idle before."""
        mark, used, servers = await self.mark(), cpu_seconds(self.program.pid), self.server_seconds()
        await work()
        used, servers = cpu_seconds(self.program.pid) - used, self.server_seconds() - servers
        return [
            Row(f"{title}: requests", len(await self.requests(mark))),
            Row("  processor time of the program, beside that of the API servers", used, "s", servers),
        ]

    def server_seconds(self) -> float:
        """Return the processor time that both API servers and etcds have used."""
        planes = (self.scene.guest, self.scene.harvester)
        return sum(cpu_seconds(pid) for plane in planes for pid in plane.processes.values())

    async def create(self, names: Iterable[str]) -> None:
        """Create Services of type LoadBalancer. They have no node ports, of which a cluster has about 2,700."""
        await self.each(lambda name: self.guest.create(SERVICES, service(name), namespace=NAMESPACE), names)

    async def served(self, names: Iterable[str]) -> float:
        """Return the loop time at which the last of the Services got its address. Raises TimeoutError."""
        chosen = set(names)
        await self.until(lambda: chosen <= self.served_at.keys(), f"addresses of {len(chosen)} Services")
        return max(self.served_at[name] for name in chosen)

    async def delete(self, names: Iterable[str]) -> None:
        """Delete Services; return once they and all load balancers are deleted. Raises TimeoutError."""
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
            self.served_at.pop(name, None)

    async def each(
        self, action: Callable[[str], Awaitable[object]], names: Iterable[str], *, at_once: int = CONNECTIONS
    ) -> None:
        """Do something for every name, over a few connections."""
        waiting = iter(list(names))

        async def work() -> None:
            for name in waiting:
                await action(name)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())

    async def create_nodes(self) -> None:
        """Create a few running VMs with their initialized Nodes."""
        machines = Machines(self.harvester)
        for number in range(1, NODES + 1):
            machine, address = Machine(f"bench-node-{number}", cluster=CLUSTER), f"198.19.0.{number}"
            stored = await machines.create(machine, address)
            node = node_document(Kubelet(machine.name, system_uuid=machine.system_uuid))
            node["spec"] = {"providerID": f"harvester://{stored['metadata']['uid']}"}
            node["status"]["addresses"].append({"type": "InternalIP", "address": address})
            await self.guest.create(DOCUMENTS, node)

    def _note_time(self, _before: Document | None, after: Document | None) -> None:
        if after is not None and addresses_in(after):
            self.served_at.setdefault(after["metadata"]["name"], asyncio.get_running_loop().time())


def service(name: str) -> Document:
    """Return a Service of type LoadBalancer with one port."""
    ports = [{"name": "http", "port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False},
    }


@asynccontextmanager
async def allocator(scene: Scene, directory: Path) -> AsyncIterator[None]:
    """Run the instant allocator meanwhile, from when the API server creates load balancers without a delay on."""
    trial = {"apiVersion": LOAD_BALANCERS.api_version, "kind": LOAD_BALANCERS.kind, "metadata": {"name": "trial"}}
    trial["spec"] = {"ipam": "pool", "workloadType": "cluster"}
    path = f"{LOAD_BALANCERS.path(VM_NAMESPACE)}?dryRun=All"
    await asyncio.to_thread(scene.harvester.admin.request, "POST", path, body=trial)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "benchmarks.allocator",
        scene.harvester.admin_kubeconfig,
        VM_NAMESPACE,
    ]
    process = ChildProcess.start("allocator", command, log_file=directory / "allocator.log")
    try:
        yield
    finally:
        process.stop()


@asynccontextmanager
async def open_arena(scene: Scene, directory: Path) -> AsyncIterator[Arena]:
    """Yield an arena on a running scene that has audit logs; end all that was started in it."""
    async with (
        allocator(scene, directory),
        ApiClient(load_kubeconfig(scene.guest.admin_kubeconfig), cluster="guest-admin", patience=PATIENCE) as guest,
        ApiClient(load_kubeconfig(scene.harvester.admin_kubeconfig), cluster="host", patience=PATIENCE) as harvester,
    ):
        arena = Arena(scene, directory, guest, harvester)
        mirrors = (arena.services, arena.balancers)
        following = Background("followers", [mirror.run for mirror in mirrors])
        await following.start([mirror.wait_synced for mirror in mirrors], within=PATIENCE)
        try:
            await arena.create_nodes()
            yield arena
        finally:
            arena.kill()
            await following.stop()
