"""Claims of Nodes to one InternalIP, of which only one is granted while the VMs of both run.

A Node claims the InternalIPs in its status. A new Node writes its claim before the taint is removed, and is not
initialized while another Node with a running VM has the same claim. So of two Nodes that join at once at most one is
initialized: at the latest when the second one is about to be, the claim of the first one is in the cache.

An initialized Node never gives up its claim for another one. Of two new Nodes, the older one waits until the younger
one has given up its claim.
"""

from collections.abc import Iterable
from enum import Enum, auto

from msgspec import Struct

from harvester_ccm.model.core import Node
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.patch import was_initialized
from harvester_ccm.plan.node.vms import INTERNAL_IP, VM, NodeStore, internal_ips_of


class Precedence(Enum):
    """Which of two Nodes with one InternalIP has it."""

    OTHER = auto()
    """The other Node: it is initialized, or it is older, or this Node does not claim the address yet."""
    THIS = auto()
    """This Node: it is initialized, or it is older."""


class Claim(Struct, frozen=True):
    """The claim of another Node to an address."""

    node: Node
    vm: VM
    """Its VM, which runs."""
    precedence: Precedence


def claims_to(store: NodeStore, node: Node, addresses: Iterable[str]) -> dict[str, Claim]:
    """Return the claims of other Nodes with a running VM to these addresses, at most one to each."""
    claims: dict[str, Claim] = {}
    for address in dict.fromkeys(addresses):
        claim = _claim_to(store, node, address)
        if claim is not None:
            claims[address] = claim
    return claims


def _claim_to(store: NodeStore, node: Node, address: str) -> Claim | None:
    """Return the strongest claim of another Node to an address."""
    for other in sorted(store.nodes.by_index(INTERNAL_IP, address), key=_rank):
        if other.metadata.name == node.metadata.name:
            continue
        vm = find_vm(store, other).vm
        if vm is not None and runs(vm):
            return Claim(other, vm, _precedence(node, other, address))
    return None


def _precedence(node: Node, other: Node, address: str) -> Precedence:
    """Return which of the two Nodes has the address. Without a claim of its own, this Node comes second."""
    if address in internal_ips_of(node) and _rank(node) < _rank(other):
        return Precedence.THIS
    return Precedence.OTHER


def _rank(node: Node) -> tuple[bool, str, str]:
    """Return the rank of a claim: initialized Nodes first, then older ones."""
    return (not was_initialized(node), node.metadata.creation_timestamp or "", node.metadata.name)


def runs(vm: VM) -> bool:
    """Return whether a VM runs, so that it has its addresses."""
    if vm.vmi is None or vm.vmi.metadata.deleting:
        return False
    return vm.vmi.status.phase == "Running"
