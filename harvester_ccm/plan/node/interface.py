"""The interface of a VM whose addresses are published for its Node: an ordered list of rules, the first match wins.

Only interfaces in VM networks count, or with ``--management-network`` only those in that network.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.facts import AddressFacts, is_inside

_POD_NETWORK_ONLY: Final = "in Harvester's management (pod) network only"


class InterfaceRule(StrEnum):
    """The rules that select the interface, in their order."""

    KUBELET = "kubelet's address"
    """The interface that has an address in the annotation ``alpha.kubernetes.io/provided-node-ip``, which is the
    kubelet's ``--node-ip``."""
    INTERNAL_IP = "current InternalIP"
    """The interface that has an InternalIP of the initialized Node."""
    CIDR = "address range"
    """The first interface that has an address inside ``--node-ip-cidr``."""
    ONLY = "only interface"
    """The interface, if the VM has only one."""
    FIRST = "first interface"
    """The first interface, for a Node that is not initialized yet. An initialized Node keeps its addresses, with an
    Event ``NoInternalIP``."""


class Interface(Struct, frozen=True):
    """The selected interface, and what the VM reports."""

    name: str
    """Empty for a VM in the pod network only, whose kubelet names an address of another device."""
    network: str
    """The VM network, or a text for messages."""
    own: Mapping[IPAddress, None]
    """The addresses of the interface that no other Node has, in order."""
    taken: Sequence[IPAddress]
    """The addresses of the interface that another Node has: they are not published."""
    elsewhere: Mapping[IPAddress, str]
    """The addresses of the VM's other interfaces, with the interface."""

    @property
    def is_in_vm_network(self) -> bool:
        """Whether the VM has this interface."""
        return bool(self.name)


def select_interface(facts: AddressFacts) -> Interface | None:
    """Return the interface by the first rule that matches; None if none does. The VM has a candidate."""
    for rule in INTERFACE_RULES.values():
        name = rule(facts)
        if name is not None:
            return _interface(facts, name, facts.candidates[name])
    return None


def pod_network_only(facts: AddressFacts) -> Interface:
    """Return the stand-in for the interface of a VM that is in no VM network."""
    return _interface(facts, "", _POD_NETWORK_ONLY)


def _interface(facts: AddressFacts, name: str, network: str) -> Interface:
    reported = facts.reported.get(name, ())
    taken = [address for address in reported if facts.is_taken(address)]
    own = dict.fromkeys(address for address in reported if not facts.is_taken(address))
    elsewhere = {
        address: other
        for other, addresses in facts.reported.items()
        for address in addresses
        if other != name and address not in own
    }
    return Interface(name, network, own, taken, elsewhere)


def _with_kubelet_address(facts: AddressFacts) -> str | None:
    return _first_with(facts, facts.provided)


def _with_internal_ip(facts: AddressFacts) -> str | None:
    return _first_with(facts, facts.present)


def _first_with(facts: AddressFacts, wanted: Iterable[IPAddress]) -> str | None:
    """Return the first interface that has the first of the wanted addresses, or else the next one."""
    for address in wanted:
        for name in facts.candidates:
            if address in facts.reported[name]:
                return name
    return None


def _inside_cidr(facts: AddressFacts) -> str | None:
    for name in facts.candidates:
        if any(is_inside(address, facts.settings.node_ip_cidrs) for address in facts.reported[name]):
            return name
    return None


def _only(facts: AddressFacts) -> str | None:
    names = list(facts.candidates)
    if len(names) != 1:
        return None
    return names[0]


def _first(facts: AddressFacts) -> str | None:
    if facts.present:
        return None
    return next(iter(facts.candidates))


INTERFACE_RULES: Final[Mapping[InterfaceRule, Callable[[AddressFacts], str | None]]] = {
    InterfaceRule.KUBELET: _with_kubelet_address,
    InterfaceRule.INTERNAL_IP: _with_internal_ip,
    InterfaceRule.CIDR: _inside_cidr,
    InterfaceRule.ONLY: _only,
    InterfaceRule.FIRST: _first,
}
