"""The specification of a VM load balancer: listeners, backends and health check.

Every port of the Service is mapped to its node port on every VM of the cluster that may get traffic.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from harvester_ccm.model.core import Node, Service, ServicePort
from harvester_ccm.names import AUTOSCALER_TAINT, EXCLUDE_NODE_LABEL, VM_NAME
from harvester_ccm.plan.service.desired import Document
from harvester_ccm.plan.service.load_balancer.refused import Ports, port_of
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.store import Backends

NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""Values of a label that mean false, as in Go."""


def vm_spec_of(snapshot: ServiceSnapshot) -> Document:
    """Return the fields of ``spec`` that follow Service, secondaries and nodes; empty without node ports."""
    entries = listeners(snapshot.service, snapshot.own_ranking.shared_ports)
    if not entries:
        return {}
    left_out = snapshot.remembered.refused.left_out_of(entries, snapshot.now)
    entries = [entry for entry in entries if port_of(entry) not in left_out]
    spec: Document = {"listeners": entries, "healthCheck": dict(snapshot.request.health_check) or None}
    if snapshot.backends is not None:
        spec["backendServerSelector"] = {VM_NAME: list(snapshot.backends) or [NO_BACKEND]}
    return spec


def ports_left_out(snapshot: ServiceSnapshot) -> Ports:
    """Return the ports of the Service, and of those that share its address, for which Harvester takes no listener."""
    refused = snapshot.remembered.refused
    if not refused.ports:
        return frozenset()
    return refused.left_out_of(listeners(snapshot.service, snapshot.own_ranking.shared_ports), snapshot.now)


def listeners(service: Service, shared_ports: Iterable[ServicePort]) -> list[dict[str, object]]:
    """Return one listener per port of the Service and of the Services that share its address.

    Ports without a node port (not yet allocated) are left out. A listener has the name of its port, as with the Go
    provider. Ports of other Services can have the same names, which Harvester rejects: their listeners are called after
    protocol and number.
    """
    named_ports = [(port, port.name) for port in service.spec.ports]
    named_ports += [(port, "") for port in shared_ports]
    entries: dict[tuple[str, int], dict[str, object]] = {}
    used_names: set[str] = set()
    for port, port_name in named_ports:
        if not port.node_port or (port.protocol, port.port) in entries:
            continue
        name = port_name or f"{port.protocol.lower()}-{port.port}"
        if name in used_names:
            name = f"{name}-{port.node_port}"
        used_names.add(name)
        entries[port.protocol, port.port] = {
            "name": name,
            "port": port.port,
            "protocol": port.protocol,
            "backendPort": port.node_port,
        }
    return list(entries.values())


def backends_of(nodes: Iterable[Node], vm_names: Mapping[str, str] | None) -> Backends:
    """Return the VMs of the nodes that may get traffic.

    ``vm_names`` are the VMs of the nodes whose VM is known for certain, by the names of the nodes; None until the VMs
    are listed.
    """
    if vm_names is None:
        return None
    backends = {
        vm_names[node.metadata.name] for node in nodes if node.metadata.name in vm_names and takes_traffic(node)
    }
    return tuple(sorted(backends))


def takes_traffic(node: Node) -> bool:
    """Return whether load balancers may send traffic to the node.

    The exclusion label counts with any value that is not a written-out false; readiness, roles and cordons do not
    matter (they are what health checks and endpoints are for).
    """
    is_leaving = node.metadata.deleting or any(taint.key == AUTOSCALER_TAINT for taint in node.spec.taints)
    exclusion = node.metadata.label(EXCLUDE_NODE_LABEL)
    return not is_leaving and (exclusion is None or exclusion in _FALSE)
