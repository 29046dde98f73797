"""A guest cluster: its API server, its users, its kube-vip and its controllers."""

import json
from collections.abc import Mapping
from typing import Any, Final

from devenv.harvester.records import is_deleting
from harvester_ccm.model.core import ENDPOINT_SLICES, NODES, SERVICE_LABEL, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import (
    ANNOUNCED_AS,
    KUBE_VIP_ADDRESSES,
    LB_CLUSTER,
    LB_SERVICE_NAME,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from tests.simulation.facts import (
    annotation,
    condition_reasons,
    has_condition,
    has_finalizer,
    has_other_class,
    is_not_ready,
    made_for,
    name_of,
    served,
    settings_of,
    shown,
    wants_one,
    wants_vm,
)
from tests.simulation.kubevip import NODE, KubeVip
from tests.simulation.process import Process
from tests.support.builders import CLUSTER
from tests.support.memory_server import Document, MemoryServer, Watch
from tests.support.memory_server import name_of as collection_of

NAMESPACE: Final = "shop"
LEASES: Final = "coordination.k8s.io/v1/leases"
SIGHT: Final = 0.05
"""Seconds within which a change cannot reach the controller before it sends a request."""
DEFAULT_SETTINGS: Final = "Cluster IPv4 SingleStack"
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
        self.ignore_written: set[str] = set()
        """Services of which another client decided whether kube-vip ignores them."""
        self.status_written: set[str] = set()
        """Services to whose status another client wrote while the controller had not seen them."""
        self.address_restored: set[str] = set()
        """Services of which another client wrote the address that they have, or are to have, to kube-vip's annotation:
        kube-vip withdraws the one of before, and the controller finds the right one."""
        self.address_hidden: set[str] = set()
        """Services that kube-vip ignores, from which another client removed an address that the controller would have
        withdrawn: kube-vip can have announced it."""
        self.touch_hidden: set[str] = set()
        """Services whose condition said that a touch is due, until another client wrote to it."""
        self.mark_removed: set[str] = set()
        """Services from which another client removed the condition, or of which it wrote or removed kube-vip's
        address."""
        self.settings_changed: set[str] = set()
        """Services of which settings changed at which kube-vip withdraws the address."""
        self.settings_restored: set[str] = set()
        """Services whose settings changed before the controller saw them, or changed back while it did not look."""
        self.policy_changed: set[str] = set()
        """Services whose externalTrafficPolicy changed. kube-vip counts the endpoints for the one of before."""
        self.slices_lost: set[str] = set()
        """Services whose EndpointSlice was deleted. kube-vip withdraws the address then, which nothing else shows."""
        self.slices_lost_earlier: set[str] = set()
        """The same for earlier Services of the same names, which kube-vip can announce again with the next event."""
        self.hidden: set[str] = set()
        """UIDs of Services that kube-vip ignores when another client removes the finalizer of this controller."""
        self.claimed: set[str] = set()
        """UIDs of Services with nothing of this controller to which another client added the finalizer."""
        self.condition_removed: set[str] = set()
        """Services whose condition another client removed: without it, their address counts as the user's request."""
        self.requested: dict[str, set[str]] = {}
        """Addresses that clients requested for Services that the controller had not seen yet, by their names."""
        self.requested_earlier: dict[str, set[str]] = {}
        """The same for earlier Services of the same names: kube-vip can write them to a new one."""
        self._given_up: set[str] = set()
        """UIDs of load balancers of Services that ask for one, which the controller deleted without a VM of a Node."""
        self._lost_machines_at: float | None = None
        """Since when no VM is that of a Node; None if one is."""
        self._dead_watches: list[Watch] = []
        """Connections that did not deliver that."""
        self.gave_up_last = False
        """Whether such a load balancer was the last one that vanished."""
        server.on_change.append(self._collect_slices)

    def has_lost_its_mark(self, service: Document) -> bool:
        """Return whether nothing shows that the finalizer of a Service, which others use as well, is the controller's.

        The Service has another class, no load balancer any more, and another client has removed the mark on it.
        """
        name = name_of(service)
        if not has_other_class(service) or condition_reasons(service) or self.balancers_of(name):
            return False
        return name in self.mark_removed

    def note_request(self, name: str, address: str) -> None:
        """Record that a client requests an address for a Service, if the controller has not seen that yet."""
        service = self.service(name)
        if service is not None and address and not has_finalizer(service):
            self.requested.setdefault(name, set()).add(address)

    def note_action_on_all(self, now: float) -> None:
        """Record a change of every Service at a loop time: from then on, a restored cluster shows its older data."""
        self.last_action |= {name_of(service): now for service in self.services()}

    def copy_facts(self, original: "Guest") -> None:
        """Take over what is known about the Services of the cluster that this one is a copy of."""
        self.requested |= {name: set(addresses) for name, addresses in original.requested.items()}
        self.requested_earlier |= {name: set(addresses) for name, addresses in original.requested_earlier.items()}
        self.ignore_written |= original.ignore_written
        self.status_written |= original.status_written
        self.condition_removed |= original.condition_removed
        self.mark_removed |= original.mark_removed
        self.claimed |= original.claimed

    # User actions.

    def create_service(self, name: str, spec: Document, annotations: Mapping[str, str]) -> None:
        """Create a Service with endpoints."""
        if f"{NAMESPACE}/{name}" in self.server.of(SERVICES):
            return
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations), "labels": {}}
        self.server.create(SERVICES, {"metadata": metadata, "spec": spec})
        self.ignore_written.discard(name)
        self.status_written.discard(name)
        self.address_restored.discard(name)
        self.address_hidden.discard(name)
        self.touch_hidden.discard(name)
        self.condition_removed.discard(name)
        self.requested_earlier.setdefault(name, set()).update(self.requested.get(name, ()))
        written = {annotations.get(setting, "") for setting in (KUBE_VIP_ADDRESSES, REQUESTED_ADDRESS)}
        self.requested[name] = {*written, spec.get("loadBalancerIP") or ""} - {""}
        self.mark_removed.discard(name)
        if name in self.slices_lost:
            self.slices_lost_earlier.add(name)
        self.slices_lost.discard(name)
        self.policy_changed.discard(name)
        self.settings_restored.discard(name)
        self.settings_changed.discard(name)
        self.restore_endpoints(name)

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

    def change_settings(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change settings of a Service at whose change kube-vip withdraws the address."""
        service = self.service(name)
        if service is None:
            return
        before = settings_of(service)
        self.change_service(name, {"spec": dict(spec)})
        now = settings_of(self.server.of(SERVICES)[f"{NAMESPACE}/{name}"])
        record = annotation(service, ANNOUNCED_AS)
        noted = json.loads(record)["fields"] if record.startswith("{") else DEFAULT_SETTINGS
        is_unseen = not has_finalizer(service)
        # With --announcer=other, the controller has noted no settings.
        is_unseen |= bool(shown(service)) and not annotation(service, ANNOUNCED_AS) and not self.leader()
        if now != before:
            self.settings_changed.add(name)
        if now != before and (is_unseen or now == noted):
            self.settings_restored.add(name)

    def release(self, finalizer: str) -> None:
        """Remove a finalizer from all Services."""
        for service in self.services():
            self._remove_finalizer(service, finalizer)

    def release_claimed(self) -> None:
        """Let the controller of another class remove the finalizer, which several controllers share.

        Nothing shows whether the one of this class or of another one has put it on a Service that has no other mark.
        """
        for service in self.services():
            is_claimed = service["metadata"]["uid"] in self.claimed and has_other_class(service)
            if is_claimed and self.is_unmarked(service):
                self._remove_finalizer(service, SERVICE_FINALIZER)

    def is_unmarked(self, service: Document) -> bool:
        """Return whether a Service has nothing of this controller, apart from the finalizer."""
        is_labelled = PRIMARY_SERVICE_LABEL in (service["metadata"].get("labels") or {})
        is_annotated = KUBE_VIP_ADDRESSES in (service["metadata"].get("annotations") or {})
        return not (has_condition(service) or is_labelled or is_annotated or self.balancers_of(name_of(service)))

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

    def lose_slice(self, name: str) -> bool:
        """Delete the EndpointSlice of a Service; return whether it had one."""
        key = self._slice_of(name)
        exists = key in self.server.of(ENDPOINT_SLICES)
        if exists:
            self.slices_lost.add(name)
            self.server.remove(ENDPOINT_SLICES, key)
        return exists

    def remove_endpoints(self, name: str) -> bool:
        """Let a Service have no Pods: its EndpointSlice is empty then. Return whether it had one."""
        had_endpoints = self.has_endpoints(name)
        if had_endpoints:
            self._write_slice(name, [])
        return had_endpoints

    def has_endpoints(self, name: str) -> bool:
        """Return whether a Service has endpoints."""
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

    def change_balancer(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change a load balancer as an administrator of Harvester."""
        self._harvester.change(LOAD_BALANCERS, f"{CLUSTER.namespace}/{name}", patch)

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

    def service(self, name: str) -> Document | None:
        """Return a Service as stored; None if there is none."""
        return self.server.of(SERVICES).get(f"{NAMESPACE}/{name}")

    def counts_as_request(self, name: str, address: str) -> bool:
        """Return whether a Service keeps an address that Harvester has not allocated, as its user's request.

        The controller takes the address for a request, too, if another client has removed its condition: a Service
        without the condition and without a load balancer looks like that of another provider, which keeps the address
        that its user requests in kube-vip's annotation until Harvester allocates one.

        kube-vip can write the request of an earlier Service to one of the same name. While the controller has not
        served that, the address counts as one of another provider.
        """
        service = self.service(name)
        if service is None:
            return False
        is_noted = annotation(service, REQUESTED_ADDRESS) == address and name in self.condition_removed
        is_served = has_finalizer(service)
        is_of_earlier = not is_served and address in self.requested_earlier.get(name, set())
        return is_noted or is_of_earlier or self._is_specified(service, address)

    def _is_specified(self, service: Document, address: str) -> bool:
        """Return whether the user of a new Service requested an address, and Harvester has allocated none.

        kube-vip announces that address until Harvester allocates one (docs/installation/migrate.md), unless the Service
        asks for a VM load balancer. The condition says that the Service is not ready.
        """
        has_own = any(served(balancer) for balancer in self.balancers_of(name_of(service)))
        requested = {service["spec"].get("loadBalancerIP") or ""}
        if not requested - {""}:
            requested = self.requested.get(name_of(service), set())
        is_specified = address in requested and not has_own
        return is_specified and wants_one(service) and not wants_vm(service) and is_not_ready(service)

    def balancers_of(self, name: str) -> list[Document]:
        """Return the load balancers of this cluster that are labelled for a Service."""
        return [balancer for balancer in self.balancers() if made_for(balancer) == name]

    def address_of(self, name: str) -> str:
        """Return the address of a Service's load balancer; empty if it has none."""
        return next((served(balancer) for balancer in self.balancers_of(name) if served(balancer)), "")

    def balancers(self) -> list[Document]:
        """Return the load balancers that carry the name of this cluster, as stored."""
        return [one for one in self._harvester.of(LOAD_BALANCERS).values() if cluster_of(one) == self.cluster]

    def note_machines(self, now: float) -> None:
        """Record since when no VM is that of a Node, after a change of VMs or Nodes."""
        if not self._has_no_machine_of_a_node():
            self._lost_machines_at = None
        elif self._lost_machines_at is None:
            self._lost_machines_at = now
            self._dead_watches = [watch for watch in self._watches_of_machines() if watch.silent]

    def _watches_of_machines(self) -> list[Watch]:
        """Return the open connections that deliver VMs and Nodes."""
        concerned = {collection_of(VIRTUAL_MACHINES), collection_of(NODES)}
        watches = (*self.server.watches, *self._harvester.watches)
        return [watch for watch in watches if watch.place.collection in concerned]

    def unseen_changes(self) -> set[str]:
        """Return the Services that changed so that kube-vip withdraws the address, and nothing shows it afterwards."""
        return self.address_restored | self.settings_restored | self.touch_hidden

    def has_silent_watch(self) -> bool:
        """Return whether a connection for Services delivers nothing any more, and its client has not noticed yet."""
        watches = [watch for watch in self.server.watches if watch.place.collection == collection_of(SERVICES)]
        return any(watch.silent for watch in watches)

    def note_deletion(self, balancer: Document, sent_at: float) -> None:
        """Record that the controller deletes a load balancer although nothing else shows that it can create the next.

        It could not know that if the VMs were lost after it sent the deletion, or just before, or if that is not
        delivered and the connection has not been silent for long enough, or if another load balancer was there that
        vanished afterwards. Then nothing that is left shows the right Harvester, and the controller rightly waits for
        an administrator (--allow-harvester-change).
        """
        if self._lost_machines_at is None or sent_at - self._lost_machines_at < SIGHT:
            return
        if self._another_stays(balancer):
            return
        open_watches = self._watches_of_machines()
        if any(watch in open_watches for watch in self._dead_watches):
            return
        service = self.service(made_for(balancer))
        if service is None or not wants_one(service) or service["metadata"].get("deletionTimestamp"):
            return
        if not annotation(service, PRIMARY_SERVICE):
            self._given_up.add(balancer["metadata"]["uid"])

    def note_gone(self, balancer: Document) -> None:
        """Record that a load balancer has vanished."""
        self.gave_up_last = balancer["metadata"]["uid"] in self._given_up

    def is_in_another_harvester(self) -> bool:
        """Return whether Harvester looks like that of another cluster, though Services are served: none is created.

        It has no load balancer of this cluster, and no VM of a Node. If the controller has deleted the last one to
        replace it, it has brought that about by itself, which is wrong.
        """
        return not self.gave_up_last and not self.balancers() and self._has_lost_its_machines()

    def cannot_replace(self, balancer: Document) -> bool:
        """Return whether Harvester would look so without a load balancer: then it is not replaced."""
        if self._another_stays(balancer):
            return False
        # kube-vip may have a lease for it that it has not written yet.
        awaits_lease = balancer["spec"].get("ipam") == "dhcp" and balancer["spec"].get("workloadType") == "cluster"
        return self._has_lost_its_machines() or (awaits_lease and self._has_no_machine_of_a_node())

    def _another_stays(self, balancer: Document) -> bool:
        """Return whether the load balancer of another Service shows the right Harvester after a replacement."""
        others = [other for other in self.balancers() if made_for(other) != made_for(balancer)]
        return any(map(self._stays, others))

    def _stays(self, balancer: Document) -> bool:
        """Return whether a load balancer stays as it is, so that it shows the right Harvester after a replacement."""
        service = self.service(made_for(balancer))
        if service is None or is_deleting(balancer) or is_deleting(service) or not wants_one(service):
            return False
        asked = annotation(service, WORKLOAD_TYPE)
        is_replaced = asked in {"vm", "cluster"} and asked != balancer["spec"].get("workloadType")
        return not is_replaced and not annotation(service, PRIMARY_SERVICE)

    def _has_lost_its_machines(self) -> bool:
        """Return whether no VM is that of a Node, though Services are served."""
        return self._has_no_machine_of_a_node() and any(map(_is_served, self.services()))

    def _has_no_machine_of_a_node(self) -> bool:
        uids = {machine["metadata"]["uid"] for machine in self._harvester.of(VIRTUAL_MACHINES).values()}
        providers = {node["spec"].get("providerID") for node in self.server.of(NODES).values()} - {None}
        return bool(providers) and providers.isdisjoint(f"harvester://{uid}" for uid in uids)

    def holder(self) -> str:
        """Return the identity in the Lease; empty for none."""
        lease = self.server.of(LEASES).get(LEASE_KEY)
        return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def leader(self) -> str:
        """Return the run that holds the Lease; empty if it does not run."""
        holder = self.holder().rpartition("_")[2]
        return holder if holder in {one.running for one in self.processes.values()} else ""


def _is_served(service: Document) -> bool:
    """Return whether a Service has got an address of its own from the controller."""
    meta = service["metadata"]
    is_managed = has_finalizer(service)
    return is_managed and bool(shown(service)) and PRIMARY_SERVICE_LABEL not in (meta.get("labels") or {})


def cluster_of(balancer: Document) -> str:
    """Return the cluster name that a load balancer carries."""
    return str((balancer["metadata"].get("labels") or {}).get(LB_CLUSTER, ""))
