"""The nodes that may get traffic from a VM load balancer, and why others do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Self

from msgspec import Struct, field

from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import NodeMatches
from harvester_ccm.names import EXCLUDE_NODE_LABEL

NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Put on nodes that the cluster autoscaler is about to remove."""


class Backends(Struct, frozen=True):
    """The nodes that may get traffic from a VM load balancer."""

    names: tuple[str, ...] = ()
    """Of their VMs."""
    strangers: tuple[str, ...] = ()
    """Names of nodes without traffic because their VM is not known for certain."""
    known: bool = True
    """Whether the VMs have been listed; before that, the backends of a load balancer are left as they are."""
    none_because: str = ""
    """Why no node may get traffic; empty if some may."""
    networks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """VM network to the addresses that nodes report there; only used in an Event."""
    attached: frozenset[str] | None = None
    """The VM networks of the nodes; None if that is not known of all of them. Only used in an Event."""

    @property
    def chosen(self) -> tuple[object, ...]:
        """The fields whose change requires a write of load balancers."""
        return self.names, self.strangers, self.known, self.none_because

    @classmethod
    def of(cls, nodes: Iterable[Node], matches: NodeMatches) -> Self:
        """Return the nodes that may get traffic; ``matches`` are their VMs."""
        nodes = tuple(nodes)
        strangers = sorted(n.metadata.name for n in nodes if takes_traffic(n) and n.metadata.name in matches.strangers)
        names = backend_names(nodes, matches.vm_names)
        return cls(
            names=names,
            strangers=tuple(strangers),
            known=matches.known,
            none_because="" if names else why_no_backend(nodes),
            networks=matches.networks,
            attached=matches.attached,
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


def why_no_backend(nodes: Collection[Node]) -> str:
    """Return why none of these nodes gets traffic.

    >>> why_no_backend([])
    'This cluster has no Node yet'
    """
    if not nodes:
        return "This cluster has no Node yet"
    going = sum(1 for node in nodes if node.metadata.deleting)
    excluded = sum(1 for node in nodes if not node.metadata.deleting and not takes_traffic(node))
    unknown = len(nodes) - going - excluded
    counts = (
        (excluded, f"are excluded (label {EXCLUDE_NODE_LABEL}, or taint {AUTOSCALER_TAINT})"),
        (going, "are being deleted"),
        (unknown, "have no VM that is known for certain"),
    )
    why = ", ".join(f"{count} {words}" for count, words in counts if count)
    return f"None of the {len(nodes)} Nodes of this cluster gets traffic: {why}"


def backend_names(nodes: Iterable[Node], vm_names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the VMs behind the nodes that take traffic, sorted.

    ``vm_names`` are of the nodes whose VM is known: a VM that merely has a node's name may be another cluster's.
    """
    names = (vm_names.get(node.metadata.name) for node in nodes if takes_traffic(node))
    return tuple(sorted({name for name in names if name is not None}))
