"""What Harvester reports about a VM's addresses: which interface counts, and which of its addresses can be used.

Differences from the Go provider, all for reports that it handles badly:

* One unreadable entry is dropped and the others are used; Go drops all.
* IPv4-mapped addresses become IPv4, a zone is cut off, a repeated address counts once; Go publishes them as they are.
* Virtual IPs of load balancers are dropped; Go publishes them.
* Without ``--management-network`` an interface of several is chosen by evidence; Go takes the first one.
* A network name without a namespace in the VM means the VM's own namespace; Go compares the text.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NODE_NETWORK_RECORD, PROVIDED_NODE_IP
from harvester_ccm.netip import REMEMBERED, IPAddress, IPNetwork, plain_address
from harvester_ccm.plan.node.vms import full_network

_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")


class DropReason(StrEnum):
    """Why an address of a VM is not an address of its Node."""

    UNREADABLE = "not an IP address"
    UNSPECIFIED = "unspecified"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"
    DUPLICATE = "repeated"
    VIRTUAL_IP = "virtual IP of a load balancer"
    EXCLUDED = "excluded by --node-exclude-ip-ranges"
    ADDITIONAL = "named by the annotation for additional internal IPs"


class DroppedAddress(Struct, frozen=True):
    """An address as it was reported, and why it is not published."""

    address: str
    reason: DropReason
    holder: str = ""
    """The Service or load balancer that has it."""


class NetworkEvidence(Struct, frozen=True):
    """What tells in which network a Node's addresses are, strongest first."""

    asked: str | None = None
    """``--management-network``: no interface in another network counts, whatever the rest says."""
    provided: tuple[IPAddress, ...] = ()
    """Addresses the kubelet was given."""
    present: tuple[IPAddress, ...] = ()
    """InternalIPs of an initialised Node."""
    recorded: str = ""
    """Network that was chosen before, as the Node says."""
    ranges: tuple[IPNetwork, ...] = ()
    """``--node-ip-cidr``: where InternalIPs are to be."""


class Nic(Struct, frozen=True):
    """The interface whose addresses are the Node's."""

    name: str
    network: str
    """As ``namespace/name``."""
    because: str
    guessed_among: tuple[str, ...] = ()
    """Names of all candidates, when there are several and neither a flag nor the kubelet says which."""
    undecided_among: tuple[str, ...] = ()
    """Names of all candidates, when another one may as well have the InternalIP, which none reports: nothing is
    concluded from this one."""


def management_nic(vmi: VirtualMachineInstance, evidence: NetworkEvidence) -> Nic | None:
    """Return the interface that the evidence speaks for, the first one when there is none.

    Interfaces in the pod network never count. None: the VM has no interface that does.
    """
    nics, asked = _attached(vmi), evidence.asked
    if asked:
        nics = _inside_network(nics, full_network(asked, vmi))
        because = f"--management-network {asked}"
        found = _with_one_of(vmi, nics, evidence.provided) or _by_node(vmi, nics, evidence)
        return replace(found, because=because) if found else None
    found = _with_one_of(vmi, nics, evidence.provided)
    if found is not None:
        return replace(found, because=f"it has the address in annotation {PROVIDED_NODE_IP}")
    found = _by_node(vmi, nics, evidence)
    only_inside = [nic.name for nic in nics if _is_inside(vmi, nic, evidence.ranges)]
    if found is None or found.undecided_among or len(nics) == 1 or only_inside == [found.name]:
        return found
    return replace(found, guessed_among=tuple(nic.name for nic in nics))


def _by_node(vmi: VirtualMachineInstance, nics: list[Nic], evidence: NetworkEvidence) -> Nic | None:
    """Return the interface that the Node speaks for, by its InternalIP, else by its record; else that of a range."""
    found = _with_one_of(vmi, nics, evidence.present)
    if found is not None:
        return replace(found, because="it has the InternalIP of the Node")
    recorded = _inside_network(nics, evidence.recorded)
    if len(recorded) == 1:
        return replace(recorded[0], because=f"annotation {NODE_NETWORK_RECORD} on the Node names its network")
    # A guest agent goes silent about an interface for moments, and the interfaces of a VM that starts come up in turn.
    families = {address.version for address in evidence.present}
    candidates = recorded or nics
    silent = [nic for nic in candidates if not families <= {address.version for address in _usable(vmi, nic.name)}]
    if silent:
        because = "no interface reports the InternalIP of the Node, and this one may have it"
        names = tuple(nic.name for nic in candidates) if len(candidates) > 1 else ()
        return replace(silent[0], because=because, undecided_among=names)
    inside = next((nic for nic in candidates if _is_inside(vmi, nic, evidence.ranges)), None)
    if inside is not None:
        return replace(inside, because="it has an address inside --node-ip-cidr")
    return next(iter(candidates), None)


def _is_inside(vmi: VirtualMachineInstance, nic: Nic, ranges: Iterable[IPNetwork]) -> bool:
    return any(address in entry for entry in ranges for address in _usable(vmi, nic.name))


def _with_one_of(vmi: VirtualMachineInstance, nics: Iterable[Nic], sought: Iterable[IPAddress]) -> Nic | None:
    """Return the interface that has the first of the addresses that any has."""
    found = {address: nic for nic in reversed([*nics]) for address in _usable(vmi, nic.name)}
    return next((found[address] for address in sought if address in found), None)


def _usable(vmi: VirtualMachineInstance, name: str) -> tuple[IPAddress, ...]:
    return read_addresses(reported_addresses(vmi, name), {})[0]


def _attached(vmi: VirtualMachineInstance) -> list[Nic]:
    networks = vmi.spec.multus_networks.items()
    return [Nic(name, full_network(network, vmi), "the first interface") for name, network in networks]


def _inside_network(nics: Iterable[Nic], network: str) -> list[Nic]:
    return [nic for nic in nics if nic.network == network]


def reported_addresses(vmi: VirtualMachineInstance, name: str) -> tuple[str, ...]:
    """Return what Harvester reports for an interface now, in its order; later entries of the same name are ignored."""
    entry = next((i for i in vmi.interfaces if i.name == name), None)
    return entry.addresses if entry is not None else ()


def addresses_elsewhere(vmi: VirtualMachineInstance, nic: Nic) -> dict[IPAddress, str]:
    """Return the addresses that the VM has now in its other networks, with the name of the interface.

    A device that the guest made itself, such as a bridge, is in no network of the VM: what it has may well be the
    address of the interface that counts.
    """
    others = [network.name for network in vmi.spec.networks or () if network.name != nic.name]
    return {address: name for name in others for address in _usable(vmi, name)}


def read_addresses(
    texts: Iterable[str], virtual_ips: Mapping[IPAddress, str]
) -> tuple[tuple[IPAddress, ...], tuple[DroppedAddress, ...]]:
    """Return the usable addresses in order, and the others with the reason.

    ``virtual_ips`` are addresses of load balancers, each with what has it.
    """
    usable: list[IPAddress] = []
    dropped: list[DroppedAddress] = []
    for text in texts:
        try:
            address = plain_address(text)
        except ValueError:
            dropped.append(DroppedAddress(text, DropReason.UNREADABLE))
            continue
        reason = _unusable(address)
        if reason is not None:
            dropped.append(DroppedAddress(text, reason))
        elif address in virtual_ips:
            dropped.append(DroppedAddress(text, DropReason.VIRTUAL_IP, virtual_ips[address]))
        elif address in usable:
            dropped.append(DroppedAddress(text, DropReason.DUPLICATE))
        else:
            usable.append(address)
    return tuple(usable), tuple(dropped)


@lru_cache(REMEMBERED)
def _unusable(address: IPAddress) -> DropReason | None:
    reasons = (
        (address.is_unspecified, DropReason.UNSPECIFIED),
        (address.is_loopback, DropReason.LOOPBACK),
        (address.is_link_local, DropReason.LINK_LOCAL),
        (address.is_multicast, DropReason.MULTICAST),
        (address == _BROADCAST, DropReason.BROADCAST),
    )
    return next((reason for holds, reason in reasons if holds), None)


def plain_text(text: str) -> str:
    """Return an address as it is published, any other text as it is."""
    try:
        return str(plain_address(text))
    except ValueError:
        return text
