"""The InternalIP of a Node in one IP family: an ordered list of rules, the first match wins.

An address that another Node with a running VM has as its InternalIP does not count, except the present InternalIP.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from harvester_ccm.names import PROVIDED_NODE_IP
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.facts import AddressFacts
from harvester_ccm.plan.node.interface import NodeInterface

_NAMED: Final = f"named by annotation {PROVIDED_NODE_IP}"
_KEPT: Final = "present InternalIP, which the VM does not report now"


class Choice(Struct, frozen=True):
    """The InternalIP of one family, and why."""

    address: IPAddress | None = None
    reason: str = ""
    missing: IPAddress | None = None
    """An address that the VM should report and does not, and that is replaced or used after some time."""


class Family(Struct, frozen=True):
    """The addresses of one IP family."""

    facts: AddressFacts
    version: int
    own: tuple[IPAddress, ...]
    """The addresses of the interface that no other Node has, in order."""
    provided: IPAddress | None
    """The kubelet's address."""
    present: IPAddress | None
    """The InternalIP of an initialized Node."""
    is_present_on_interface: bool
    is_present_elsewhere: bool
    """Whether the VM reports the InternalIP on another interface."""

    @property
    def allowed(self) -> list[IPAddress]:
        """The addresses of the interface that the flags allow."""
        return [address for address in self.own if self.facts.is_allowed(address)]

    @property
    def excluded(self) -> tuple[IPAddress, ...]:
        """The addresses of the interface that count only if the flags allow none of them."""
        if self.facts.settings.node_ip_cidrs or self.allowed:
            return ()
        return self.own

    @property
    def awaited(self) -> IPAddress | None:
        """The kubelet's address, if it is usable."""
        if self.provided is None or not self.facts.is_usable(self.provided):
            return None
        return self.provided

    @property
    def missing(self) -> IPAddress | None:
        """The InternalIP that the flags allow, if the VM does not report it."""
        if self.present is None or self.is_present_on_interface or self.is_present_elsewhere:
            return None
        if not self.facts.is_allowed(self.present):
            return None
        return self.present


def choose_internal_ip(facts: AddressFacts, interface: NodeInterface, version: int) -> Choice:
    """Return the InternalIP of one IP family by the first rule that matches."""
    family = _family(facts, interface, version)
    for choose in _RULES:
        choice = choose(family)
        if choice is not None:
            return choice
    return Choice()


def _family(facts: AddressFacts, interface: NodeInterface, version: int) -> Family:
    present = _of_version(facts.present, version)
    return Family(
        facts=facts,
        version=version,
        own=tuple(address for address in interface.own if address.version == version),
        provided=_of_version(facts.provided, version),
        present=present,
        is_present_on_interface=present in interface.own,
        is_present_elsewhere=present in interface.elsewhere,
    )


def _of_version(addresses: Sequence[IPAddress], version: int) -> IPAddress | None:
    for address in addresses:
        if address.version == version:
            return address
    return None


def _kubelet_reported(family: Family) -> Choice | None:
    """The kubelet names an address, and the interface has it: that address."""
    if family.provided is None or family.provided not in family.own:
        return None
    return Choice(family.provided, _NAMED)


def _present_reported(family: Family) -> Choice | None:
    """The flags allow the current InternalIP, and the VM reports it: it stays.

    With ``--management-network``, the VM must report it on this interface.
    """
    if family.present is None or not family.facts.is_allowed(family.present):
        return None
    # Without a flag that names one network, the InternalIP can be on another interface than that of the other family.
    counts_elsewhere = not family.facts.settings.management_network
    if family.is_present_on_interface or (family.is_present_elsewhere and counts_elsewhere):
        reason = "present InternalIP, which the VM reports"
        return Choice(family.present, reason)
    return None


def _kubelet_overdue(family: Family) -> Choice | None:
    """The VM has not reported the kubelet's usable address for 60 s: that address, which a kubelet has on its host."""
    awaited = family.awaited
    if awaited is None or not family.facts.is_overdue(awaited):
        return None
    reason = f"{_NAMED}, although the VM does not report it"
    return Choice(awaited, reason, missing=awaited)


def _kubelet_awaited(family: Family) -> Choice | None:
    """The VM does not report the kubelet's usable address yet: the current InternalIP stays, and a new Node waits."""
    if family.awaited is None:
        return None
    return Choice(family.present, _KEPT, missing=family.awaited)


def _present_awaited(family: Family) -> Choice | None:
    """The VM does not report the current InternalIP, which the flags allow: it stays.

    It is replaced if the VM has reported another address for 60 s.
    """
    missing = family.missing
    if missing is None:
        return None
    if not family.allowed and not family.excluded:
        # A guest agent that reports no address at all says nothing about this one: no time counts.
        return Choice(missing, _KEPT)
    if family.facts.is_overdue(missing):
        return None
    return Choice(missing, _KEPT, missing=missing)


def _present_excluded(family: Family) -> Choice | None:
    """The current InternalIP is in ``--node-exclude-ip-ranges``, as all addresses of the interface are: it stays."""
    if family.present is None or family.present not in family.excluded:
        return None
    reason = "present InternalIP, excluded by --node-exclude-ip-ranges like all others"
    return Choice(family.present, reason)


def _first(family: Family) -> Choice | None:
    """The flags allow an address of the interface: the first one of these."""
    if not family.allowed:
        return None
    address = family.allowed[0]
    where = "of the interface"
    for cidr in family.facts.settings.node_ip_cidrs:
        if address in cidr:
            where = f"inside --node-ip-cidr {cidr}"
    reason = f"first IPv{family.version} address {where}"
    return Choice(address, reason, missing=family.missing)


def _first_excluded(family: Family) -> Choice | None:
    """All addresses of the interface are in ``--node-exclude-ip-ranges``, without ``--node-ip-cidr``: the first one."""
    if not family.excluded:
        return None
    reason = f"first IPv{family.version} address of the interface, excluded by --node-exclude-ip-ranges like all others"
    return Choice(family.excluded[0], reason, missing=family.missing)


_RULES: Final[tuple[Callable[[Family], Choice | None], ...]] = (
    _kubelet_reported,
    _present_reported,
    _kubelet_overdue,
    _kubelet_awaited,
    _present_awaited,
    _present_excluded,
    _first,
    _first_excluded,
)
"""The rules in their order. The docstring of each says when it holds, and after the colon the InternalIP."""
