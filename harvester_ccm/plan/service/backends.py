"""The Harvester-hosted side of a VM load balancer: listeners, backends, health check.

Every Service port is mapped to its node port on every VM of the cluster that may get traffic. Harvester finds the VMs
by their labels; before 1.2 it was given addresses. What is
written of both is a matter of its ``Capabilities``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.harvester import HealthCheck, Listener, VirtualMachine
from harvester_ccm.names import DESCRIPTION, EXCLUDE_NODE_LABEL, PROVIDER_NAME, VM_NAME
from harvester_ccm.netip import ipv4_text

NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Put on nodes that the cluster autoscaler is about to remove."""

Document = dict[str, object]


def takes_traffic(node: Node) -> bool:
    """Return whether load balancers may send traffic to the node.

    The exclusion label counts with any value that is not a written-out false; readiness, roles and cordons do not
    matter (they are what health checks and endpoints are for).
    """
    if node.metadata.deleting:
        return False
    if any(taint.key == AUTOSCALER_TAINT for taint in node.spec.taints):
        return False
    excluded = node.metadata.label(EXCLUDE_NODE_LABEL)
    return excluded is None or excluded in {"0", "f", "F", "false", "FALSE", "False"}


def backend_names(nodes: Iterable[Node], machines: Iterable[VirtualMachine]) -> tuple[str, ...]:
    """Return the names of the VMs behind the nodes that take traffic, sorted.

    A node is its VM by provider ID; without one, or while the VMs are unknown, by its own name.
    """
    by_uid = {machine.metadata.uid: machine.metadata.name for machine in machines}
    names = set()
    for node in nodes:
        if takes_traffic(node):
            uid = node.spec.provider_id.removeprefix(f"{PROVIDER_NAME}://")
            names.add(by_uid.get(uid, node.metadata.name))
    return tuple(sorted(names))


def backend_addresses(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the IPv4 InternalIPs of the nodes that take traffic, in the order of their names.

    Harvester before 1.2 puts them into an EndpointSlice of IPv4 addresses, which takes no other ones.
    """
    chosen = sorted((node for node in nodes if takes_traffic(node)), key=lambda node: node.metadata.name)
    internal = (entry.address for node in chosen for entry in node.status.addresses if entry.type == "InternalIP")
    return tuple(dict.fromkeys(address for address in internal if ipv4_text(address)))


def listeners(service: Service, sharers: Iterable[Service]) -> tuple[Listener, ...]:
    """Return one listener per port of the Service and of the Services that share its address.

    Ports without a node port (not yet allocated) are left out. Names are unique DNS labels.
    """
    made: list[Listener] = []
    used: set[str] = set()
    for owner in (service, *sharers):
        for port in owner.spec.ports:
            if not port.node_port or any((m.protocol, m.port) == (port.protocol, port.port) for m in made):
                continue
            wish = port.name if port.name and owner is service else f"{port.protocol.lower()}-{port.port}"
            name = _unused(wish, used)
            used.add(name)
            made.append(Listener(name=name, port=port.port, protocol=port.protocol, backend_port=port.node_port))
    return tuple(made)


def _unused(wish: str, used: set[str]) -> str:
    name, number = wish, 2
    while name in used:
        name, number = f"{wish[:58]}-{number}", number + 1
    return name


def selector(backends: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the label selector for these VMs; never an empty list."""
    return {VM_NAME: backends or (NO_BACKEND,)}


def vm_spec(
    service: Service,
    front: tuple[Listener, ...],
    *,
    names: tuple[str, ...],
    addresses: tuple[str, ...],
    check: HealthCheck | None,
) -> Document:
    """Return the fields of ``spec`` that follow the Service and the nodes.

    ``names`` are those of the nodes' VMs, ``addresses`` those of the nodes.
    """
    description = service.metadata.annotation(DESCRIPTION)
    return {
        **({"description": description} if description else {}),
        "listeners": _listener_documents(front),
        "backendServerSelector": {key: list(values) for key, values in selector(names).items()},
        "backendServers": list(addresses),
        "healthCheck": None if check is None else health_check_document(check),
    }


def _listener_documents(front: tuple[Listener, ...]) -> list[Document]:
    return [
        {"name": one.name, "port": one.port, "protocol": one.protocol, "backendPort": one.backend_port} for one in front
    ]


def health_check_document(check: HealthCheck) -> Document:
    """Return ``spec.healthCheck``."""
    return {
        "port": check.port,
        "successThreshold": check.success_threshold,
        "failureThreshold": check.failure_threshold,
        "periodSeconds": check.period_seconds,
        "timeoutSeconds": check.timeout_seconds,
    }
