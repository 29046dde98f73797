"""The interface of a VM whose addresses are published for its Node: an ordered list of rules, the first match wins.

Only interfaces in VM networks count, or with ``--management-network`` only those in that network.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.facts import AddressFacts, is_inside

_POD_NETWORK_ONLY: Final = "in Harvester's management (pod) network only"


class NodeInterface(Struct, frozen=True):
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


def select_interface(facts: AddressFacts) -> NodeInterface | None:
    """Return the interface by the first rule that matches; None if none does. The VM has a candidate."""
    for rule in _RULES:
        name = rule(facts)
        if name is not None:
            return _interface(facts, name, facts.candidates[name])
    return None


def pod_network_only(facts: AddressFacts) -> NodeInterface:
    """Return the stand-in for the interface of a VM that is in no VM network."""
    return _interface(facts, "", _POD_NETWORK_ONLY)


def _interface(facts: AddressFacts, name: str, network: str) -> NodeInterface:
    reported = facts.reported.get(name, ())
    taken = [address for address in reported if facts.is_taken(address)]
    own = dict.fromkeys(address for address in reported if not facts.is_taken(address))
    elsewhere = {
        address: other
        for other, addresses in facts.reported.items()
        for address in addresses
        if other != name and address not in own
    }
    return NodeInterface(name, network, own, taken, elsewhere)


def _with_kubelet_address(facts: AddressFacts) -> str | None:
    """Return the interface that has an address of the kubelet, its ``--node-ip``."""
    return _first_with(facts, facts.provided)


def _with_internal_ip(facts: AddressFacts) -> str | None:
    """Return the interface with an InternalIP of the initialized Node."""
    return _first_with(facts, facts.present)


def _first_with(facts: AddressFacts, wanted: Iterable[IPAddress]) -> str | None:
    """Return the first interface that has the first of the wanted addresses, or else the next one."""
    for address in wanted:
        for name in facts.candidates:
            if address in facts.reported[name]:
                return name
    return None


def _inside_cidr(facts: AddressFacts) -> str | None:
    """Return the first interface with an address inside ``--node-ip-cidr``."""
    for name in facts.candidates:
        if any(is_inside(address, facts.settings.node_ip_cidrs) for address in facts.reported[name]):
            return name
    return None


def _only_or_first(facts: AddressFacts) -> str | None:
    """Return the only interface, or the first one for a new Node.

    An initialized Node keeps its addresses, with an Event ``NoInternalIP``.
    """
    if len(facts.candidates) > 1 and facts.present:
        return None
    return next(iter(facts.candidates))


_RULES: Final[tuple[Callable[[AddressFacts], str | None], ...]] = (
    _with_kubelet_address,
    _with_internal_ip,
    _inside_cidr,
    _only_or_first,
)
"""The rules in their order."""
