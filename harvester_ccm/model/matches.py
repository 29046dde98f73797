"""Which VM each Node is: what the Node side found out, as a fact for whoever sends traffic to VMs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class NodeMatches(Struct, frozen=True):
    """The VMs of all Nodes."""

    vm_names: Mapping[str, str] = field(default_factory=dict)
    """Name of a Node to the name of its VM in our Harvester namespace."""
    strangers: frozenset[str] = frozenset()
    """Names of initialised Nodes that are no VM there, or not certainly one."""
    networks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """VM network, ``namespace/name``, to the addresses that the VMs of Nodes report there, virtual ones among them."""
    attached: frozenset[str] | None = None
    """The VM networks that the VMs of Nodes have an interface in; None unless that is known of every Node's."""
    known: bool = True
    """Whether VMs have been read as far as they may be; before that nothing follows from what is missing here."""
