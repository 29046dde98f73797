"""Handovers: the leader is ended again and again while Services come and go. How long is there none, and who writes?

Two candidates with their own service accounts run on one pair of API servers. The audit logs show for every write
whether its sender held the Lease. Most rounds end the leader with SIGTERM and the default timing of the Lease, the
others with SIGKILL and a short one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.arena import NAMESPACE, allocator, service
from benchmarks.audit import WRITES, AuditLog, Request
from benchmarks.table import Row
from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.harvester.records import LOAD_BALANCERS, SERVICES
from devenv.restclient import Json
from devenv.stage import VM_NAMESPACE, Scene, until
from harvester_ccm.errors import NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig

SHORT_LEASE: Final[Mapping[str, str]] = {
    "leader-elect-lease-duration": "3s",
    "leader-elect-renew-deadline": "2s",
    "leader-elect-retry-period": "500ms",
}
ALIVE: Final = 30
"""Services at a time. The oldest one is deleted for each new one."""
EVERY_SECONDS: Final = 0.25
PATIENCE: Final = 60.0


class Candidate:
    """A run of the program that can become the leader, with its own identity at both servers."""

    def __init__(self, scene: Scene, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self._kubeconfig = scene.guest.kubeconfig_for_service_account(
            "kube-system", name, context_namespace="kube-system"
        )
        self._cloud_config = scene.harvester.kubeconfig_for_service_account(
            VM_NAMESPACE, name, context_namespace=VM_NAMESPACE
        )
        for role in ("harvester-cloud-provider", "harvester-cloud-provider-additions"):
            scene.guest.apply(_binding("ClusterRoleBinding", role, {"namespace": "kube-system", "name": name}))
        subject = {"namespace": VM_NAMESPACE, "name": name}
        scene.harvester.apply(_binding("RoleBinding", "harvesterhci.io:cloudprovider", subject))
        self.run: CcmProcess

    def start(self, flags: Mapping[str, str]) -> None:
        """Start the program."""
        self.run = CcmProcess.start(
            self._directory,
            cloud_config=self._cloud_config,
            kubeconfig=self._kubeconfig,
            flags={"cluster-name": "relay", "v": "2", **flags},
            name=self.name,
        )

    async def logged(self, text: str) -> None:
        """Return once the run has logged this text. Raises RuntimeError if it has ended."""

        async def found() -> bool:
            if text not in self.run.log and self.run.exit_code is not None:
                raise RuntimeError(f"{self.name} ended with code {self.run.exit_code}: {self.run.log[-500:]}")
            return text in self.run.log

        await until(found, within=PATIENCE, what=f"{text!r} in the log of {self.name}")

    async def end(self, *, kill: bool = False) -> bool:
        """End the run; return whether it was the signal that ended it, and not the loss of the Lease."""
        await asyncio.to_thread(self.run.kill if kill else lambda: self.run.terminate(PATIENCE))
        return self.run.exit_code == (-9 if kill else 0)


class Relay:
    """Two candidates, Services that come and go, and what became of both."""

    def __init__(self, scene: Scene, directory: Path, guest: ApiClient, harvester: ApiClient) -> None:
        self._scene = scene
        self._guest = guest
        self._harvester = harvester
        self._candidates = [Candidate(scene, name, directory) for name in ("ccm-a", "ccm-b")]
        self._alive: deque[str] = deque()
        self.created = 0
        self.ended: list[tuple[float, bool]] = []
        """When a signal ended the leader, in seconds since the epoch, and whether it was SIGKILL."""
        self.lost = 0
        """Leaders that lost the Lease before the signal, as on a busy machine."""

    async def play(self, *, terminated: int, killed: int) -> None:
        """End leaders while Services come and go; finally delete the Services. Raises TimeoutError if any is left."""
        traffic = Background("services", [self._come_and_go])
        await traffic.start([], within=PATIENCE)
        try:
            await self._rounds(terminated, {}, kill=False)
            await self._rounds(killed, SHORT_LEASE, kill=True)
        finally:
            await traffic.stop()
        (last, _) = self._candidates
        last.start({})
        await until(self._is_served, within=PATIENCE, what="addresses of all Services")
        for name in self._alive:
            await self._delete(name)
        await until(self._is_empty, within=PATIENCE, what="no load balancer left")
        await last.end()

    async def _rounds(self, count: int, flags: Mapping[str, str], *, kill: bool) -> None:
        leader, standby = self._candidates
        leader.start(flags)
        await leader.logged("became leader")
        standby.start(flags)
        done = 0
        while done < count:
            await standby.logged("waiting for leadership")
            at = time.time()
            if await leader.end(kill=kill):
                self.ended.append((at, kill))
                done += 1
            else:
                self.lost += 1
            await standby.logged("became leader")
            leader.start(flags)
            leader, standby = standby, leader
        await standby.end()
        await leader.end()

    def stop(self) -> None:
        """End what still runs."""
        for one in self._candidates:
            if hasattr(one, "run"):
                one.run.stop()

    async def _come_and_go(self) -> None:
        while True:
            name = f"relay-{self.created:05}"
            self._alive.append(name)
            await self._guest.create(SERVICES, service(name), namespace=NAMESPACE)
            self.created += 1
            if len(self._alive) > ALIVE:
                await self._delete(self._alive.popleft())
            await asyncio.sleep(EVERY_SECONDS)

    async def _delete(self, name: str) -> None:
        try:
            await self._guest.delete(SERVICES, name, namespace=NAMESPACE)
        except NotFound:
            return

    async def _is_served(self) -> bool:
        found = (await self._guest.list(SERVICES, namespace=NAMESPACE)).items
        served = {one["metadata"]["name"] for one in found if one.get("status", {}).get("loadBalancer")}
        return served.issuperset(self._alive)

    async def _is_empty(self) -> bool:
        return not (await self._harvester.list(LOAD_BALANCERS, namespace=VM_NAMESPACE)).items

    def rows(self) -> list[Row]:
        """Return the measured numbers."""
        lease = [one for one in self._writes() if one.resource == "leases" and one.code < 300]
        changes = [after.answered for before, after in pairwise(lease) if before.client != after.client]
        found = []
        for title, kill in (("SIGTERM", False), ("SIGKILL, Lease of 3 s", True)):
            times = [min(one for one in changes if one > at) - at for at, killed in self.ended if killed is kill]
            if times:
                found.append(
                    Row(f"{len(times)} handovers by {title}: until the standby leads, median", median(times), "s")
                )
                found.append(Row("  longest", max(times), "s"))
        return [*found, Row("  writes without the Lease", len(self.intruders()))]

    def intruders(self) -> list[Request]:
        """Return the writes of candidates that did not hold the Lease.

        A term begins with a write of the Lease. It ends with the last one, which releases it, and without a release
        when the next candidate takes it. Events may follow a release.
        """
        writes = self._writes()
        lease = [one for one in writes if one.resource == "leases" and one.code < 300]
        starts = [number for number, one in enumerate(lease) if not number or lease[number - 1].client != one.client]
        terms: list[tuple[str, float, float]] = []
        for start, after in zip(starts, [*starts[1:], len(lease)], strict=True):
            taken = lease[after].received if after < len(lease) else float("inf")
            began = lease[start].received
            is_released = any(began <= at < taken and not kill for at, kill in self.ended)
            terms.append((lease[start].client, began, lease[after - 1].received if is_released else taken))
        work = [one for one in writes if one.resource not in ("leases", "events")]
        return [one for one in work if not _is_inside(one, terms)]

    def _writes(self) -> list[Request]:
        users = "system:serviceaccount:{}:{}".format
        logs = [
            AuditLog(plane.audit_log, {users(namespace, one.name): one.name for one in self._candidates})
            for plane, namespace in ((self._scene.guest, "kube-system"), (self._scene.harvester, VM_NAMESPACE))
        ]
        return sorted((one for log in logs for one in log.since() if one.verb in WRITES), key=lambda one: one.received)


def _is_inside(write: Request, terms: Sequence[tuple[str, float, float]]) -> bool:
    return any(
        write.client == name and began <= write.received and write.answered <= ended for name, began, ended in terms
    )


def _binding(kind: str, role: str, subject: Mapping[str, str]) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": f"{role}-{subject['name']}".replace(":", "-"), "namespace": subject["namespace"]},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", **subject}],
    }


async def play(scene: Scene, directory: Path, *, terminated: int, killed: int) -> Relay:
    """Return a relay that was played on a running scene that has audit logs. Its runs have ended."""
    async with (
        allocator(scene, directory),
        ApiClient(load_kubeconfig(scene.guest.admin_kubeconfig), cluster="guest-admin") as guest,
        ApiClient(load_kubeconfig(scene.harvester.admin_kubeconfig), cluster="host") as harvester,
    ):
        relay = Relay(scene, directory, guest, harvester)
        try:
            await relay.play(terminated=terminated, killed=killed)
        finally:
            relay.stop()
    return relay


async def measure(scene: Scene, directory: Path, rounds: int) -> AsyncIterator[Row]:
    """Measure handovers; one in ten by SIGKILL."""
    killed = max(1, rounds // 10)
    for row in (await play(scene, directory, terminated=rounds - killed, killed=killed)).rows():
        yield row
