"""The nodes that may get traffic from a VM load balancer, and why others do not."""

from collections.abc import Iterable, Mapping
from typing import Final, Self

from msgspec import Struct, field

from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import NodeMatches
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
    unmatched: tuple[str, ...] = ()
    """Names of nodes without traffic because their VM is not known for certain."""
    known: bool = True
    """Whether the VMs have been listed; before that, the backends of a load balancer are left as they are."""
    none_because: str = ""
    """Why no node may get traffic; empty if some may."""
    networks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """VM network to the addresses that nodes report there; only used in an Event."""

    @property
    def chosen(self) -> tuple[object, ...]:
        """The fields whose change requires a write of load balancers."""
        return self.names, self.unmatched, self.known, self.none_because

    @classmethod
    def of(cls, nodes: Iterable[Node], matches: NodeMatches) -> Self:
        """Return the nodes that may get traffic; ``matches`` are their VMs."""
        nodes = tuple(nodes)
        unmatched = sorted(n.metadata.name for n in nodes if takes_traffic(n) and n.metadata.name in matches.unmatched)
        names = backend_names(nodes, matches.vm_names)
        return cls(
            names=names,
            unmatched=tuple(unmatched),
            known=matches.known,
            none_because="" if names else _NO_BACKEND if nodes else "This cluster has no Node yet",
            networks=matches.networks,
        )


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


def backend_names(nodes: Iterable[Node], vm_names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the VMs behind the nodes that take traffic, sorted.

    ``vm_names`` are of the nodes whose VM is known: a VM that merely has a node's name may be another cluster's.
    """
    names = (vm_names.get(node.metadata.name) for node in nodes if takes_traffic(node))
    return tuple(sorted({name for name in names if name is not None}))
