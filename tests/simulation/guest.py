"""A guest cluster: its API server, its users, its kube-vip and its controllers."""

from collections.abc import Mapping
from typing import Any, Final

from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_CLUSTER, LB_SERVICE_NAME
from tests.simulation.kubevip import KubeVip
from tests.simulation.process import Process
from tests.worlds.builders import CLUSTER
from tests.worlds.memory_server import Document, MemoryServer

NAMESPACE: Final = "shop"
LEASES: Final = "coordination.k8s.io/v1/leases"
LEASE_KEY: Final = "kube-system/cloud-controller-manager"


class Guest:
    """One cluster beside its Harvester."""

    def __init__(
        self, cluster: str, server: MemoryServer, harvester: MemoryServer, kube_vip: KubeVip, *processes: Process
    ) -> None:
        """``cluster`` is the cluster name of its controller."""
        self.cluster = cluster
        self.server = server
        self.kube_vip = kube_vip
        self.processes: Mapping[str, Process] = {one.name: one for one in processes}
        self._harvester = harvester
        self.last_action: dict[str, float] = {}
        """Loop time of the last user action on each Service, by its name."""

    # User actions.

    def create_service(self, name: str, spec: Document, annotations: Mapping[str, str]) -> None:
        """Create a Service with endpoints."""
        if f"{NAMESPACE}/{name}" in self.server.of(SERVICES):
            return
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations), "labels": {}}
        self.server.create(SERVICES, {"metadata": metadata, "spec": spec})
        piece = {"name": name, "namespace": NAMESPACE, "labels": {SERVICE_LABEL: name}}
        endpoints = [{"addresses": ["10.42.0.7"], "conditions": {"ready": True}}]
        self.server.put(ENDPOINT_SLICES, {"metadata": piece, "addressType": "IPv4", "endpoints": endpoints})

    def delete_service(self, name: str) -> None:
        """Delete a Service."""
        key = f"{NAMESPACE}/{name}"
        if key in self.server.of(SERVICES):
            self.server.delete(SERVICES, key)

    def change_service(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change a Service, if there is one."""
        key = f"{NAMESPACE}/{name}"
        if key in self.server.of(SERVICES):
            self.server.change(SERVICES, key, patch)

    def delete_balancer(self, name: str) -> None:
        """Delete the load balancer of a Service as an administrator, once Harvester has allocated its address."""
        for document in self.balancers():
            meta = document["metadata"]
            allocated = (document.get("status") or {}).get("allocatedAddress", {}).get("ip")
            if meta["labels"].get(LB_SERVICE_NAME) == name and allocated and meta.get("finalizers"):
                self._harvester.delete(LOAD_BALANCERS, f"{CLUSTER.namespace}/{meta['name']}")

    # Objects.

    def services(self) -> list[Document]:
        """Return the Services as stored."""
        return list(self.server.of(SERVICES).values())

    def balancers(self) -> list[Document]:
        """Return the load balancers that carry the name of this cluster, as stored."""
        return [one for one in self._harvester.of(LOAD_BALANCERS).values() if cluster_of(one) == self.cluster]

    def holder(self) -> str:
        """Return the identity in the Lease; empty for none."""
        lease = self.server.of(LEASES).get(LEASE_KEY)
        return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def leader(self) -> str:
        """Return the run that holds the Lease; empty if it does not run."""
        holder = self.holder().rpartition("_")[2]
        return holder if holder in {one.running for one in self.processes.values()} else ""


def cluster_of(balancer: Document) -> str:
    """Return the cluster name that a load balancer carries."""
    return str((balancer["metadata"].get("labels") or {}).get(LB_CLUSTER, ""))
