"""Both clusters, all that acts in them, and the oracles that look at them after every step."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from harvester_ccm.model.core import ENDPOINT_SLICES, NAMESPACES, SERVICE_LABEL, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_SERVICE_NAME
from tests.simulation.clocks import time_of_day
from tests.simulation.harvester import HarvesterControllers
from tests.simulation.kubevip import KubeVip
from tests.simulation.loop import SeededLoop
from tests.simulation.machines import MACHINES, Machines
from tests.simulation.network import Network, Weather
from tests.simulation.pools import Pools
from tests.simulation.process import Process
from tests.worlds.builders import CLUSTER
from tests.worlds.memory_server import Call, Document, MemoryServer

FLAGS: Final = (
    "--cloud-config=/none",
    "--secure-port=0",
    "--cluster-name=demo",
    "--leader-elect-lease-duration=60s",
    "--leader-elect-renew-deadline=45s",
    "--leader-elect-retry-period=20s",
)
NAMESPACE: Final = "shop"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
EVENTS: Final = "/events"


class World:
    """One guest cluster, its program, and Harvester."""

    def __init__(self, loop: SeededLoop, seed: str, *, pool: int, nodes: int = 0) -> None:
        """``pool`` is the number of addresses that there are, ``nodes`` that of the Nodes."""
        self.loop = loop
        self.dice = random.Random(f"{seed} world")
        self.wrong: list[str] = []
        """What an oracle found; the schedule ends with the first."""
        self.met: Counter[str] = Counter()
        """What went wrong, and how often."""
        self.guest, self.harvester = MemoryServer(uids="guest"), MemoryServer(uids="harvester")
        for server in (self.guest, self.harvester):
            server.clock = lambda: time_of_day(loop)
        self.networks = {
            "guest": Network(self.guest, loop.time, f"{seed} guest", self.met),
            "harvester": Network(self.harvester, loop.time, f"{seed} harvester", self.met),
        }
        group = "/apis/loadbalancer.harvesterhci.io"
        self.harvester.answers[group] = {"versions": [{"version": "v1beta1"}]}
        self.harvester.answers[f"{group}/v1beta1"] = {"resources": [{"name": "loadbalancers"}, {"name": "ippools"}]}
        self.guest.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": CLUSTER.uid}})
        self.controllers = HarvesterControllers(self.harvester, loop, seed, lambda: time_of_day(loop))
        self.pools = Pools(self.harvester, pool)
        self.kube_vip = KubeVip(self.guest, loop, seed)
        self.machines = Machines(self.guest, self.harvester, loop)
        for name in MACHINES[:nodes]:
            self.machines.boot(name)
        self.processes = {
            name: Process(name, loop, self.guest, self.harvester, FLAGS, self.wrong.append) for name in ("p", "q")
        }
        self.servers: Mapping[str, MemoryServer] = {"guest": self.guest, "harvester": self.harvester}
        self.on_restore: list[Callable[[str, float], None]] = []
        """Called with the side that has gone back to older data, and the seconds for which it is away then."""
        self._versions = {side: [(0.0, server.version)] for side, server in self.servers.items()}
        for side, server in self.servers.items():
            server.on_change.append(self._noting_versions(side))

    # What users do.

    def create_service(self, name: str, spec: Document, annotations: Mapping[str, str]) -> None:
        """Create a Service with endpoints."""
        key = f"{NAMESPACE}/{name}"
        if key in self.guest.of(SERVICES):
            return
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations), "labels": {}}
        self.guest.create(SERVICES, {"metadata": metadata, "spec": spec})
        piece = {"name": name, "namespace": NAMESPACE, "labels": {SERVICE_LABEL: name}}
        endpoints = [{"addresses": ["10.42.0.7"], "conditions": {"ready": True}}]
        self.guest.put(ENDPOINT_SLICES, {"metadata": piece, "addressType": "IPv4", "endpoints": endpoints})

    def delete_service(self, name: str) -> None:
        """Delete a Service."""
        key = f"{NAMESPACE}/{name}"
        if key in self.guest.of(SERVICES):
            self.guest.delete(SERVICES, key)

    def change_service(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change a Service, if there is one."""
        key = f"{NAMESPACE}/{name}"
        if key in self.guest.of(SERVICES):
            self.guest.change(SERVICES, key, patch)

    def delete_balancer(self, name: str) -> None:
        """Delete the load balancer of a Service by hand, once Harvester has done with it what it does."""
        for document in self.balancers():
            meta = document["metadata"]
            booked = (document.get("status") or {}).get("allocatedAddress", {}).get("ip")
            if meta["labels"].get(LB_SERVICE_NAME) == name and booked and meta.get("finalizers"):
                self.harvester.delete(LOAD_BALANCERS, f"{CLUSTER.namespace}/{meta['name']}")

    def restore(self, side: str, back: float, away: float) -> bool:
        """Restore the backup of an API server that is ``back`` seconds old; return whether anything was different."""
        server, now, versions = self.servers[side], self.loop.time(), self._versions[side]
        while len(versions) > 1 and versions[-1][0] > now - back:
            versions.pop()
        if versions[-1][1] == server.version:
            return False
        server.rewind(versions[-1][1])
        self.networks[side].weather.append(Weather("connections refused", now + away, 1.0))
        if side == "guest":
            self.kube_vip.restart()
        else:
            self.controllers.stop()
            self.loop.call_later(away, self.controllers.start)
        self.machines.rejoin()
        for callback in self.on_restore:
            callback(side, away)
        return True

    def _noting_versions(self, side: str) -> Callable[[str, str, Document], None]:
        def note(_collection: str, _kind: str, _document: Document) -> None:
            self._versions[side].append((self.loop.time(), self.servers[side].version))

        return note

    # What there is.

    def services(self) -> list[Document]:
        """Return the Services as stored."""
        return list(self.guest.of(SERVICES).values())

    def balancers(self) -> list[Document]:
        """Return the load balancers as stored."""
        return list(self.harvester.of(LOAD_BALANCERS).values())

    def leader(self) -> str:
        """Return who holds the Lease; empty for nobody that runs."""
        lease = self.guest.of("coordination.k8s.io/v1/leases").get("kube-system/cloud-controller-manager")
        holder = str(((lease or {}).get("spec") or {}).get("holderIdentity") or "").rpartition("_")[2]
        return holder if holder in {one.running for one in self.processes.values()} else ""

    def writes(self) -> list[Call]:
        """Return what the program has written so far, but for the Lease."""
        every = (*self.guest.calls, *self.harvester.calls)
        return [call for call in every if call.is_write and not call.path.startswith(LEASE)]

    def digest(self) -> str:
        """Return a hash of all that was asked for."""
        found = hashlib.sha256()
        for server in self.servers.values():
            for call in server.calls:
                found.update(f"{call.at:.6f} {call.by} {call.verb} {call.path} {call.body}\n".encode())
        return found.hexdigest()
