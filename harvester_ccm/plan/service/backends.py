"""The nodes that may get traffic from a VM load balancer, and why others do not."""

from collections.abc import Iterable, Mapping
from typing import Final, Self

from msgspec import Struct

from harvester_ccm.model.core import Node
from harvester_ccm.names import EXCLUDE_NODE_LABEL

NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Put on nodes that the cluster autoscaler is about to remove."""
_NO_BACKEND: Final = (
    f"No Node of this cluster gets traffic: each is excluded (label {EXCLUDE_NODE_LABEL} or taint {AUTOSCALER_TAINT}), "
    "is being deleted, or has no VM that is known for certain"
)


class Backends(Struct, frozen=True):
    """The nodes that may get traffic from a VM load balancer."""

    names: tuple[str, ...] = ()
    """Of their VMs."""
    known: bool = True
    """Whether the VMs have been listed; before that, the backends of a load balancer are left as they are."""
    none_because: str = ""
    """Why no node may get traffic; empty if some may."""

    @classmethod
    def of(cls, nodes: Iterable[Node], vm_names: Mapping[str, str] | None) -> Self:
        """Return the nodes that may get traffic.

        ``vm_names`` are the VMs of the nodes whose VM is known for certain, by the names of the nodes; None until the
        VMs are listed.
        """
        if vm_names is None:
            return cls(known=False)
        nodes = tuple(nodes)
        names = {vm_names[one.metadata.name] for one in nodes if one.metadata.name in vm_names and takes_traffic(one)}
        none_because = "" if names else _NO_BACKEND if nodes else "This cluster has no Node yet"
        return cls(tuple(sorted(names)), none_because=none_because)


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
