"""The LoadBalancer object of a Service, field by field, and the changes that an existing one needs.

Set only at creation: ``ipam`` and the pool selection annotations (Harvester's webhook overwrites namespace and project
with every write, so a comparison would never end). Fixed once there is an address: the pool and the network. Kept up to
date: labels, the cluster annotation, the management network, the owner annotations, ``status.address`` of cluster load
balancers, and listeners, backends and health check of VM load balancers. All other fields stay as they were read.
"""

from collections.abc import Mapping
from typing import cast

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.plan.service.ownership import name_for
from harvester_ccm.plan.service.request import Request, normal_network
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import ChangeLoadBalancer, Document


def new_load_balancer(service: Service, request: Request, cluster: ClusterIdentity, vm_spec: Document) -> Document:
    """Return the object to create; ``vm_spec`` has the fields of a VM load balancer, and is empty for a cluster one.

    It has the finalizer of Harvester's controller from the start. Otherwise Harvester adds it with a separate write,
    which may conflict with others and is a third of its writes, of which it has five a second. The finalizer does not
    show that Harvester has recorded an address then.
    """
    network = service.metadata.annotation(names.NETWORK) or ""
    annotations = {
        names.LB_SELECT_NETWORK: normal_network(network),
        names.LB_REQUESTED_NETWORK: network,
        names.LB_SELECT_PROJECT: request.project,
        names.LB_SELECT_NAMESPACE: request.pool_namespace,
        # Harvester may still collect the parts of an earlier load balancer of this name, and those of this one, too.
        names.LB_TOUCH: "true" if vm_spec else None,
        **_kept_annotations(service, cluster),
    }
    spec = {
        # Harvester's UI shows the description in its lists.
        "description": request.description or f"{service.metadata.key} of cluster {cluster.name}",
        "workloadType": "vm" if vm_spec else "cluster",
        "ipam": request.ipam,
        "ipPool": request.ip_pool if request.ipam == "pool" else "",
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


def network_of(current: LoadBalancer, wanted: str) -> str:
    """Return the network of a load balancer in normal form; it is fixed once the load balancer has an address.

    ``wanted`` is the one that the Service requests now: it applies until then, or if the load balancer names none.
    """
    made_with = current.metadata.annotation(names.LB_REQUESTED_NETWORK)
    return normal_network(made_with) if current.allocated_ip and made_with is not None else wanted


def load_balancer_change(
    current: LoadBalancer,
    snapshot: ServiceSnapshot,
    *,
    address: str = "",
    spec: Mapping[str, object] | None = None,
    annotations: Mapping[str, str | None] | None = None,
) -> ChangeLoadBalancer | None:
    """Return the write that brings an existing load balancer to its desired state; None if it has that.

    ``address`` is the address in use; if it is empty, the present one stays. ``spec`` and ``annotations`` are desired
    in addition to those of every load balancer; None as a value means absent.
    """
    meta, service, cluster = current.metadata, snapshot.service, snapshot.cluster
    settled = {} if searches_elsewhere(current, snapshot) else {names.LB_RECONCILE: None}
    noted = {**_kept_annotations(service, cluster), **settled, **(annotations or {})}
    description = snapshot.request.description
    wanted = {**(spec or {}), **({"description": description} if description else {})}
    present = cast("Document", current.document().get("spec") or {}) if wanted else {}
    change = ChangeLoadBalancer(
        meta.name,
        labels={k: v for k, v in load_balancer_labels(service, cluster).items() if meta.label(k) != v},
        annotations={k: v for k, v in noted.items() if meta.annotation(k) != v},
        spec={k: v for k, v in wanted.items() if not _covers(present.get(k), v)},
        status={"address": address} if address and address != current.address else {},
    )
    return None if change == ChangeLoadBalancer(meta.name) else change


def searches_elsewhere(current: LoadBalancer, snapshot: ServiceSnapshot) -> bool:
    """Return whether Harvester searches for an address in another pool or network than the Service requests now.

    A load balancer by the Go provider before 0.2.7 does not name the requested network.
    """
    request, network = snapshot.request, current.metadata.annotation(names.LB_REQUESTED_NETWORK)
    other_network = network is not None and normal_network(network) != request.network
    other_pool = current.spec.ipam == "pool" and current.spec.ip_pool != request.ip_pool
    return not current.allocated_ip and (other_network or other_pool)


def _covers(present: object, wanted: object) -> bool:
    """Return whether a field has the desired value, apart from parts that only a newer Harvester knows."""
    if isinstance(present, list) and isinstance(wanted, list):
        return len(present) == len(wanted) and all(map(_covers, present, wanted))
    # Each further key of the selector of backends excludes some.
    if isinstance(present, dict) and isinstance(wanted, dict) and names.VM_NAME not in wanted:
        return present.items() >= wanted.items()
    return present == wanted


def changed_document(current: LoadBalancer, change: ChangeLoadBalancer) -> Document:
    """Return the whole changed object; unknown fields and the resource version stay."""
    document = current.document()
    metadata = cast("Document", document["metadata"])
    for parent, part, changes in (
        (metadata, "labels", change.labels),
        (metadata, "annotations", change.annotations),
        (document, "spec", change.spec),
        (document, "status", change.status),
    ):
        if changes:
            merged = {**cast("Document", parent.get(part) or {}), **changes}
            parent[part] = {key: value for key, value in merged.items() if value is not None}
    return document


def load_balancer_labels(service: Service, cluster: ClusterIdentity) -> dict[str, str]:
    """Return the labels by which the load balancer and its Service are found."""
    return {
        names.LB_CLUSTER: cluster.name,
        names.LB_SERVICE_NAMESPACE: service.metadata.namespace,
        names.LB_SERVICE_NAME: service.metadata.name,
    }


def _kept_annotations(service: Service, cluster: ClusterIdentity) -> dict[str, str | None]:
    return {
        names.LB_SELECT_CLUSTER: cluster.name,
        names.LB_MANAGEMENT_NETWORK: cluster.management_network or None,
        names.LB_SERVICE_UID: service.metadata.uid,
        **({names.LB_OWNER: cluster.uid} if cluster.uid else {}),
    }
