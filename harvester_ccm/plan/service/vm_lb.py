"""A VM load balancer: Harvester announces the address and forwards to the nodes that may get traffic.

Every port of the Service is mapped to its node port on every VM of the cluster that may get traffic.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from harvester_ccm.model.core import Node, Service, ServicePort
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Wait, WaitReason
from harvester_ccm.names import EXCLUDE_NODE_LABEL, LB_TOUCH, VM_NAME, Reason
from harvester_ccm.plan.service.cluster_lb import address_event, not_as_requested, plan_pending
from harvester_ccm.plan.service.kube_vip import Annotations, delegate, virtual_ip_ingress
from harvester_ccm.plan.service.load_balancer import load_balancer_change
from harvester_ccm.plan.service.messages import backend_note
from harvester_ccm.plan.service.snapshot import Backends, ServiceSnapshot
from harvester_ccm.plan.service.writes import Desired, Document, ServiceChange

TOUCH_AFTER: Final = 10.0
"""Seconds after which a recreated load balancer is written once more."""
FIRST_CHECKS: Final = 10.0
"""Seconds that a new load balancer gets for its first health checks, in addition to their own period."""
NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Put on nodes that the cluster autoscaler is about to remove."""
NO_BACKEND_TEXT: Final = (
    f"No Node of this cluster gets traffic: each is excluded (label {EXCLUDE_NODE_LABEL} or taint {AUTOSCALER_TAINT}), "
    "is being deleted, or has no VM that is known for certain"
)


def wanted_spec(snapshot: ServiceSnapshot) -> Document:
    """Return the fields of ``spec`` that follow Service, secondaries and nodes; empty without node ports."""
    front = listeners(snapshot.service, snapshot.own_ranking.shared_ports)
    if not front:
        return {}
    check = snapshot.request.health_check
    spec: Document = {"listeners": [*front], "healthCheck": None if check is None else msgspec.to_builtins(check)}
    if snapshot.backends is not None:
        spec["backendServerSelector"] = {VM_NAME: [*snapshot.backends] or [NO_BACKEND]}
    return spec


def plan_vm(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Desired:
    """Return the desired state of a Service whose VM load balancer exists."""
    service, address, spec = snapshot.service, load_balancer.address, wanted_spec(snapshot)
    if not address:
        return plan_pending(snapshot, load_balancer, delegate(service), spec)
    # Harvester may collect the parts of an earlier load balancer of this name, and those of this one, too: it is
    # written once more. Before it has an address it has no parts.
    touch_in = TOUCH_AFTER - snapshot.waited if load_balancer.metadata.annotation(LB_TOUCH) is not None else None
    touched: Annotations = {LB_TOUCH: None} if touch_in is not None and touch_in <= 0 else {}
    unhealthy, check_in = _health(snapshot, load_balancer)
    seconds = min((delay for delay in (touch_in or 0.0, check_in) if delay > 0), default=0.0)
    return Desired(
        Wait(WaitReason.BACKENDS, seconds) if seconds else Done(),
        unhealthy,
        events=(not_as_requested(snapshot.request, address), address_event(service, load_balancer, address)),
        service=ServiceChange(
            annotations=delegate(service), finalizer=True, ingress=virtual_ip_ingress(address, service)
        ),
        then=load_balancer_change(load_balancer, snapshot, spec=spec, annotations=touched),
    )


def _health(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> tuple[EventMessage | None, float]:
    """Return the Warning about the backends, or the seconds until the first health checks are over.

    A load balancer is not called unhealthy before its first checks are over, nor after a restart of this controller.
    """
    # While the VMs of the nodes are not known, some may get traffic.
    if snapshot.backends == ():
        return EventMessage("Warning", Reason.BACKENDS_UNHEALTHY, NO_BACKEND_TEXT), 0.0
    note, check = backend_note(load_balancer), load_balancer.spec.health_check
    if note is None:
        return None, 0.0
    first = check.success_threshold * check.period_seconds + check.timeout_seconds if check and check.port else 0
    left = first + FIRST_CHECKS - snapshot.waited
    return (None, left) if left > 0 else (note, 0.0)


def listeners(service: Service, shared_ports: Iterable[ServicePort]) -> tuple[dict[str, object], ...]:
    """Return one listener per port of the Service and of the Services that share its address.

    Ports without a node port (not yet allocated) are left out. A name is that of the port, as with the Go provider, or
    made of protocol and number: the names of other Services' ports may be the same. Harvester rejects equal names.
    """
    candidates = [(port, port.name) for port in service.spec.ports]
    candidates += [(port, "") for port in shared_ports]
    made: dict[tuple[str, int], dict[str, object]] = {}
    taken: set[str] = set()
    for port, own_name in candidates:
        if not port.node_port or (port.protocol, port.port) in made:
            continue
        name = own_name or f"{port.protocol.lower()}-{port.port}"
        if name in taken:
            name = f"{name}-{port.node_port}"
        taken.add(name)
        listener = {"name": name, "port": port.port, "protocol": port.protocol, "backendPort": port.node_port}
        made[port.protocol, port.port] = listener
    return tuple(made.values())


def backends_of(nodes: Iterable[Node], vm_names: Mapping[str, str] | None) -> Backends:
    """Return the VMs of the nodes that may get traffic.

    ``vm_names`` are the VMs of the nodes whose VM is known for certain, by the names of the nodes; None until the VMs
    are listed.
    """
    if vm_names is None:
        return None
    names = {vm_names[one.metadata.name] for one in nodes if one.metadata.name in vm_names and takes_traffic(one)}
    return tuple(sorted(names))


def takes_traffic(node: Node) -> bool:
    """Return whether load balancers may send traffic to the node.

    The exclusion label counts with any value that is not a written-out false; readiness, roles and cordons do not
    matter (they are what health checks and endpoints are for).
    """
    leaving = node.metadata.deleting or any(taint.key == AUTOSCALER_TAINT for taint in node.spec.taints)
    excluded = node.metadata.label(EXCLUDE_NODE_LABEL)
    return not leaving and (excluded is None or excluded in {"0", "f", "F", "false", "FALSE", "False"})
