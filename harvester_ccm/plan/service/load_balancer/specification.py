"""The LoadBalancer object of a Service: what it must contain, and the changes that an existing one needs.

The same for a new load balancer and for an existing one: labels, the owner annotations, the cluster annotation, the
management network, and of a VM load balancer listeners, backends and health check.

Set only at creation: ``ipam`` and the annotations that select a pool (Harvester's webhook overwrites namespace and
project with every write, so a comparison would never end). Fixed once there is an address: the pool and the network.
The pool of the address is named where that keeps the address. The description follows its annotation. All other fields
stay as they were read.
"""

from collections.abc import Mapping
from typing import cast

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, Document
from harvester_ccm.plan.service.load_balancer.vm_spec import vm_spec_of
from harvester_ccm.plan.service.ownership.owner import name_for
from harvester_ccm.plan.service.request import Ipam, Request, normal_network
from harvester_ccm.plan.service.snapshot import ServiceSnapshot


def kept_annotations(service: Service, cluster: ClusterIdentity) -> dict[str, str | None]:
    """Return the annotations that a load balancer of the Service always has; None as a value means absent."""
    annotations: dict[str, str | None] = {
        names.LB_SELECT_CLUSTER: cluster.name,
        names.LB_MANAGEMENT_NETWORK: cluster.management_network or None,
        names.LB_SERVICE_UID: service.metadata.uid,
    }
    if cluster.uid:
        annotations[names.LB_OWNER] = cluster.uid
    return annotations


def load_balancer_labels(service: Service, cluster: ClusterIdentity) -> dict[str, str]:
    """Return the labels by which the load balancer and its Service are found."""
    return {
        names.LB_CLUSTER: cluster.name,
        names.LB_SERVICE_NAMESPACE: service.metadata.namespace,
        names.LB_SERVICE_NAME: service.metadata.name,
    }


def new_load_balancer(service: Service, request: Request, cluster: ClusterIdentity, vm_spec: Document) -> Document:
    """Return the object to create.

    It has the finalizer of Harvester's controller from the start. Otherwise Harvester adds it with a separate write,
    which may conflict with others and is a third of its writes, of which it has five a second. The finalizer does not
    show that Harvester has recorded an address then.
    """
    annotations: dict[str, str | None] = {
        names.LB_SELECT_NETWORK: request.network,
        names.LB_REQUESTED_NETWORK: request.network_as_written,
        names.LB_SELECT_PROJECT: request.project,
        names.LB_SELECT_NAMESPACE: request.pool_namespace,
        names.LB_DESCRIPTION: "true" if request.description else None,
        # Harvester makes a Service and an EndpointSlice for a VM load balancer. If an earlier load balancer had the
        # name, the garbage collector of Harvester may still delete its two objects, after Harvester has taken them over
        # for the new load balancer. A write some seconds later makes Harvester create them again.
        names.LB_UPDATE_AFTER_CREATE: "true" if vm_spec else None,
        **kept_annotations(service, cluster),
    }
    spec = {
        "description": request.description or _default_description(service, cluster),
        "workloadType": "vm" if vm_spec else "cluster",
        "ipam": str(request.ipam),
        "ipPool": request.ip_pool if request.ipam is Ipam.POOL else "",
        **vm_spec,
    }
    return {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {
            "name": name_for(service, cluster),
            "namespace": cluster.namespace,
            "labels": load_balancer_labels(service, cluster),
            "annotations": {key: value for key, value in annotations.items() if value is not None},
            "finalizers": [names.LB_CONTROLLER_FINALIZER],
        },
        "spec": {key: value for key, value in spec.items() if value not in (None, "")},
    }


def _default_description(service: Service, cluster: ClusterIdentity) -> str:
    """Return the description that Harvester's UI shows in its lists."""
    return f"{service.metadata.key} of cluster {cluster.name}"


def load_balancer_change(
    current: LoadBalancer,
    snapshot: ServiceSnapshot,
    *,
    address: str = "",
    annotations: Mapping[str, str | None] | None = None,
) -> ChangeLoadBalancer | None:
    """Return the write that brings an existing load balancer to its desired state; None if it has that.

    ``address`` is the address in use; if it is empty, the present one stays. ``annotations`` are desired in addition to
    those of every load balancer.
    """
    service = snapshot.service
    cluster = snapshot.cluster
    spec = _named_pool(current, snapshot)
    if current.spec.workload_type == "vm":
        spec.update(vm_spec_of(snapshot))
    wanted = {**kept_annotations(service, cluster), **(annotations or {})}
    # The description follows its annotation. One that a user wrote in Harvester, or another provider, stays.
    if snapshot.request.description:
        wanted[names.LB_DESCRIPTION] = "true"
        spec["description"] = snapshot.request.description
    elif current.metadata.annotation(names.LB_DESCRIPTION) is not None:
        wanted[names.LB_DESCRIPTION] = None
        spec["description"] = _default_description(service, cluster)
    if not searches_elsewhere(current, snapshot):
        wanted.setdefault(names.LB_RECONCILE, None)
    meta = current.metadata
    status = {}
    if address and address != current.address:
        status["address"] = address
    labels = load_balancer_labels(service, cluster)
    change = ChangeLoadBalancer(
        meta.name,
        labels={key: value for key, value in labels.items() if meta.label(key) != value},
        annotations={key: value for key, value in wanted.items() if meta.annotation(key) != value},
        spec=_spec_difference(current, spec, snapshot),
        status=status,
    )
    return None if change == ChangeLoadBalancer(meta.name) else change


def _named_pool(current: LoadBalancer, snapshot: ServiceSnapshot) -> dict[str, object]:
    """Return the pool of the address, if the load balancer must name it to keep the address.

    Harvester before 1.4 chooses the pool again in each reconcile of a load balancer that names none. That is so if the
    address has moved, and may be so if the Service names the pool only now.
    """
    pool = current.allocated_pool
    is_open = current.spec.ipam == "pool" and not current.spec.ip_pool
    if not is_open or not pool or not current.allocated_ip:
        return {}
    is_named = snapshot.request.ip_pool == pool and not snapshot.wants_switch
    return {"ipPool": pool} if is_named or has_moved(current) else {}


def has_moved(current: LoadBalancer) -> bool:
    """Return whether Harvester has moved the address of a load balancer to another pool by itself."""
    spec = current.spec
    is_open = spec.ipam == "pool" and not spec.ip_pool
    is_other = current.address not in {"", current.allocated_ip}
    return bool(current.allocated_ip) and is_other and is_open and spec.workload_type == "cluster"


def _spec_difference(
    current: LoadBalancer, wanted: Mapping[str, object], snapshot: ServiceSnapshot
) -> dict[str, object]:
    """Return the fields of the specification that differ, without those that Harvester did not store."""
    if not wanted:
        return {}
    present = cast("Document", current.document().get("spec") or {})
    return {
        key: value
        for key, value in wanted.items()
        if not _covers(present.get(key), value) and not _is_dropped(key, value, snapshot)
    }


def _is_dropped(name: str, value: object, snapshot: ServiceSnapshot) -> bool:
    """Return whether Harvester did not store a field with this value."""
    not_stored = snapshot.remembered.not_stored
    return name in not_stored and not_stored[name] == value


def _covers(present: object, wanted: object) -> bool:
    """Return whether a field has the desired value, apart from fields that only a newer Harvester has."""
    if isinstance(present, list) and isinstance(wanted, list):
        return len(present) == len(wanted) and all(map(_covers, present, wanted))
    if isinstance(present, dict) and isinstance(wanted, dict):
        # A further key in the selector of backends would exclude VMs.
        if names.VM_NAME in wanted:
            return present == wanted
        return present.items() >= wanted.items()
    return present == wanted


def searches_elsewhere(current: LoadBalancer, snapshot: ServiceSnapshot) -> bool:
    """Return whether Harvester searches for an address in another pool or network than the Service requests now."""
    return not current.allocated_ip and is_for_other_request(current, snapshot)


def is_for_other_request(current: LoadBalancer, snapshot: ServiceSnapshot) -> bool:
    """Return whether the Service requests another pool or network now than when its load balancer was created.

    A load balancer by the Go provider before 0.2.7 does not name the requested network.
    """
    request = snapshot.request
    network = current.metadata.annotation(names.LB_REQUESTED_NETWORK)
    if network is not None and normal_network(network) != request.network:
        return True
    return current.spec.ipam == "pool" and current.spec.ip_pool != request.ip_pool


def network_of(current: LoadBalancer, requested: str) -> str:
    """Return the network of a load balancer in normal form; it is fixed once the load balancer has an address.

    ``requested`` is the network that the Service requests now. It applies until then, or if the load balancer names no
    network.
    """
    created_with = current.metadata.annotation(names.LB_REQUESTED_NETWORK)
    is_fixed = current.allocated_ip and created_with is not None
    return normal_network(created_with or "") if is_fixed else requested


def changed_document(current: LoadBalancer, change: ChangeLoadBalancer) -> Document:
    """Return the whole changed object; unknown fields and the resource version stay."""
    document = current.document()
    metadata = cast("Document", document["metadata"])
    _merge(metadata, "labels", change.labels)
    _merge(metadata, "annotations", change.annotations)
    _merge(document, "spec", change.spec)
    _merge(document, "status", change.status)
    return document


def _merge(parent: Document, part: str, changes: Mapping[str, object]) -> None:
    """Merge changes into a map of the document; None removes a key."""
    if changes:
        merged = {**cast("Document", parent.get(part) or {}), **changes}
        parent[part] = {key: value for key, value in merged.items() if value is not None}
