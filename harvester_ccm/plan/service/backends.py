"""The nodes that may get traffic from a VM load balancer, and why others do not."""

from collections.abc import Iterable, Mapping
from typing import Final

from harvester_ccm.model.core import Node
from harvester_ccm.names import EXCLUDE_NODE_LABEL

NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Put on nodes that the cluster autoscaler is about to remove."""
NO_BACKEND_TEXT: Final = (
    f"No Node of this cluster gets traffic: each is excluded (label {EXCLUDE_NODE_LABEL} or taint {AUTOSCALER_TAINT}), "
    "is being deleted, or has no VM that is known for certain"
)


Backends = tuple[str, ...] | None
"""The VMs of the nodes that may get traffic; None until the VMs are listed: the backends are left as they are then."""


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
