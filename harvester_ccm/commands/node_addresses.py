"""Addresses of Nodes that others have, too, for ``status`` and ``preflight``: other Nodes, or Services in their status.

A load balancer that uses the nodes' own addresses, such as ServiceLB of K3s, writes them to the status of Services.
kube-vip takes such an address for one that it must announce, and can remove it from the device of the node.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.event import abbreviate
from harvester_ccm.plan.service.ownership.virtual_ips import VIRTUAL_IP
from harvester_ccm.plan.service.scope import is_served_by_us

NODE_ADDRESS_REMEDY: Final = (
    "End the program that writes it, usually ServiceLB of K3s: start K3s with --disable=servicelb on every server. "
    "Until then kube-vip can remove the address from the node. Afterwards restart the nodes that cannot be reached"
)


SHARED_ADDRESS_REMEDY: Final = (
    "Give each Node its own address. Check --node-ip of the kubelets, static addresses, and machine IDs that were "
    "cloned with an image"
)


def shared_internal_ips(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the InternalIPs that several Nodes have, in one sentence with the remedy; nothing if there is none."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        for entry in node.status.addresses:
            if entry.type == "InternalIP":
                names.setdefault(entry.address, []).append(node.metadata.name)
    shared = sorted(f"{address} ({abbreviate(sorted(those))})" for address, those in names.items() if len(those) > 1)
    if shared:
        yield f"Nodes have the same InternalIP: {abbreviate(shared)}. {SHARED_ADDRESS_REMEDY}"


class ShownNodeAddress(Struct, frozen=True):
    """An address of a Node in the status of a Service."""

    service: Service
    address: str
    node: str

    @property
    def text(self) -> str:
        """The finding in words."""
        return f"Address {self.address} in the status is that of Node {self.node}, and no load balancer has it"


def shown_node_addresses(store: ClusterStore) -> Iterator[ShownNodeAddress]:
    """Yield the addresses of Nodes in the status of the Services that this controller manages.

    An address that a load balancer has is none that another program wrote.
    """
    nodes = _nodes_by_address(store.nodes.all())
    for service in store.services.all():
        shown = [address for address in service.addresses if address in nodes]
        if not shown or not is_served_by_us(service, store.cluster):
            continue
        for address in shown:
            if not store.load_balancers.by_index(VIRTUAL_IP, address):
                yield ShownNodeAddress(service, address, nodes[address])


def _nodes_by_address(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the names of the Nodes by their addresses, that of the first one if several have an address."""
    names: dict[str, str] = {}
    for node in nodes:
        for entry in node.status.addresses:
            if entry.type in {"InternalIP", "ExternalIP"}:
                names.setdefault(entry.address, node.metadata.name)
    return names
