"""A guest cluster: its API server, its users, its kube-vip and its controllers."""

from collections.abc import Mapping
from typing import Any, Final

from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_SERVICE_NAME,
)
from tests.simulation.facts import (
    made_for,
    name_of,
    served,
)
from tests.simulation.kubevip import NODE, KubeVip
from tests.simulation.process import Process
from tests.support.builders import CLUSTER
from tests.support.memory_server import Document, MemoryServer
from tests.support.memory_server import name_of as collection_of

NAMESPACE: Final = "shop"
LEASES: Final = "coordination.k8s.io/v1/leases"
EVENTS: Final = "v1/events"
SIGHT: Final = 0.05
"""Seconds within which a change cannot reach the controller before it sends a request."""
LEASE_KEY: Final = "kube-system/cloud-controller-manager"


class Guest:
    """One cluster beside its Harvester."""

    def __init__(
        self, cluster: str, server: MemoryServer, harvester: MemoryServer, kube_vip: KubeVip, *processes: Process
    ) -> None:
        self.cluster = cluster
        self.server = server
        self.kube_vip = kube_vip
        self.processes: Mapping[str, Process] = {one.name: one for one in processes}
        self._harvester = harvester
        self.last_action: dict[str, float] = {}
        """Loop time of the last user action on each Service, by its name."""
        self.told: set[tuple[str, str]] = set()
        """UID of the object and message of every Event: a cluster that is restored does not have the last ones."""
        server.on_change.append(self._collect_slices)
        server.on_change.append(self._note_event)

    def note_action_on_all(self, now: float) -> None:
        """Record a change of every Service at a loop time: from then on, a restored cluster shows its older data."""
        self.last_action |= {name_of(service): now for service in self.services()}

    # User actions.

    def create_service(self, name: str, spec: Document, annotations: Mapping[str, str]) -> None:
        if f"{NAMESPACE}/{name}" in self.server.of(SERVICES):
            return
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations), "labels": {}}
        self.server.create(SERVICES, {"metadata": metadata, "spec": spec})
        self.restore_endpoints(name)

    def delete_service(self, name: str) -> None:
        key = f"{NAMESPACE}/{name}"
        if key in self.server.of(SERVICES):
            self.server.delete(SERVICES, key)

    def change_service(self, name: str, patch: Mapping[str, Any]) -> None:
        key = f"{NAMESPACE}/{name}"
        if key in self.server.of(SERVICES):
            self.server.change(SERVICES, key, patch)

    def release(self, finalizer: str) -> None:
        for service in self.services():
            self._remove_finalizer(service, finalizer)

    def _remove_finalizer(self, service: Document, finalizer: str) -> None:
        finalizers = service["metadata"].get("finalizers") or []
        if finalizer in finalizers:
            others = [other for other in finalizers if other != finalizer]
            self.change_service(name_of(service), {"metadata": {"finalizers": others}})

    def restore_endpoints(self, name: str) -> None:
        """Let a Service have a ready Pod: its EndpointSlice is created, or written as it was."""
        self.place_endpoint(name, NODE, is_ready=True)

    def place_endpoint(self, name: str, node: str, *, is_ready: bool) -> None:
        """Let a Service have one Pod, on this node."""
        conditions = {"ready": is_ready, "serving": is_ready, "terminating": False}
        self._write_slice(name, [{"addresses": ["10.42.0.7"], "conditions": conditions, "nodeName": node}])

    def remove_endpoints(self, name: str) -> bool:
        """Let a Service have no Pods: its EndpointSlice is empty then. Return whether it had one."""
        had_endpoints = self.has_endpoints(name)
        if had_endpoints:
            self._write_slice(name, [])
        return had_endpoints

    def has_endpoints(self, name: str) -> bool:
        key = self._slice_of(name)
        return bool(key and self.server.of(ENDPOINT_SLICES).get(key, {}).get("endpoints"))

    def _slice_of(self, name: str) -> str:
        """Return the key of the EndpointSlice of a Service; empty if the Service does not exist."""
        service = self.service(name)
        return f"{NAMESPACE}/{name}-{service['metadata']['uid']}" if service is not None else ""

    def _write_slice(self, name: str, endpoints: list[Document]) -> None:
        key = self._slice_of(name)
        if not key:
            return
        if key in self.server.of(ENDPOINT_SLICES):
            self.server.change(ENDPOINT_SLICES, key, {"endpoints": endpoints})
            return
        metadata = {"name": key.partition("/")[2], "namespace": NAMESPACE, "labels": {SERVICE_LABEL: name}}
        self.server.put(ENDPOINT_SLICES, {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints})

    def _collect_slices(self, collection: str, kind: str, document: Document) -> None:
        """Delete the EndpointSlice of a deleted Service, as the garbage collection does."""
        if collection != collection_of(SERVICES) or kind != "DELETED":
            return
        key = f"{NAMESPACE}/{document['metadata']['name']}-{document['metadata']['uid']}"
        if key in self.server.of(ENDPOINT_SLICES):
            self.server.remove(ENDPOINT_SLICES, key)

    def _note_event(self, collection: str, _kind: str, document: Document) -> None:
        if collection == EVENTS:
            self.told.add((document["involvedObject"].get("uid", ""), document["message"]))

    def change_balancer(self, name: str, patch: Mapping[str, Any]) -> None:
        self._harvester.change(LOAD_BALANCERS, f"{CLUSTER.namespace}/{name}", patch)

    def delete_balancer(self, name: str) -> None:
        for document in self.balancers():
            meta = document["metadata"]
            allocated = (document.get("status") or {}).get("allocatedAddress", {}).get("ip")
            if meta["labels"].get(LB_SERVICE_NAME) == name and allocated and meta.get("finalizers"):
                self._harvester.delete(LOAD_BALANCERS, f"{CLUSTER.namespace}/{meta['name']}")

    # Objects.

    def services(self) -> list[Document]:
        return list(self.server.of(SERVICES).values())

    def service(self, name: str) -> Document | None:
        return self.server.of(SERVICES).get(f"{NAMESPACE}/{name}")

    def balancers_of(self, name: str) -> list[Document]:
        """Return the load balancers of this cluster that are labelled for a Service."""
        return [balancer for balancer in self.balancers() if made_for(balancer) == name]

    def address_of(self, name: str) -> str:
        """Return the address of a Service's load balancer; empty if it has none."""
        return next((served(balancer) for balancer in self.balancers_of(name) if served(balancer)), "")

    def balancers(self) -> list[Document]:
        return [one for one in self._harvester.of(LOAD_BALANCERS).values() if cluster_of(one) == self.cluster]

    def has_silent_watch(self) -> bool:
        """Return whether a connection for Services delivers nothing any more, and its client has not noticed yet."""
        watches = [watch for watch in self.server.watches if watch.place.collection == collection_of(SERVICES)]
        return any(watch.silent for watch in watches)

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
